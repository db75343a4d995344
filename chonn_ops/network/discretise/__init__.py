"""Equations as circuits: diffusion, Helmholtz, rasters, meshes, volumes, and steps in time."""
