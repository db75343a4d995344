"""The paper's problems and further ones: what they compare, and how a run becomes a result file.

`configuration` composes the settings of conf/; `base` defines what a problem is; `fields`, `flows`,
`order1d`, `waves`, `flux_law` and `meshes` are the problems; `models` builds what learns them,
`solvers` the controls that know the equation; `runner` carries a run out, `curves` many, `search`
chooses settings; `records` is the result file, with the `provenance` of data and code.
`chonn_lab.report` reads the files.
"""

# In the order of the tables.
EXPERIMENTS = (
    *("order1d", "darcy", "poisson", "shallow_water", "navier_stokes"),
    *("darcy_pdebench", "fno_darcy", "darcy_contrast", "darcy_lognormal", "darcy_loguniform"),
    *("upscaling", "unknown_law", "meshes", "rectangle", "helmholtz", "flux_law"),
    *("pdebench_series", "pdebench_series_1d"),
)
