"""What a package has to provide for its model to be trained by PDEBench's runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn

FAMILIES = ("unet", "fno")


class JobError(Exception):
    """A job that cannot run as asked; the message says what was expected and what was found."""


@dataclass(frozen=True)
class HostModel:
    """A model that PDEBench's runner can train under a name of its own.

    Register an instance in the entry-point group ``pdebench.models``; the entry point's name is
    what users pass as ``++args.model_name``. Results are named after it, ``<data>_my-model.pt``.

    Parameters
    ----------
    family : {"unet", "fno"}
        Whose trainer, data layout and call the model follows. "unet": called with
        (B, in_channels * initial_step, \\*grid), returns (B, out_channels, \\*grid). "fno": called
        with (B, \\*grid, initial_step * num_channels) and the coordinates (B, \\*grid, axes),
        returns (B, \\*grid, 1, num_channels).
    build : callable
        ``build(ndim, host, options)`` returns the `torch.nn.Module` for ``ndim`` space axes.
        ``host`` holds PDEBench's constructor keywords ("unet": ``in_channels, out_channels``;
        "fno": ``num_channels, width, initial_step`` and ``modes`` or ``modes1, modes2, ...``),
        ``options`` what the user set under ``args.<options_key>``.
    options_key : str
        Where users set the model's options: ``++args.<options_key>.<option>=<value>``.
    defaults : mapping
        The known options and their defaults. Other options are errors; those that differ from
        their default become part of the names of the results.
    check : callable, optional
        ``check(options)`` raises ValueError for bad values, before any data is read.
    defaults_beside : callable, optional
        ``defaults_beside(options)`` returns the defaults that hold where these options are set,
        for models where one option changes the defaults of others; same keys as `defaults`, which
        hold where nothing is set.

    Examples
    --------
    In a package's ``pyproject.toml``::

        [project.entry-points."pdebench.models"]
        my_model = "my_package.pdebench:my_model"

    and in ``my_package/pdebench.py``::

        def build(ndim, host, options):
            return MyModel(ndim, host["in_channels"], host["out_channels"], **options)

        my_model = HostModel(family="unet", build=build, options_key="my", defaults={"depth": 4})
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
        """All options, of those that the user set."""
        return {**self.defaults_of(options), **options}

    def defaults_of(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The defaults that hold beside the options that the user set."""
        return self.defaults if self.defaults_beside is None else self.defaults_beside(options)
