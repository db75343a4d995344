"""Benchmark problems: each module's docstring is the card of its data set.

Where a card says nothing else, this holds for all of them: the domain is the unit interval or
square; values are dimensionless; axis 0 of a plane is x, axis 1 is y; R is the resolution along an
axis and N the number of samples; sample i draws from ``numpy.random.SeedSequence(seed,
spawn_key=(i,))``, so it is the same for every number of samples and of workers; solves are in
float64, stored as float32 in HDF5 with the attributes of `chonn_lab.problems.origin`. Files
appear when they are complete; a call that was interrupted starts again.

PDEBench is M. Takamoto et al., "PDEBench: An Extensive Benchmark for Scientific Machine Learning",
NeurIPS Datasets and Benchmarks, 2022, data https://doi.org/10.18419/darus-2986; the data of FNO (Z.
Li et al., ICLR 2021) are in https://drive.google.com/drive/folders/1UnbQh2WWc6knEHbLn-ZaXrKUZhp7pjt-
and to be downloaded by hand.

Functions ``generate`` take ``seed``, ``workers``, ``force`` and ``progress`` as
`chonn_lab.problems.generation.make_files` does, and raise its errors; a ValueError for any other
argument out of range, too. Their file has `file_name` or `default_name` by default. Functions
``read`` return float32, unless the card has float64, and raise the errors of
`chonn_lab.problems.hdf5.read_rows`.

The modules need what ``pip install ./lab`` installs.
"""
