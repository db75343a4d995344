"""Benchmark problems: each module's docstring is the card of its data set.

Where a card says nothing else, this holds for all of them: values are dimensionless; axis 0 of a
plane is x, axis 1 is y; sample i draws from ``numpy.random.SeedSequence(seed, spawn_key=(i,))``, so
it is the same for every number of samples and of workers; solves are in float64, stored as float32;
files have the attributes of `chonn_lab.problems.origin`. Solved samples are kept beside the file
until it is complete: the same call goes on after an interruption.

The modules need what ``pip install ./lab`` installs.
"""
