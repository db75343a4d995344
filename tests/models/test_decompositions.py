"""Programs that run without our operators: `decompositions`, AOTInductor and ONNX."""

import itertools

import commands
import pytest
import torch
from model_cases import BLOCKS, MODELS

from chonn_ops import Circuit, Direct, Graph, Grid, decompositions

NETWORK = torch.ops.chonn_ops.kirchhoff_network.default
GRIDS = [(1,), (2,), (5,), (16,), (4, 7), (6, 1), (1, 1), (2, 2), (9, 8), (3, 4, 5), (1, 4, 2)]


@pytest.mark.parametrize("onnx", [False, True])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_decomposed_networks_have_the_same_potentials(grid, onnx):
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.rand(shape, generator=generator)

    *g, leak = (10 ** (6 * random(2, *grid, 3) - 3) for _ in (*grid, 1))
    leak = 1e-3 * leak
    solve = decompositions(onnx=onnx)[NETWORK]
    for periodic in itertools.product((False, True), repeat=len(grid)):
        for source in (random(2, *grid, 3) - 0.5, random(2, 4, *grid, 3) - 0.5):
            double = [x.double() for x in g]
            circuit = Circuit(double, leak.double(), Grid(grid, periodic))
            expected = circuit.solve(source.double(), Direct())
            edges = [*g, *[None] * (3 - len(grid))]
            v, _, _ = solve(source, *edges, leak, list(periodic), 1e-5, 100, "")
            assert v.dtype == torch.float32
            assert (v - expected).abs().max() <= 1e-6 * expected.abs().max()


def test_nodes_outside_of_a_decomposed_network_have_potential_zero():
    ones = torch.ones(1, 3, 1)
    leak = torch.tensor([1.0, 2.0, 0.0])[None, :, None]
    solve = decompositions()[NETWORK]
    v, _, _ = solve(ones, 0 * ones, None, None, leak, [False], 1e-5, 100, "")
    assert v.flatten().tolist() == [1, 0.5, 0]


def exported(model, inputs, **options):
    """A decomposed program of any batch."""
    any_batch = ({0: torch.export.Dim.AUTO},) * len(inputs)
    with torch.no_grad():
        # AOTInductor compiles for the strides of these; those of expanded coordinates are 0.
        inputs = tuple(x.contiguous() for x in inputs)
        program = torch.export.export(model, inputs, dynamic_shapes=any_batch)
        return program.run_decompositions(decompositions(**options))


def larger(inputs):
    """Inputs of a batch of 3."""
    return tuple(torch.cat([1.1 * x, x])[:3] for x in inputs)


CASES = ["CKB of scans", "CKB of networks", "CHONNStep1d"]
CASES += [pytest.param(x, marks=pytest.mark.slow) for x in ("CHONNNetwork3d", "CNOUNet of scans")]


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_decomposed_programs_compute_the_same(name):
    build, (x,) = {**BLOCKS, **MODELS}[name]
    torch.manual_seed(0)
    model = build().eval()
    inputs = (torch.cat([x, 2 * x]),)
    program = exported(model, inputs)
    assert not [str(node) for node in program.graph.nodes if "chonn_ops" in str(node.target)]
    inputs = larger(inputs)
    with torch.no_grad():
        found, expected = program.module()(*inputs), model(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["CKB of scans", "CKB of networks"])
def test_dynamic_grids_are_refused(name):
    build, inputs = BLOCKS[name]
    program = torch.export.export(
        build().eval(), inputs, dynamic_shapes=({2: torch.export.Dim.AUTO},)
    )
    with pytest.raises(ValueError, match="grid: expected a program exported for one grid, got"):
        program.run_decompositions(decompositions())


def test_graphs_and_complex_networks_are_refused():
    ones, options = torch.ones(1, 3, 1), ([False], 1e-5, 100, "")
    solve = decompositions()[NETWORK]
    with pytest.raises(ValueError, match=r"dtype: expected real .*, got torch\.complex64"):
        solve(ones, ones + 0j, None, None, ones, *options)
    graph = Graph([[0, 1], [1, 2]], 3).packed
    with pytest.raises(ValueError, match=r"graph: expected networks on grids .*, got a graph"):
        solve(ones, ones[:, :2], None, None, ones, *options, "auto", graph)


ELSEWHERE = """
import sys
sys.modules["chonn_ops"] = sys.modules["chonn_plugins"] = None  # their import fails
import torch

inputs, expected = torch.load("case.pt")
found = torch._inductor.aoti_load_package("model.pt2")(*inputs)
torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CHONNNetwork1d", "CHONNUNet1d of scans"])
def test_packages_run_without_chonn_ops(name, tmp_path):
    build, inputs = MODELS[name]
    model, other = build().eval(), larger(inputs)
    with torch.no_grad():
        path = str(tmp_path / "model.pt2")
        torch._inductor.aoti_compile_and_package(exported(model, inputs), package_path=path)
        torch.save((other, model(*other)), tmp_path / "case.pt")
    commands.python(ELSEWHERE, cwd=tmp_path, env={"CHONN_AUTOLOAD": "0"})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CHONNNetwork1d", "CHONNNetwork2d", "CHONNUNet2d of scans"])
def test_onnxruntime_computes_the_same(name, tmp_path):
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    build, inputs = MODELS[name]
    model, other = build().eval(), larger(inputs)
    program = exported(model, inputs, onnx=True)
    written = torch.onnx.export(program, dynamo=True)
    assert written is not None
    written.save(str(tmp_path / "model.onnx"))
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (argument,) = session.get_inputs()
    found = torch.from_numpy(session.run(None, {argument.name: other[0].numpy()})[0])
    with torch.no_grad():
        torch.testing.assert_close(found, model(*other), rtol=1e-4, atol=1e-5)
