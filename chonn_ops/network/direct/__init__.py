"""The direct method: networks eliminated by nested dissection without any subtraction."""
