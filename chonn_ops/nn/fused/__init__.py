"""What cells and models compute at every node beside their solves.

On a GPU Triton kernels take one launch each way where PyTorch's operations take tens, each of which
costs the host as much time as a kernel. `functions` selects, `torch` has the functions by PyTorch's
operations, `triton` the kernels.
"""
