"""Benchmark problems: each module's docstring is the card of its data set.

The modules need the extra ``pip install chonn-lab``.
"""
