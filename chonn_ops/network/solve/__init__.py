"""The operator that solves networks, its derivatives, the choice of a method, and iteration."""
