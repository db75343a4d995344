"""The kernels beside solves, run by Triton's interpreter on the CPU, against PyTorch's operations
in float64; their launches are counted, and they are compiled without a GPU.

The interpreter is chosen when Triton is first imported: the checks run in a process of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.flop_counter import FlopCounterMode

from chonn_ops import CHONNNetwork2d, CHONNRollout2d, NetworkCell

# Steps, words, distances and gains of circuits of grids.
DISTANCES = (0.5, 0.25), (0.4, 0.1), (0.3, 0.7)
GEOMETRY = ((0.3, 0.4), ("robin", "periodic"), DISTANCES[:2], (0.8, 0.4, 1.5))

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def _taken():
    from chonn_ops.nn.fused import functions

    return mock.patch.object(functions, "takes", return_value=True)


def _rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _weights(x):
    return torch.linspace(-1, 2, x.numel(), dtype=x.dtype).reshape(x.shape)


def _differentiated(call, inputs, needed):
    """Outputs, gradients, and gradients of the gradients' squares."""
    outputs = call(*inputs)
    wanted = [x for x, need in zip(inputs, needed, strict=True) if need]
    total = torch.stack([(x * _weights(x)).sum() + x.square().sum() for x in outputs]).sum()
    first = torch.autograd.grad(total, wanted, create_graph=True)
    plain = torch.autograd.grad(total, wanted, retain_graph=True)
    second = torch.autograd.grad(torch.stack([x.square().sum() for x in first]).sum(), wanted)
    return [x.detach() for x in (*outputs, *first, *plain, *second)]


def check_function(name, inputs, constants, dtypes=None):
    """Values and derivatives in the maximum norm."""
    from chonn_ops.nn.fused import functions
    from chonn_ops.nn.fused import torch as operations

    given = [x if x is None else x.clone() for x in inputs]
    if dtypes:
        given = [x if x is None else x.to(d) for x, d in zip(given, dtypes, strict=True)]
    needed = [x is not None for x in given]
    wide = [x if x is None else x.double().requires_grad_() for x in given]
    given = [x if x is None else x.requires_grad_() for x in given]
    right = _differentiated(lambda *x: getattr(operations, name)(*x, *constants), wide, needed)
    with _taken():
        found = _differentiated(lambda *x: functions._call(name, x, constants), given, needed)
    assert len(found) == len(right)
    for actual, expected in zip(found, right, strict=True):
        tolerance = 1e-5 if actual.dtype == torch.float32 and dtypes is None else 3e-2
        assert (actual - expected).abs().max() <= tolerance * (expected.abs().max() + 1e-30)


@needs_triton
@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 3, 4, 5, 6), (1, 2050)])
def test_bounded_sum(interpreted, shape):
    interpreted(check_function, "bounded_sum", (_rand(*shape), 3 * _rand(*shape, seed=1)), (2.0,))


@needs_triton
@pytest.mark.parametrize(("rows", "width", "outputs"), [(130, 5, 3), (1, 24, 48), (70, 40, 17)])
@pytest.mark.parametrize("silu", [False, True])
def test_linear(interpreted, rows, width, outputs, silu):
    x, weight, bias = _rand(rows, width), _rand(outputs, width, seed=1), _rand(outputs, seed=2)
    for given in (bias, None):
        interpreted(check_function, "linear", (given, weight, x), (1.5, silu))


def check_field_that_goes_on():
    """The gradients of a map's output, of the field that goes on, and of both, of some inputs."""
    from chonn_ops.nn.fused import functions

    fields = (_rand(2, 3, 5), _rand(4, 5, seed=1), _rand(4, seed=2))
    for ends, wanted in itertools.product(([0], [1], [0, 1]), ([0], [1], [0, 1, 2])):
        found = []
        for kernels in (_taken(), contextlib.nullcontext()):
            inputs = [x.clone().requires_grad_(i in wanted) for i, x in enumerate(fields)]
            with kernels:
                made = functions.linear(*inputs, gain=1.5, silu=True)
            loss = torch.stack([made[end].square().sum() for end in ends]).sum()
            if loss.requires_grad:
                of = [inputs[i] for i in wanted]
                options: Any = dict.fromkeys(("allow_unused", "materialize_grads"), True)
                found.append(torch.autograd.grad(loss, of, **options))
        if len(found) == 2:
            torch.testing.assert_close(*found)


@needs_triton
def test_field_that_goes_on(interpreted):
    interpreted(check_field_that_goes_on)


@pytest.mark.parametrize("why", ["autocast", "wide", "half", "double"])
def test_products_of_pytorch(why):
    from chonn_ops.nn.fused import functions

    width, dtype = 65 if why == "wide" else 5, {"half": torch.bfloat16, "double": torch.float64}
    layer = torch.nn.Linear(width, 3, dtype=dtype.get(why))
    x = torch.ones(2, width, dtype=layer.weight.dtype)
    with torch.autocast("cpu", enabled=why == "autocast"), _taken():
        assert torch.equal(functions.linear(x, layer.weight, layer.bias)[0], layer(x))
    with _taken(), mock.patch.object(functions, "_Kernel", None), pytest.raises(AttributeError):
        functions.linear(torch.ones(2, 5), torch.ones(3, 5), None)


@needs_triton
@pytest.mark.parametrize("rows", [1, 300])
def test_gated(interpreted, rows):
    interpreted(check_function, "gated", (_rand(rows, 7), 3 * _rand(rows, 7, seed=1)), ())


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(interpreted, dtype):
    """As under autocast: what is added is half, what it is added to is not."""
    inputs = (_rand(3, 5, 7), _rand(3, 5, 7, seed=1))
    interpreted(check_function, "bounded_sum", inputs, (2.0,), (torch.float32, dtype))
    inputs = (0.1 * _rand(3, 5, 7), 0.1 * _rand(7, seed=1))
    interpreted(check_function, "conductivity", inputs, (8.0,), (dtype, torch.float32))
    inputs = (_rand(30, 7), _rand(30, 7, seed=1))
    interpreted(check_function, "gated", inputs, (), (torch.float32, dtype))


@needs_triton
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("channels", [1, 5, 8])
def test_conductivity(interpreted, scale, channels):
    inputs = (scale * _rand(2, 9, 11, channels), scale * _rand(channels, seed=1))
    interpreted(check_function, "conductivity", inputs, (8.0,))


@needs_triton
@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ((5,), ("robin",)),
        ((5, 6), ("robin", "periodic")),
        ((1, 7), ("robin", "neumann")),
        ((30, 37), ("neumann", "periodic")),
        ((2, 2), ("dirichlet", "dirichlet")),
        ((3, 4, 5), ("dirichlet", "robin", "periodic")),
    ],
)
@pytest.mark.parametrize("channels", [1, 5])
def test_circuits_of_grids(interpreted, grid, words, channels):
    k = torch.exp(2 * _rand(2, *grid, channels))
    mean, wall, leak = _rand(3, channels, seed=1).unbind()
    steps = tuple(0.3 + 0.1 * axis for axis in range(len(grid)))
    inputs = (k, mean, wall if "robin" in words else None, leak)
    constants = (steps, words, DISTANCES[: len(grid)], GEOMETRY[3])
    interpreted(check_function, "grid_circuit", inputs, constants)


def check_selection():
    """The check that a GPU has to pass before its kernels are selected, which compares a sum of a
    field with itself."""
    from chonn_ops.nn.fused.functions import BACKENDS

    for default in (torch.float32, torch.bfloat16):
        torch.set_default_dtype(default)
        try:
            assert not BACKENDS._difference(torch.device("cpu"))
        finally:
            torch.set_default_dtype(torch.float32)


@needs_triton
def test_kernels_pass_their_check(interpreted):
    interpreted(check_selection)


def check_gradients_by_operations():
    """Gradients that the kernels leave to PyTorch's operations: those of a graph, where an input is
    computed from another one; mapped ones; and those with tangents."""
    from torch.autograd import forward_ad

    from chonn_ops.nn.fused import functions

    h, unit = _rand(3, 4).requires_grad_(), torch.eye(12).reshape(12, 3, 4)

    def gradients():
        y = functions.bounded_sum(h, 3 * torch.sin(h), 2.0)
        yield torch.autograd.grad(y, h, unit[0], retain_graph=True)[0]
        yield torch.autograd.grad(y, h, unit[0], create_graph=True)[0]
        yield torch.autograd.grad(y, h, unit, is_grads_batched=True, retain_graph=True)[0]
        yield torch.vmap(lambda row: torch.autograd.grad(y, h, row, retain_graph=True)[0])(unit)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(torch.ones_like(y), unit[0])
            yield forward_ad.unpack_dual(torch.autograd.grad(y, h, dual)[0]).tangent

    right = list(gradients())
    with _taken():
        found = list(gradients())
    for actual, expected in zip(found, right, strict=True):
        torch.testing.assert_close(actual, expected)


@needs_triton
def test_gradients_by_operations(interpreted):
    interpreted(check_gradients_by_operations)


def check_gradients_of_some():
    """Gradients of some inputs from those of some outputs, of which each depends on some inputs."""
    from chonn_ops.nn.fused import functions

    circuit: Any = functions.grid_circuit
    fields = (torch.exp(_rand(2, 3, 4, 2)), *_rand(3, 2, seed=1).unbind())
    for wanted in ([0], [1], [2], [3], [0, 1, 2, 3]):
        inputs = [x.clone().requires_grad_(i in wanted) for i, x in enumerate(fields)]
        for ends in ([0], [2], [3], [0, 1, 2]):
            found = []
            for kernels in (_taken(), contextlib.nullcontext()):
                with kernels:
                    edges, total, wall = circuit(*inputs, *GEOMETRY)
                made = [(*edges, total, wall)[end] for end in ends]
                loss = torch.stack([x.square().sum() for x in made]).sum()
                if not loss.requires_grad:
                    continue
                of = [inputs[i] for i in wanted]
                options = dict.fromkeys(("create_graph", "allow_unused", "materialize_grads"), True)
                found.append(torch.autograd.grad(loss, of, **options))
            if len(found) == 2:
                torch.testing.assert_close(*found)


@needs_triton
def test_gradients_of_some(interpreted):
    interpreted(check_gradients_of_some)


def check_strides():
    """Expanded and strided fields, and numbers of the channels with strides, as parameters have
    that were cut from larger ones."""
    from chonn_ops.nn.fused import functions

    circuit: Any = functions.grid_circuit
    for k in (_rand(2, 3, 4, 5).exp().movedim(1, -1), torch.full((1,), 2.0).expand(2, 3, 4, 3)):
        numbers = _rand(2 * k.shape[-1], 3)[::2].unbind(1)
        weight = _rand(8, k.shape[-1])[::2]

        def made(k=k, numbers=numbers, weight=weight):
            inputs = [x.detach().requires_grad_() for x in (k, *numbers)]
            edges, total, _ = circuit(*inputs, *GEOMETRY)
            added = functions.bounded_sum(inputs[0].mT, inputs[0].mT, 2.0)
            outputs = (*edges, total, added, functions.conductivity(inputs[0], inputs[1], 8.0))
            outputs += (functions.linear(inputs[0], weight, weight[:, 0], 2.0)[0],)
            outputs += functions.linear(inputs[0][..., 1:], weight[:, 1:], None, silu=True)
            outputs += (functions.gated(inputs[0][..., 1:], inputs[0][..., 1:]),)
            loss = torch.stack([x.square().sum() for x in outputs]).sum()
            return [*outputs, *torch.autograd.grad(loss, inputs)]

        right = made()
        with _taken():
            found = made()
        for actual, expected in zip(found, right, strict=True):
            assert (actual - expected).abs().max() <= 1e-5 * expected.abs().max()


@needs_triton
def test_strides(interpreted):
    interpreted(check_strides)


def check_nan():
    """A NaN or an infinity in stays one."""
    from chonn_ops.nn.fused import functions
    from chonn_ops.nn.fused import torch as operations

    x = torch.tensor([[torch.nan, torch.inf, -torch.inf, 1e30, -1e-30]])
    with _taken():
        found = functions.bounded_sum(x.nan_to_num(), x, 2.0)
        k = functions.conductivity(x, x[0].nan_to_num(), 8.0)
    torch.testing.assert_close(
        found, operations.bounded_sum(x.nan_to_num(), x, 2.0)[0], equal_nan=True
    )
    expected = operations.conductivity(x, x[0].nan_to_num(), 8.0)[0]
    torch.testing.assert_close(k, expected, equal_nan=True, rtol=1e-5, atol=0)
    # Each row has numbers of one size, as tensor cores' three products are not those of one.
    x = torch.tensor([-1e5, 1e5, torch.nan, 3.0, torch.inf]).repeat(3, 1).T.contiguous()
    weight = _rand(4, 3).requires_grad_()

    def made():
        leaf = x.clone().requires_grad_()
        y = functions.linear(leaf, weight, None, 2.0, silu=True)[0]
        return y, functions.gated(x, leaf), *torch.autograd.grad(y[[0, 1, 3]].sum(), [leaf, weight])

    expected = made()
    with _taken():
        found = made()
    for actual, right in zip(found, expected, strict=True):
        torch.testing.assert_close(actual, right, equal_nan=True, rtol=1e-5, atol=1e-5)


@needs_triton
def test_nan_stays(interpreted):
    interpreted(check_nan)


def _gradients(module, x) -> list[Tensor]:
    y = module(x)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), list(module.parameters()))]


def check_modules():
    """Cells and models with the kernels and without; strides of other layouts among the inputs."""
    from chonn_ops import CKB, Network
    from chonn_ops.nn.fused import triton as kernels

    torch.manual_seed(0)
    cases: list[tuple[Any, Tensor]] = [
        (CHONNRollout2d(1, history=2), torch.randn(2, 9, 8, 2).movedim(-1, 1))
    ]
    for axes, boundary in ((1, "periodic"), (2, ("robin", "periodic")), (3, "dirichlet")):
        grid = torch.randn(2, *(4, 5, 3)[:axes], 4)
        cases.append((NetworkCell(4, axes, Network(num_networks=3), boundary=boundary), grid))
    cases.append((NetworkCell(4, 2, Network(selective=False)), torch.randn(2, 4, 5, 4)))
    cases.append((CKB(4, 2, cell=Network(nodes="corners")), torch.randn(2, 4, 5, 6)))
    for module, x in cases:
        expected, launches = _gradients(module, x), []
        launch = kernels._launch

        def counted(*args, launch=launch, launches=launches, **constants):
            launches.append(args[0])
            launch(*args, **constants)

        with _taken(), mock.patch.object(kernels, "_launch", counted):
            found = _gradients(module, x)
        assert launches
        for actual, right in zip(found, expected, strict=True):
            # Solves stop at 1e-3 of the residual where they are iterated, which these are not.
            torch.testing.assert_close(
                actual, right, rtol=2e-4, atol=2e-5 * float(right.abs().max())
            )


@needs_triton
def test_modules(interpreted):
    interpreted(check_modules)


def _launches(smoke: bool) -> list:
    """Kernel, arguments and constants of a training step's launches."""
    from chonn_ops.nn.fused import triton as kernels

    noted = []

    def note(kernel, grid, *args, warps=4, **constants):
        del grid
        noted.append((kernel, args, constants, warps))

    model = CHONNRollout2d(1, boundary="robin")
    given = mock.patch.object(torch, "empty_like", torch.ones_like)  # what no kernel writes
    with _taken(), given, mock.patch.object(kernels, "_launch", note):
        n = 8 if smoke else 64
        model(torch.randn(1, 2, n, n)).sum().backward()
    return noted


@needs_triton
def test_launches():
    """A layer takes twelve forward, and as many back: seven linear maps, a gate, circuits,
    conductivities, two sums. Lift, readout and displacement take a linear map."""
    names = [kernel.__name__ for kernel, *_ in _launches(smoke=True)]
    assert len(names) == 2 * (2 * 12 + 3)


@needs_triton
@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="Triton interprets")
@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_compile(compile_triton, capability):
    """What the interpreter lets pass and the compiler does not; needs no GPU."""
    kinds = {torch.float32: "*fp32"}
    done = set()
    for kernel, args, constants, warps in _launches(smoke=False):
        if (key := (kernel.__name__, str(constants))) in done:
            continue
        done.add(key)
        names = [x for x in kernel.arg_names if x not in constants]
        types = {
            n: kinds[x.dtype] if torch.is_tensor(x) else "fp32" if isinstance(x, float) else "i32"
            for n, x in zip(names, args, strict=True)
        }
        aligned = [n for n, kind in types.items() if kind[0] == "*"]
        found = compile_triton(kernel, types, aligned, constants, warps, capability)
        registers, spilled, _ = found
        assert not spilled, (key, found)
        # Programs of matrix products may need all 255 that there are.
        assert registers <= (255 if "PRECISION" in constants else 224), (key, found)


def test_cells_on_the_cpu_leave_triton_alone():
    command = (
        "import sys, torch; from chonn_ops import CHONNRollout2d\n"
        "CHONNRollout2d()(torch.ones(1, 2, 8, 8)).sum().backward()\n"
        "assert not {'triton', 'chonn_ops.nn.fused.triton'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", command], check=True)


def test_fake_tensors_and_exports_get_operations():
    """On a CUDA device whose tensors have no memory. Sizes stay free: a batch, too."""
    from chonn_ops.nn.fused import functions

    right = mock.patch.object(functions.BACKENDS, "check", return_value=True)
    with right, FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True):
        model, x = CHONNRollout2d(device="cuda"), torch.ones(2, 2, 6, 5, device="cuda")
        assert model(x).shape == (2, 1, 6, 5)
        batch = {0: torch.export.Dim("batch")}
        program = torch.export.export(model, (x,), dynamic_shapes=(batch,))
    assert program.range_constraints


@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA is not available")
@pytest.mark.parametrize("kind", [CHONNRollout2d, CHONNNetwork2d])
def test_on_cuda(kind):
    torch.manual_seed(0)
    model = kind()
    x = torch.randn(2, model.in_channels, 40, 33)
    expected = _gradients(model.double(), x.double())
    found = _gradients(model.float().cuda(), x.cuda())
    for actual, right in zip(found, expected, strict=True):
        error = (actual.cpu().double() - right).abs().max() / right.abs().max()
        assert error <= 1e-3


class OnCard:
    """As much of a tensor on a GPU as `takes` asks for."""

    dtype = torch.float32

    def __init__(self, device="cuda:0"):
        self.device = torch.device(device)

    def numel(self):
        return 1


def test_kernels_take_fields_of_one_device_unless_another_backend_is_chosen(monkeypatch):
    from chonn_ops.nn.fused import functions

    monkeypatch.setattr(functions, "_CLASSES", (OnCard,))
    monkeypatch.setattr(functions, "has_tangents", lambda *_: False)
    monkeypatch.setattr(functions, "has_triton", lambda: True)
    monkeypatch.setattr(functions.BACKENDS, "check", lambda _: True)
    monkeypatch.delenv("CHONN_NETWORK_BACKEND", raising=False)
    assert functions.takes(None, OnCard(), OnCard())
    assert not functions.takes(OnCard(), OnCard("cpu"))
    assert not functions.takes(OnCard("cpu"), OnCard())
    assert not functions.takes(OnCard(), OnCard("cuda:1"))
    with FlopCounterMode(display=False):  # which counts no products of kernels
        assert not functions.takes(OnCard())
    for name, taken in (("triton", True), ("torch", False), ("reference", False)):
        monkeypatch.setenv("CHONN_NETWORK_BACKEND", name)
        assert functions.takes(OnCard()) == taken
