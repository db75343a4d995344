"""Studies beyond the experiments; each module is a program, ``python -m chonn_lab.studies.X``."""
