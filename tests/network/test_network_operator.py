"""The operator as PyTorch sees it: every derivative, opcheck, compile, export, vmap, autocast."""

import io
import warnings

import commands
import pytest
import torch
from network_cases import BACKENDS, FASTEST, factorize, make_network, solve_network, solver_of
from scan_cases import within
from torch.autograd import forward_ad
from torch.library import opcheck

from chonn_ops import Auto, Grid, Robin, diffusion, kirchhoff_scan
from chonn_ops.network.direct.elimination import predicted_bytes

EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)


def test_gradients_at_the_edge_of_what_is_allowed_are_finite():
    """No film, no leak, no edge, no conductivity: zeros in every formula."""
    source, film = torch.tensor([[[0.0], [0.0], [1.0]]]), torch.zeros((), requires_grad=True)
    leak, k = (torch.tensor([[[0.0], [0.0], [1.0]]]).requires_grad_() for _ in range(2))
    circuits = [diffusion(k, boundary=x, absorption=leak) for x in (Robin(film), "matched")]
    v = circuits[0].solve(source) + circuits[1].solve(source)
    assert all(x.isfinite().all() for x in torch.autograd.grad(v.sum(), (leak, k, film)))
    v = diffusion(torch.ones(1, 3, 1), boundary=Robin(film), absorption=leak).solve(0 * source + 1)
    assert torch.autograd.grad(v.sum(), film)[0] < 0  # a film that begins to conduct is felt


@pytest.mark.thorough
@EACH_BACKEND
@pytest.mark.parametrize(
    ("dtype", "grid", "periodic"),
    [
        (torch.float64, (6,), [True]),
        (torch.bfloat16, (4, 3), [False, True]),
        (torch.float32, (3, 2, 2), [False] * 3),
    ],
    ids=str,
)
def test_opcheck(backend, dtype, grid, periodic):
    operator = torch.ops.chonn_ops.kirchhoff_network.default
    loose = within(0.05) if dtype == torch.bfloat16 else {}
    source, conductance, leak = make_network(grid, dtype=dtype)
    leaves = [x.requires_grad_() for x in (source, *conductance, leak)]
    source, *conductance, leak = leaves
    g0, g1, g2 = (*conductance, None, None)[:3]
    opcheck(operator, (source, g0, g1, g2, leak, periodic, 1e-4, 50, backend), **loose)


@pytest.mark.parametrize("place", range(4))
def test_the_bare_operator_refuses_tensors_of_other_shapes(place):
    """Kernels read by address, also where a tensor has no element."""
    for shape in ((1, 0, 2, 1), (1, 3, 1, 1), (0, 3, 2, 1)):
        given = [torch.ones(1, 3, 2, 1) for _ in range(4)]
        given[place] = torch.ones(shape)
        source, g0, g1, leak = given
        with pytest.raises(ValueError, match="expected shape"):
            torch.ops.chonn_ops.kirchhoff_network(
                source, g0, g1, None, leak, [False, False], 1e-5, 50, ""
            )


def _args():
    source, conductance, leak = make_network((3, 2), B=1, C=1)
    return (source, *conductance, leak)


@pytest.mark.parametrize("method", ["direct", "multigrid"])
@pytest.mark.parametrize("at_frequency", [False, True])
def test_exported_programs_have_derivatives_of_both_modes(method, at_frequency):
    """PyTorch's own rule for operators loses tangents: they were 0, in silence."""
    if at_frequency and method == "multigrid":
        pytest.skip("complex networks are eliminated")
    args = [x * (1 + 0.3j) if at_frequency else x for x in _args()]

    def solve(source, *rest):
        return solve_network(source, rest[:-1], rest[-1], solver_of(method))

    class Solve(torch.nn.Module):
        def forward(self, *args):
            return torch.view_as_real(solve(*args)) if at_frequency else solve(*args)

    module, tangents = Solve(), tuple(torch.sin(7 * x) for x in args)
    program = torch.export.export(module, tuple(args)).module()
    expected = torch.func.jvp(module, tuple(args), tangents)[1]
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip(args, tangents, strict=True)]
        torch.testing.assert_close(forward_ad.unpack_dual(program(*duals)).tangent, expected)
    leaves = [x.clone().requires_grad_() for x in args]
    found, right = (torch.autograd.grad(f(*leaves).sin().sum(), leaves) for f in (program, module))
    torch.testing.assert_close(found, right, rtol=0, atol=1e-8)
    with pytest.raises(NotImplementedError, match=r"torch[.]func differentiates no networks of"):
        torch.func.jvp(program, tuple(args), tangents)


class _Darcy(torch.nn.Module):
    def forward(self, source, conductivity, wall):
        faces = (Robin(wall), (Robin(wall), "dirichlet"))
        spacing = (1 / source.shape[1], 0.5)  # which follows from the size
        v, info = diffusion(conductivity, spacing, boundary=faces).solve_with_info(source)
        return v, info.backward_error


@pytest.mark.thorough
def test_export_with_dynamic_batch_and_sizes():
    def inputs(B, H, W, C):
        source, (k, _), _ = make_network((H, W), B=B, C=C, dtype=torch.float32)
        return source, k, torch.ones(C)

    names = ("batch", "height", "width", "channels")
    # PyTorch 2.6 finds two channels special.
    least = (1, 2, 2, 1 if torch.__version__ >= "2.7" else 3)
    sizes = {dim: torch.export.Dim(name, min=least[dim], max=64) for dim, name in enumerate(names)}
    shapes = (sizes, sizes, {0: sizes[3]})
    program = torch.export.export(_Darcy(), inputs(2, 4, 5, 3), dynamic_shapes=shapes).module()
    for size in ((1, 2, 9, least[3]), (5, 12, 3, 4)):
        case = inputs(*size)
        torch.testing.assert_close(program(*case), _Darcy()(*case))


@EACH_BACKEND
def test_one_float64_input_makes_the_solve_float64(backend):
    source, conductance, leak = make_network((6, 7), dtype=torch.float32)
    options = {"solver": Auto(1e-12), "info": True, "backend": backend}
    v, info = solve_network(source, conductance, leak.double(), **options)
    assert v.dtype == torch.float32
    assert 1e-9 < info.backward_error.max() < 1e-7  # of the potentials as they were rounded
    _, info = solve_network(source.double(), conductance, leak, **options)
    assert info.backward_error.max() < 1e-11


PEAK = """
import resource, sys
import torch
from chonn_ops import Circuit, Direct, Grid, Iterative
torch.set_num_threads(2)
SOLVERS = {"multigrid": Iterative(), "direct": Direct()}

def solve(B, n, C):
    source, g0, g1, leak = [torch.rand(B, n, n, C).add_(0.1).requires_grad_() for _ in range(4)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    circuit = Circuit((g0, g1), leak, on=Grid((n, n)))
    circuit.solve(source, SOLVERS[sys.argv[1]]).sum().backward()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024

solve(1, 16, 8)
print(solve(4, 128, 64))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("method", "fields"), [("multigrid", 12), ("direct", 24)])
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name == "cpu"])
def test_peak_memory_of_forward_and_backward(backend, method, fields):
    """Elimination also keeps the forward's factors for the backward."""
    pytest.importorskip("resource")
    peak = int(commands.python(PEAK, method, env={"CHONN_NETWORK_BACKEND": backend}).stdout)
    grid, networks = (128, 128), 4 * 64
    factors = predicted_bytes(Grid(grid), networks, torch.float32)
    field = 4 * 128 * 128 * networks
    assert peak < fields * field + (factors if method == "direct" else 0)


def test_gradients_copy_little():
    """Beside the solves: potentials, gradients and what is on the way to one of them."""
    from torch.utils._python_dispatch import TorchDispatchMode

    leaves = [x.detach().float().requires_grad_() for x in _args()]
    v = solve_network(leaves[0], leaves[1:3], leaves[3], backend=FASTEST)
    seen = []

    class _Count(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            out = operator(*args, **(kwargs or {}))
            if operator._schema.returns and not operator.is_view:
                seen.append(operator)
            return out

    with _Count():
        torch.autograd.grad(v, leaves, torch.ones_like(v))
    assert len(seen) <= 16, seen


def test_traces_are_refused_in_a_sentence():
    """PyTorch's own message was an internal assertion, or of lists of bool."""
    ones = torch.ones(1, 4, 4, 1)

    class Module(torch.nn.Module):
        def __init__(self, function):
            super().__init__()
            self.forward = function

    for name, function in (
        ("Circuit.solve", lambda s: solve_network(s, (ones, ones), ones)),
        ("factorize", lambda s: factorize((s, s), s).solve(ones)),
        ("scan", lambda s: kirchhoff_scan(s[0], s[0], torch.ones(1, 2), *[s[0, ..., [0, 0]]] * 2)),
    ):
        sentence = f"{name}: expected a call outside torch.jit.trace.*torch.export"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch has deprecated it
            with pytest.raises(RuntimeError, match=sentence):
                torch.jit.trace(Module(function), (ones,))
            with pytest.raises(RuntimeError, match=sentence):
                torch.onnx.export(Module(function), (ones,), io.BytesIO(), dynamo=False)
