"""The interface of a model that PDEBench's runner can train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn

FAMILIES = ("unet", "fno")


class JobError(Exception):
    """A job cannot run as configured; the message states what was expected and what was found."""


@dataclass(frozen=True)
class HostModel:
    """A model that PDEBench's runner can train under a name of its own.

    Register an instance in the entry-point group ``pdebench.models``. Users pass the entry point's
    name as ``++args.model_name``, and results are named after it, ``<data>_my-model.pt``;
    docs/extending.md has an example.

    Parameters
    ----------
    family : {"unet", "fno"}
        The PDEBench model whose trainer, data layout and signature the model shares. "unet": maps
        (B, in_channels * initial_step, \\*grid) to (B, out_channels, \\*grid). "fno": maps
        (B, \\*grid, initial_step * num_channels) and the coordinates (B, \\*grid, axes) to
        (B, \\*grid, 1, num_channels).
    build : callable
        ``build(ndim, host, options)`` returns the `torch.nn.Module` for ``ndim`` spatial axes.
        ``host`` holds PDEBench's constructor keywords ("unet": ``in_channels, out_channels``;
        "fno": ``num_channels, width, initial_step`` and ``modes`` or ``modes1, modes2, ...``) and
        the geometry of the data: for "fno", which gets coordinates, ``box``, those of the low and
        high wall of each axis; for "unet" ``lengths``, the size of each axis in units of the
        longest, and ``nodes``, the steps from its walls to the first and from the last point.
        ``options`` holds the settings under ``args.<options_key>``.

        Four attributes of the module are optional. ``calibrate(x, y)``, for "fno"
        ``calibrate(x, y, coordinates)``, is called with the first training samples before a
        training that does not go on from a checkpoint; it returns the root mean square of what is
        left over the deviation of each output, or None. ``series = True`` asks for the frames that
        are predicted and the two before. ``decays = False`` turns off the weight decay of
        PDEBench's trainers. ``recorded`` is a mapping of options that checkpoints record.
    options_key : str
        Users set the model's options as ``++args.<options_key>.<option>=<value>``.
    defaults : mapping
        The known options and their defaults. Other options raise an error. Options that differ
        from their default become part of the names of the results.
    check : callable, optional
        ``check(options)`` raises ValueError for bad values; it is called before data are read.
    defaults_beside : callable, optional
        ``defaults_beside(options)`` returns the defaults if these options are set, for models in
        which one option changes the defaults of others. Its keys are those of `defaults`, which
        holds if no option is set.
    """

    family: Literal["unet", "fno"]
    build: Callable[[int, Mapping[str, Any], Mapping[str, Any]], nn.Module]
    options_key: str = "ckb"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    check: Callable[[Mapping[str, Any]], None] | None = None
    defaults_beside: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"family: expected one of {FAMILIES}, got {self.family!r}")

    def complete(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options that the user set, completed with defaults."""
        return {**self.defaults_of(options), **options}

    def defaults_of(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The defaults, given the options that the user set."""
        return self.defaults if self.defaults_beside is None else self.defaults_beside(options)
