"""Options and inputs that cells and blocks refuse, with what they expected and what they got."""

import math

import pytest
import torch

from chonn_ops import CKB, CKBOptions, KirchhoffCell, Network, NetworkCell, Scan
from chonn_ops.nn import CircuitHead

RASTER = Scan(directions="raster")
X, U = torch.zeros(1, 4, 6, 5), torch.zeros(2, 6, 5, 4)


def options(**flat):
    return lambda: CKBOptions.from_mapping({"cell": "scan", **flat})


REFUSED = [
    (options(order=-1), "order: expected an integer of at least 0, got -1"),
    (options(order=1.5), "order: expected an integer of at least 0, got 1.5"),
    (options(d_state=0), "d_state: expected an integer of at least 1, got 0"),
    (options(norm="batch"), r"norm: expected one of \('group', 'layer', 'none'\), got 'batch'"),
    (options(directions="up"), "expected one of .*got 'up'"),
    (options(boundary="closed"), r"\('matched', 'periodic', 'neumann', 'dirichlet'\), got 'clo"),
    (options(boundary="robin"), "boundary: expected one of"),
    (options(boundary=("periodic", "neumann")), "boundary: expected one word"),
    (options(directions="raster", boundary="neumann"), "'cross' or 'axial'.*got 'neumann'"),
    (options(directions="raster", boundary="dirichlet"), "'cross' or 'axial'.*got 'dirichlet'"),
    (options(topology="tree"), r"expected one of \('series', 'parallel'\), got 'tree'"),
    (options(stage_input="x"), r"expected one of \('chain', 'inject'\), got 'x'"),
    (options(constrained="no"), "constrained: expected a bool, got 'no'"),
    (options(selective_norm=1), "selective_norm: expected a bool or None, got 1"),
    (options(num_networks=4), "num_networks: expected options of a block with cell"),
    (options(cell="plane"), "cell: expected one of"),
    (options(cell="network", d_state=4), "d_state: expected options of a block with cell='net"),
    (options(cell="network", boundary="wal"), "boundary: expected one of"),
    (options(cell="network", boundary=("periodic", 3)), "boundary: expected one of"),
    (options(cell="network", num_networks=0), "num_networks: expected an integer of at least 1"),
    (
        lambda: CKBOptions.from_mapping({"oder": 4}),
        "oder: expected options .*, which are cell, order, .*, num_networks, nodes",
    ),
    (lambda: CKBOptions.from_mapping(None), "options: expected a mapping, got None"),
    (lambda: Network(tol=0), "tol: expected above 0"),
    (lambda: Network(nodes=["left"]), r"nodes: expected one of .*, got \['left'\]"),
    (lambda: Network(nodes={}), "nodes: expected one of"),
    *(
        (lambda x=x: CircuitHead(**{"dim": 2, "spatial_dims": 2, **x}), words)
        for x, words in (
            ({"dim": 0}, "dim: expected"),
            ({"spatial_dims": 4}, "spatial_dims: expected one of"),
            ({"boundary": "open"}, "boundary"),
            ({"boundary": ["robin"] * 3}, "boundary"),
            ({"boundary": ["periodic", ("periodic", "robin")]}, "'periodic' at both faces"),
            ({"inner": "open"}, "inner"),
            ({"nodes": "middle"}, "nodes: expected one of"),
            ({"ac": True, "out_channels": 3}, "out_channels: expected 1 or an even number"),
        )
    ),
    (lambda: CKB(2.5, 2), "dim: expected an integer of at least 1, got 2.5"),
    (lambda: CKB(8, order=0), "order: expected at least 1 in a CKB, got 0"),
    (lambda: CKB(8, 4), r"spatial_dims: expected one of \(None, 1, 2, 3\), got 4"),
    (lambda: CKB(4, True), "spatial_dims: expected one of .*, got True"),
    (lambda: CKB(4, 2, boundary=3), "boundary: expected one of .*, got 3"),
    (lambda: CKB(4, 2, boundary=("periodic",)), "boundary: expected one of"),
    (lambda: CKB(8)(torch.zeros(2, 8, 9)), r"expected shape \(B, L, 8\), got \(2, 8, 9\)"),
    (lambda: CKB(8, 2)(torch.zeros(2, 9, 8)), r"shape \(B, 8, H, W\), got \(2, 9, 8\)"),
    (lambda: CKB(4, 2, cell="scan")(X, spacing=[1.0, 1.0]), "spacing, mask, nodes, volumes: exp"),
    (lambda: KirchhoffCell(0), "dim: expected an integer of at least 1, got 0"),
    (lambda: KirchhoffCell(4, Network()), r"options: expected Scan\(...\), got Network\("),
    (lambda: KirchhoffCell(4, RASTER, boundary="dirichlet"), "'axial'.*got 'dirichlet'"),
    (lambda: KirchhoffCell(4)(torch.zeros(1, 5, 3)), r"\(B, \*grid, 4\).*got \(1, 5, 3\)"),
    (lambda: NetworkCell(0), "dim: expected an integer of at least 1, got 0"),
    (lambda: NetworkCell(4, 4), r"spatial_dims: expected one of \(1, 2, 3\), got 4"),
    (lambda: NetworkCell(4, 2, Scan()), r"options: expected Network\(...\), got Scan\("),
    (lambda: NetworkCell(4, boundary=("neumann",) * 3), "boundary: expected one of .* or 2 of"),
    (lambda: NetworkCell(4)(U + 0j), "u: expected dtype torch.float32, .* got torch.complex64"),
    (lambda: NetworkCell(4)(U[..., :3]), r"shape \(B, H, W, 4\), got \(2, 6, 5, 3\)"),
    *(
        (lambda x=x: NetworkCell(4)(U, spacing=x), "spacing: expected a number > 0, or 2 of them")
        for x in ((1.0,), (1.0, -1.0), "ab")
    ),
    *(
        (lambda x=x: NetworkCell(4)(U, mask=x), "mask: expected torch.bool of shape")
        for x in (torch.ones(6, 5), torch.ones(5, 6, dtype=torch.bool))
    ),
    *(
        (lambda x=x: NetworkCell(4)(U, nodes=x), "nodes: expected one of")
        for x in ("middle", (0.5,), (0.5, -0.1), [(0.5, 0.5)] * 3, (0.5, math.nan), 3)
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_unfit_options_and_inputs_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_options_of_the_cell_are_refused_with_the_place_where_they_belong():
    with pytest.raises(TypeError, match=r"num_networks: expected options of the block, which are"):
        CKB(8, 2, num_networks=4)
