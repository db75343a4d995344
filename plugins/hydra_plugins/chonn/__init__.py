"""Found by Hydra in every application; does nothing outside PDEBench."""
