"""Plugins: one package for each host, written against the public names of `chonn_ops` only."""
