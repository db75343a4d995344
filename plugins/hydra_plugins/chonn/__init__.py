"""The Hydra plugin: Hydra imports it in every application, but it acts only in PDEBench."""
