"""Benchmark problems: each module's docstring is the card of its data set.

The modules need what ``pip install ./lab`` installs.
"""
