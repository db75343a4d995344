"""Settings of `chonn-lab`, for Hydra: problems, models, scales, and what searches chose."""
