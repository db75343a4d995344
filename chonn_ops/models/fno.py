"""Fourier neural operators as the trunk of a circuit head, or with a cascaded Kirchhoff block in
their first layer.

The plain network is PDEBench's FNO (pdebench/models/fno/fno.py, MIT, after
zongyi-li/fourier_neural_operator; Li et al., "Fourier Neural Operator for Parametric Partial
Differential Equations", ICLR 2021). Module names and creation order, and so the parameters, are the
same: with ``order=0`` a PDEBench checkpoint loads, and the same seed gives the same weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops._dtypes import at_least_float32
from chonn_ops.checks import GRID_AXES, as_field, check_integer, error
from chonn_ops.models.geometry import Box, grid_geometry
from chonn_ops.models.pretrained import Pretrained
from chonn_ops.models.trunks import NETWORKS, check_ckb
from chonn_ops.nn import CKB, CKBOptions
from chonn_ops.nn.geometry import Nodes
from chonn_ops.nn.layers import CONV, Factory

LAYERS = 4
AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
INTERPOLATION = {1: "linear", 2: "bilinear", 3: "trilinear"}

# PDEBench pads non-periodic fields at the end of these many trailing axes by these many points.
PADDING = {1: (1, 2), 2: (2, 2), 3: (1, 6)}


class SpectralConv(nn.Module):
    """Linear map of the lowest Fourier modes of a field (B, C, \\*grid), `modes` along each axis:
    of both signs, and of one sign along the last axis."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        modes: tuple[int, ...],
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.out_channels, self.modes = out_channels, modes
        # One weight for every corner of the spectrum, named weights1, weights2, ...; the first
        # axis changes sign fastest.
        self.corners = [signs[::-1] for signs in itertools.product((1, -1), repeat=len(modes) - 1)]
        scale = 1 / (in_channels * out_channels)
        kind = torch.promote_types(dtype or torch.float32, torch.float32).to_complex()
        for index in range(len(self.corners)):
            weight = torch.rand(in_channels, out_channels, *modes, device=device, dtype=kind)
            self.register_parameter(f"weights{index + 1}", nn.Parameter(scale * weight))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SpectralConv:
        """Convert the weights as real weights are: `Module.to(dtype)` would drop their imaginary
        parts, and `Module.double` leave them as they are."""

        def convert(weight: Tensor) -> Tensor:
            real = weight.real
            converted = fn(real)
            if converted is real:  # it stays where it is
                return weight
            return torch.complex(at_least_float32(converted), at_least_float32(fn(weight.imag)))

        return super()._apply(convert, recurse)

    def forward(self, x: Tensor) -> Tensor:
        grid = x.shape[2:]
        axes = tuple(range(-len(grid), 0))
        # There is no FFT in bfloat16: autocast regions transform in float32.
        spectrum = torch.fft.rfftn(at_least_float32(x), dim=axes)
        resolved = tuple(spectrum.shape[2:])
        if any(m > most for m, most in zip(self.modes, resolved, strict=True)):
            most = f"at most {resolved} on a (padded) grid of {tuple(grid)}"
            raise error("modes", most, self.modes)
        out = spectrum.new_zeros(x.shape[0], self.out_channels, *resolved)
        *two_sided, one_sided = self.modes
        for index, signs in enumerate(self.corners):
            weight: Tensor = getattr(self, f"weights{index + 1}")
            corner = [
                slice(0, m) if sign > 0 else slice(-m, None)
                for m, sign in zip(two_sided, signs, strict=True)
            ]
            where = (..., *corner, slice(0, one_sided))
            out[where] = torch.einsum("bi...,io...->bo...", spectrum[where], weight)
        return torch.fft.irfftn(out, s=grid, dim=axes).to(x.dtype)


class DownsampledCKB(nn.Module):
    """A CKB that runs on a coarser grid; the residual path keeps full resolution.

    ``Y = X + up(CKB(pool(X)) - pool(X))`` with average pooling by `factor` along every axis and
    linear interpolation: the paper's "downsampling factor" in its shallow-water branch; the filters
    are our choice.
    """

    def __init__(self, ckb: nn.Module, factor: int) -> None:
        super().__init__()
        self.ckb, self.factor = ckb, factor

    def forward(self, x: Tensor) -> Tensor:
        dims = x.ndim - 2
        coarse = AVG_POOL[dims](x, self.factor, ceil_mode=True)
        change = self.ckb(coarse) - coarse
        return x + F.interpolate(change, size=x.shape[2:], mode=INTERPOLATION[dims])


class CHONNFNO(Pretrained):
    """FNO over as many axes as there are mode counts; the base of `CHONNFNO2d` and its kin."""

    def __init__(
        self,
        num_channels: int,
        modes: tuple[int, ...],
        width: int,
        initial_step: int,
        *,
        padding: int | None = None,
        in_channels: int | None = None,
        box: Box | None = None,
        boundary: Any = "robin",
        nodes: Nodes = "centres",
        ckb: CKBOptions | None = None,
        downsample: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_integer(1, num_channels=num_channels, width=width, initial_step=initial_step)
        check_integer(1, downsample=downsample)
        if padding is not None:
            check_integer(0, padding=padding)
        dims = len(modes)
        for axis, count in enumerate(modes, 1):
            check_integer(1, **{"modes" if dims == 1 else f"modes{axis}": count})
        check_ckb(ckb, boundary=boundary, nodes=nodes, downsample=downsample)
        self.spatial_dims, self.box = dims, box
        self.in_channels = initial_step * num_channels if in_channels is None else in_channels
        check_integer(1, in_channels=self.in_channels)
        padded_axes, points = PADDING[dims]
        points = points if padding is None else padding
        self.pad = [0, points] * padded_axes
        self.interior = (..., *[slice(0, -points or None)] * padded_axes)

        factory: Factory = {"device": device, "dtype": dtype}
        self.network: Any = None
        if ckb is None:
            plain: Any = {"padding": padding, "in_channels": self.in_channels, **factory}
            fno = CHONNFNO(width, modes, width, initial_step, ckb=CKBOptions(order=0), **plain)
            head: Any = {"boundary": boundary, "nodes": nodes, **factory}
            sizes = self.in_channels, num_channels, width
            self.network = NETWORKS[dims](*sizes, trunk=_Trunk(fno), **head)
            return
        self.fc0 = nn.Linear(self.in_channels + dims, width, **factory)
        for layer in range(LAYERS):
            self.add_module(f"conv{layer}", SpectralConv(width, width, modes, **factory))
        for layer in range(LAYERS):
            self.add_module(f"w{layer}", CONV[dims](width, width, 1, **factory))
        if dims == 3:
            # PDEBench's FNO3d has four batch norms that it never calls; its checkpoints have them.
            # `DistributedDataParallel` waits for the gradient of every parameter that wants one.
            for layer in range(LAYERS):
                unused = nn.BatchNorm3d(width, **factory).requires_grad_(False)
                self.add_module(f"bn{layer}", unused)
        self.fc1 = nn.Linear(width, 128, **factory)
        self.fc2 = nn.Linear(128, num_channels, **factory)

        # After all plain parameters, so that these draw the same random numbers as PDEBench's.
        if ckb.order:
            block = CKB(width, dims, **vars(ckb), **factory)
            self.w0 = DownsampledCKB(block, downsample) if downsample > 1 else block

    def stated(self) -> Mapping[str, Any]:
        """See `Stated`."""
        return {"padding": self.pad}

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        """Predict the next frame.

        Parameters
        ----------
        x : Tensor, shape (B, \\*grid, in_channels)
            Previous frames, channels last.
        grid : Tensor, shape (B, \\*grid, number of axes)
            Coordinates in any unit. A circuit head takes the spacing of the points from them, and
            the distance of the walls, see `box`.

        Returns
        -------
        Tensor, shape (B, \\*grid, 1, num_channels)

        Raises
        ------
        ValueError
            For another number of axes or channels, a dtype that the parameters do not have, or
            more modes than the padded grid resolves.
        """
        axes = GRID_AXES[: self.spatial_dims]
        x = as_field("x", x, self.parameters(), "B", *axes, self.in_channels)
        grid = as_field("grid", grid, self.parameters(), *x.shape[:-1], self.spatial_dims)
        if self.network is not None:
            geometry, _ = grid_geometry(grid, self.network.head.nodes, self.box)
            return self.network(x.movedim(-1, 1), **geometry).movedim(1, -1).unsqueeze(-2)
        h = self.fc0(torch.cat((x, grid), dim=-1)).movedim(-1, 1)
        h = F.pad(h, self.pad)
        for layer in range(LAYERS):
            out = self.get_submodule(f"conv{layer}")(h) + self.get_submodule(f"w{layer}")(h)
            h = F.gelu(out) if layer < LAYERS - 1 else out
        h = h[self.interior].movedim(1, -1)
        return self.fc2(F.gelu(self.fc1(h))).unsqueeze(-2)

    def calibrate(self, x: Tensor, y: Tensor, grid: Tensor) -> Tensor:
        """See `CHONNNetwork2d.calibrate`; all as `forward` takes and returns it. A ValueError with
        `ckb`, which leaves no circuit head."""
        if self.network is None:
            raise ValueError("calibrate: expected a model without `ckb`, whose head is a circuit")
        geometry, _ = grid_geometry(grid, self.network.head.nodes, self.box)
        return self.network.calibrate(x.movedim(-1, 1), y.squeeze(-2).movedim(-1, 1), **geometry)


class _Trunk(nn.Module):
    """A plain FNO of channels-last fields that end with the coordinates."""

    coordinates = True

    def __init__(self, fno: CHONNFNO) -> None:
        super().__init__()
        self.fno = fno

    def forward(self, x: Tensor) -> Tensor:
        return self.fno(*x.tensor_split((self.fno.in_channels,), -1)).squeeze(-2)


class CHONNFNO1d(CHONNFNO):
    """PDEBench's ``FNO1d`` with circuits: call with (x, grid). Parameters as `CHONNFNO2d`."""

    def __init__(
        self,
        num_channels: int,
        modes: int = 16,
        width: int = 64,
        initial_step: int = 10,
        **keywords: Any,
    ) -> None:
        super().__init__(num_channels, (modes,), width, initial_step, **keywords)


class CHONNFNO2d(CHONNFNO):
    """PDEBench's ``FNO2d`` with circuits: call with (x, grid).

    The FNO is the trunk of a `CHONNNetwork2d`: its features set the elements of one circuit an
    output, whose potential is the output. `calibrate` takes units and first parameters from some
    data, as there.

    Parameters
    ----------
    num_channels : int
        Channels of one frame.
    modes1, modes2 : int
        Fourier modes kept along each axis.
    width : int
        Hidden channels.
    initial_step : int
        Frames given as input.
    padding : int, optional
        Points of zeros at the end of the padded axes; default PDEBench's. Set 0 for periodic
        fields, which must close where the field does.
    in_channels : int, optional
        Channels of the input, where it is not `initial_step` frames alone.
    box : sequence of (low, high), one an axis, optional
        Coordinates of the domain's walls. Default: as the coordinates of a call show them
        (`chonn_ops.models.geometry.read_box`), or else `nodes`; a warning says what was assumed.
    boundary, nodes
        As in `CHONNNetwork2d`.
    ckb : CKBOptions, optional
        In place of the circuit head: ``CKBOptions("scan")`` is the paper's form, an FNO with a
        block in place of the first layer's pointwise branch ``w0``, and ``CKBOptions(order=0)``
        the plain FNO, parameter for parameter.
    downsample : int
        Coarsening of the grid inside the block of `ckb` (the paper's shallow water uses 2).
    device, dtype
        As in `torch.nn`.

    Raises
    ------
    ValueError
        For unfit options, and blocks of networks: the circuit head has their place.
    """

    def __init__(
        self,
        num_channels: int,
        modes1: int = 12,
        modes2: int = 12,
        width: int = 20,
        initial_step: int = 10,
        **keywords: Any,
    ) -> None:
        super().__init__(num_channels, (modes1, modes2), width, initial_step, **keywords)


class CHONNFNO3d(CHONNFNO):
    """PDEBench's ``FNO3d`` with circuits: call with (x, grid). Parameters as `CHONNFNO2d`."""

    def __init__(
        self,
        num_channels: int,
        modes1: int = 8,
        modes2: int = 8,
        modes3: int = 8,
        width: int = 20,
        initial_step: int = 10,
        **keywords: Any,
    ) -> None:
        super().__init__(num_channels, (modes1, modes2, modes3), width, initial_step, **keywords)
