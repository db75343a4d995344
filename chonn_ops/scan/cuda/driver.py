"""Load machine code onto a GPU and launch its kernels, by CUDA's driver library through ctypes."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_uint, c_void_p
from functools import cache
from struct import Struct
from typing import Any, NamedTuple

import torch

from chonn_ops._backends import KernelError
from chonn_ops.scan.cuda import nvrtc

# CUdevice_attribute and CUfunction_attribute of cuda.h.
_SHARED_OF_BLOCK = 97  # most bytes of shared memory of a block that asks for them
_SHARED_OF_KERNEL = 8  # bytes that a kernel's blocks may ask for
_CARVEOUT = 9  # percentage of the first-level cache that is shared memory
_thread = threading.local()


class Card(NamedTuple):
    """What the plan of a launch depends on."""

    device: int
    shared: int  # bytes of shared memory of a block
    capability: tuple[int, int]


@cache
def _cuda() -> Any:
    library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    library.cuLaunchKernel.argtypes = [c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p]
    return library


def _require(code: int, call: str) -> None:
    if code:
        text = c_char_p()
        _cuda().cuGetErrorString(code, byref(text))
        reason = text.value.decode() if text.value else "unknown error"
        raise KernelError(f"{call}: error {code}, {reason}")


@cache
def card(index: int) -> Card:
    """A GPU's properties."""
    found, shared = torch.cuda.get_device_properties(index), c_int()
    _require(
        _cuda().cuDeviceGetAttribute(byref(shared), _SHARED_OF_BLOCK, index), "cuDeviceGetAttribute"
    )
    return Card(index, shared.value, (found.major, found.minor))


def _enter_context(index: int) -> None:
    """Make PyTorch's context of a GPU current in this thread. Autograd's threads may have none."""
    ready = _thread.__dict__.setdefault("ready", set())
    if index in ready:
        return
    now = c_void_p()
    _require(_cuda().cuCtxGetCurrent(byref(now)), "cuCtxGetCurrent")
    if not now.value:
        _require(_cuda().cuDevicePrimaryCtxRetain(byref(now), index), "cuDevicePrimaryCtxRetain")
        _require(_cuda().cuCtxSetCurrent(now), "cuCtxSetCurrent")
    ready.add(index)


class Kernels:
    """The kernels of one source, compiled with some macros, on one GPU.

    Parameters
    ----------
    source : str
    macros : sequence of (str, int)
    names : sequence of str
        The kernels, which all take the struct of `layout`.
    layout : Struct
    card : Card
    """

    def __init__(
        self,
        source: str,
        macros: Sequence[tuple[str, int]],
        names: Sequence[str],
        layout: Struct,
        card: Card,
    ) -> None:
        code = nvrtc.machine_code(source, macros, card.capability)
        self._layout, self._index = layout, card.device
        self._allowed: dict[int, int] = {}  # bytes of shared memory that kernels may ask for
        module, kernel = c_void_p(), c_void_p()
        self._kernels: list[int] = []
        with torch.cuda.device(card.device):
            _enter_context(card.device)
            _require(_cuda().cuModuleLoadData(byref(module), code), "cuModuleLoadData")
            for name in names:
                found = _cuda().cuModuleGetFunction(byref(kernel), module, name.encode())
                _require(found, "cuModuleGetFunction")
                assert kernel.value is not None
                self._kernels.append(kernel.value)
                self._set(kernel.value, _CARVEOUT, 100)

    def _set(self, kernel: int, attribute: int, value: int) -> None:
        code = _cuda().cuFuncSetAttribute(c_void_p(kernel), attribute, value)
        _require(code, "cuFuncSetAttribute")

    def launch(self, which: int, blocks: int, threads: int, shared: int, values: tuple) -> None:
        """Launch a kernel on PyTorch's stream; `shared` bytes, and the values of the struct."""
        try:
            buffer, pointer = _thread.buffer
        except AttributeError:
            buffer = ctypes.create_string_buffer(1024)
            pointer = (c_void_p * 1)(ctypes.addressof(buffer))
            _thread.buffer = buffer, pointer
        kernel, index = self._kernels[which], self._index
        _enter_context(index)
        if self._allowed.get(kernel, 0) < shared:
            self._set(kernel, _SHARED_OF_KERNEL, shared)
            self._allowed[kernel] = shared
        self._layout.pack_into(buffer, 0, *values)
        stream = torch.cuda.current_stream(index).cuda_stream
        code = _cuda().cuLaunchKernel(
            kernel, blocks, 1, 1, threads, 1, 1, shared, stream, pointer, None
        )
        if code:
            _require(code, "cuLaunchKernel")
