"""What stands in a file of weights, read without running anything that it says."""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

# What hosts put beside the weights, and is data: nothing else of a pickle is loaded.
_HARMLESS = {
    "argparse.Namespace": argparse.Namespace,
    "pathlib.PosixPath": Path,
    "pathlib._local.PosixPath": Path,
    "torch._C._nn.gelu": torch.nn.functional.gelu,
    "torch.nn.functional.relu": torch.nn.functional.relu,
    "torch.nn.functional.silu": torch.nn.functional.silu,
}
# Imported where a file names them.
_OF_NEURALOPERATOR = ("neuralop.layers.spectral_convolution.SpectralConv",)
STATE_SUFFIX = "_state_dict.pt"


def read_weights(path: Path) -> dict[str, Any]:
    """A checkpoint's content; of a folder, as neuraloperator's Trainer writes it, its weights.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If it is damaged, would run code, or is no dictionary.
    ImportError
        Without safetensors, of one of its files.
    """
    path = weights_file(path)
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    try:
        unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    # PyTorch's readers fail in many ways on other bytes.
    except Exception as error:
        raise _unreadable(path, error) from error
    refused = sorted(set(unsafe) - set(_HARMLESS) - set(_OF_NEURALOPERATOR))
    if refused:
        raise ValueError(
            f"{path}: expected weights and plain settings, got a pickle that runs "
            f"{', '.join(refused[:5])}; it was not loaded"
        )
    allowed: list[Any] = [(_HARMLESS[name], name) for name in unsafe if name in _HARMLESS]
    for name in set(unsafe) & set(_OF_NEURALOPERATOR):
        module, _, attribute = name.rpartition(".")
        allowed.append((getattr(import_module(module), attribute), name))
    try:
        with torch.serialization.safe_globals(allowed):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise _unreadable(path, error) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a dictionary, got {type(content).__name__}")
    return content


def weights_file(path: Path) -> Path:
    """The file of a checkpoint, which may be a folder of neuraloperator's Trainer.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        For a folder with several.
    """
    if path.is_dir():
        found = sorted(path.glob(f"*{STATE_SUFFIX}"))
        if len(found) != 1:
            names = ", ".join(file.name for file in found) or "none"
            raise ValueError(
                f"{path}: expected one file *{STATE_SUFFIX} in this folder, got {names}"
            )
        return found[0]
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    return path


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, None without one; ValueError for anything else in it."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text())
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are
        raise ValueError(f"{path}: expected JSON, got something else ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected an object, got {type(content).__name__}")
    return content


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        safetensors = import_module("safetensors.torch")
    except ImportError:
        raise ImportError(f"{path}: this needs safetensors: pip install safetensors") from None
    try:
        return safetensors.load_file(path)
    except Exception as error:  # a class of its own in Rust
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> Exception:
    if isinstance(error, OSError) and error.filename is not None:
        return error
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    return ValueError(f"{path}: expected a checkpoint, got a damaged file or another one ({line})")
