"""Rasters and networks of Circuitscape.jl's own tests, all outputs that it publishes.

Set CIRCUITSCAPE_TESTS to the folder ``test`` of a checkout of Circuitscape.jl. Where its modes do
something else than one would guess from their descriptions, this file follows its code (v5.13).
"""

import configparser
import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from chonn_ops import Circuit, Graph, raster

ROOT = Path(os.environ.get("CIRCUITSCAPE_TESTS", "."))
CASES = sorted(ROOT.glob("input/*/*.ini")) + sorted(ROOT.glob("input/raster/*/*/*Verify*.ini"))
CASES = [path for path in CASES if "extra" not in str(path)]
TOLERANCE = 1e-6
NO_DATA = -9999


def text_of(path):
    return (gzip.open if path.suffix == ".gz" else open)(path, "rt").read()


def grid_of(path):
    """A raster, its missing cells -9999, and its lower left corner and cell size."""
    plain = Path(str(path).replace(".tif", ".asc").removesuffix(".gz"))
    if ".tif" in path.name and plain.exists():
        path = plain
    if path.suffix == ".tif":
        image = pytest.importorskip("PIL.Image").open(path)
        values = np.array(image, float)
        missing = float(image.tag_v2[42113]) if 42113 in image.tag_v2 else NO_DATA
        values[values == missing] = NO_DATA
        size, corner = image.tag_v2[33550][0], image.tag_v2[33922]
        return values, (corner[3], corner[4] - len(values) * size, size)
    lines = text_of(path).splitlines()
    head = [line.split() for line in lines[:6] if line[:1].isalpha()]
    known = {key.lower(): float(value) for key, value in head}
    values = np.array([line.split() for line in lines[len(head) :] if line.split()], float)
    values[values == known.get("nodata_value", NO_DATA)] = NO_DATA
    return values, (known["xllcorner"], known["yllcorner"], known["cellsize"])


def numbers_of(path):
    return np.array([line.split() for line in text_of(path).splitlines() if line.split()], float)


class Case:
    def __init__(self, path):
        self.path, parser = path, configparser.ConfigParser()
        parser.read_string(text_of(path))
        self.options = {k: v for part in parser.sections() for k, v in parser.items(part)}
        self.scenario = self.options["scenario"]
        self.maps = [kind for kind in ("cur", "volt") if self.yes(f"write_{kind}_maps")]

    def yes(self, name):
        return self.options.get(name, "False").lower() in ("true", "1")

    def file(self, name):
        return ROOT / self.options[name]

    def points(self, like, corner):
        """Row, column and number of each focal cell, by number."""
        path = self.file("point_file")
        if path.suffix == ".txt":
            number, x, y = numbers_of(path).T
            row = np.ceil(len(like) - (y - corner[1]) / corner[2]).astype(int) - 1
            column = np.ceil((x - corner[0]) / corner[2]).astype(int) - 1
        else:
            values, _ = grid_of(path)
            values[values < 0] = 0
            column, row = np.nonzero(values.T)  # by columns
            number = values[row, column]
        order = np.argsort(number, kind="stable")
        return row[order], column[order], number[order].astype(int)

    def strengths_or_grounds(self, name, like, corner):
        path = self.file(name)
        if path.suffix == ".txt":
            found = np.full(like.shape, float(NO_DATA))
            value, x, y = numbers_of(path).T
            row = np.ceil(len(like) - (y - corner[1]) / corner[2]).astype(int) - 1
            found[row, np.ceil((x - corner[0]) / corner[2]).astype(int) - 1] = value
            return found
        return grid_of(path)[0]

    def pairs(self):
        """The numbers of focal nodes and which of their pairs are named, and how."""
        if not self.yes("use_included_pairs"):
            return None
        lines = [line.split() for line in text_of(self.file("included_pairs_file")).splitlines()]
        lines = [line for line in lines if line]
        if lines[0][0] == "min":
            low, high = float(lines[0][1]), float(lines[1][1])
            table = np.array(lines[2:], float)
            values = table[1:, 1:]
            named = (values >= low) & (values <= high)
            return table[1:, 0].astype(int).tolist(), named, "include"
        listed = [tuple(map(int, line)) for line in lines[1:]]
        numbers = sorted({x for pair in listed for x in pair} - {0})
        named = np.zeros((len(numbers),) * 2, bool)
        for i, j in listed:
            if i in numbers and j in numbers:
                named[numbers.index(i), numbers.index(j)] = True
                named[numbers.index(j), numbers.index(i)] = True
        return numbers, named, lines[0][1]


def circuit_of(case, conductance, labels):
    """The circuit of cells with short circuits, and the node of each cell, -1 for none."""
    alive = np.isin(labels, np.unique(labels[(conductance > 0) & (labels > 0)])) & (labels > 0)
    exists = (conductance > 0) | alive
    with np.errstate(divide="ignore"):
        resistance = torch.from_numpy(1 / conductance)[None, ..., None]
    neighbours = 4 if case.yes("connect_four_neighbors_only") else 8
    mean = "resistance" if case.yes("connect_using_avg_resistances") else "conductance"
    whole = raster(resistance, neighbours, mean=mean, mask=torch.from_numpy(exists))
    circuit, node = whole.merge(torch.from_numpy(np.where(alive, labels, 0)).flatten())
    return circuit, np.where(exists, node.numpy().reshape(exists.shape), -1)


def part_of(circuit):
    return circuit.layout.connected_parts(circuit.conductance)[0, :, 0].numpy()


def solved(circuit, source, ground, only=None):
    """Potentials and currents of nodes. Parts without sources or without ground are left out."""
    part = part_of(circuit)
    fed, held = (np.bincount(part, x, len(part))[part] != 0 for x in (source, np.isinf(ground)))
    held |= np.bincount(part, np.where(np.isinf(ground), 0, ground), len(part))[part] != 0
    used = fed & held & (part == part[only] if only is not None else True)
    (g,) = circuit.conductance
    leak = np.where(np.isinf(ground), 1e12 * float(g.max()), ground)
    given = np.where(used, leak, 1.0)
    both = Circuit(g, torch.from_numpy(given)[None, :, None], circuit.layout)
    v = both.solve(torch.from_numpy(np.where(used, source, 0.0))[None, :, None])
    through = both.node_currents(v)
    return v[0, :, 0].numpy(), through[0, :, 0].numpy(), used


def on_map(values, node):
    return np.where(node >= 0, np.asarray(values)[node], 0.0)


def with_focal_regions(labels, points, first, second):
    """Labels of short circuits in which both focal regions are one node each."""
    labels, rows, columns, numbers = labels.copy(), *points
    given, top = labels.copy(), labels.max()
    for number in (first, second):
        at = rows[numbers == number], columns[numbers == number]
        if not given.any():
            labels[at] = number
        elif len(at[0]) > 1:
            top += 1
            if given[at].any():
                labels[np.isin(given, given[at][given[at] != 0])] = top
            else:
                labels[at] = top
    return labels


def pairwise(case, conductance, labels, points):
    rows, columns, numbers = points
    named, mode = None, "exclude"
    if (given := case.pairs()) is not None:
        ids, named, mode = given
        if mode == "include":
            keep = np.isin(numbers, ids)
            rows, columns, numbers = (x[keep] for x in (rows, columns, numbers))
    regions = len(numbers) != len(np.unique(numbers))
    unique = np.unique(numbers)
    found, total, most = {}, np.zeros(conductance.shape), np.full(conductance.shape, float(NO_DATA))
    table = np.full((len(unique) + 1,) * 2, -1.0)
    table[0, 0], table[0, 1:], table[1:, 0] = 0, unique, unique
    np.fill_diagonal(table, 0)
    if not regions:
        circuit, node = circuit_of(case, conductance, labels)
        at = node[rows, columns]
        every = [(a, b) for a in at for b in at if a >= 0 and b >= 0]
        # One elimination for all pairs.
        all_at_once = circuit.resistance(torch.tensor(every))[0, :, 0].numpy()
        resistance = dict(zip(every, all_at_once, strict=True))
    for i, first in enumerate(unique):
        for j, second in enumerate(unique[i + 1 :], i + 1):
            if named is not None and first in ids and second in ids:
                a, b = ids.index(first), ids.index(second)
                told = named[a, b] or named[b, a]
                if told != (mode == "include"):
                    continue
            if regions:
                both = with_focal_regions(labels, (rows, columns, numbers), first, second)
                circuit, node = circuit_of(case, conductance, both)
            place = [np.flatnonzero(numbers == number)[0] for number in (first, second)]
            p, q = node[rows[place], columns[place]]
            if p < 0 or q < 0:
                continue
            r = circuit.resistance(torch.tensor([[p, q]])).item() if regions else resistance[p, q]
            if not np.isfinite(r):
                continue
            table[i + 1, j + 1] = table[j + 1, i + 1] = r
            if p == q:
                continue
            source, ground = np.zeros((2, circuit.layout.num_nodes))
            source[q], source[p], ground[p] = 1, 0, np.inf
            v, through, used = solved(circuit, source, ground)
            current = on_map(np.where(used, through, 0), node)
            found[f"curmap_{first}_{second}"] = current
            found[f"voltmap_{first}_{second}"] = on_map(np.where(used, v, 0), node)
            total, most = total + current, np.maximum(most, current)
    columns3 = [(a, b, table[i + 1, j + 1]) for i, a in enumerate(unique)
                for j, b in enumerate(unique) if j > i]  # fmt: skip
    tables = {"resistances": table, "resistances_3columns": np.array(columns3)}
    return found | tables | {"cum_curmap": total, "max_curmap": most}


def without_conflicts(source, ground, policy):
    """What is left of sources and grounds at the same node."""
    source, ground = source.copy(), ground.copy()
    finite = np.where(np.isinf(ground), 0, ground)
    both = (source != 0) & (ground != 0)
    if policy in ("rmvsrc", "rmvall"):
        source[both] = 0
    elif policy == "rmvgnd":
        ground[both] = 0
    ground[np.isinf(ground) & (source > 0)] = 0
    return source, np.where(np.isinf(ground), ground, finite)


def at_nodes(values, node, n):
    inside = (node >= 0) & (values != 0)
    found = np.zeros(n)
    np.add.at(found, node[inside], values[inside])
    return found


def advanced(case, conductance, labels, corner):
    circuit, node = circuit_of(case, conductance, labels)
    source = case.strengths_or_grounds("source_file", conductance, corner)
    ground = case.strengths_or_grounds("ground_file", conductance, corner)
    source, missing = np.where(source == NO_DATA, 0, source), ground == NO_DATA
    if case.yes("ground_file_is_resistances"):
        with np.errstate(divide="ignore"):
            ground = 1 / ground
    ground = np.where(missing, 0, ground)
    if case.yes("use_unit_currents"):
        source = np.where(source != 0, 1.0, 0.0)
    if case.yes("use_direct_grounds"):
        ground = np.where(ground != 0, np.inf, 0.0)
    n = circuit.layout.num_nodes
    source, ground = (at_nodes(x, node, n) for x in (source, ground))
    source, ground = without_conflicts(source, ground, case.options["remove_src_or_gnd"])
    v, through, used = solved(circuit, source, ground)
    maps = {"voltmap": v, "curmap": through}
    return {name: on_map(np.where(used, x, 0), node) for name, x in maps.items()}


def one_and_all(case, conductance, labels, points):
    rows, columns, numbers = points
    one_to_all = case.scenario == "one-to-all"
    strengths = numbers_of(case.file("variable_source_file")) if case.yes(
        "use_variable_source_strengths"
    ) else None  # fmt: skip
    ids = named = None
    if (given := case.pairs()) is not None:
        ids, named, mode = given
        keep = np.isin(numbers, ids)
        rows, columns, numbers = (x[keep] for x in (rows, columns, numbers))
        if strengths is not None:
            strengths = strengths[np.isin(strengths[:, 0], ids)]
    cells = np.zeros(conductance.shape, int)
    cells[rows, columns] = numbers
    unique, first = np.unique(numbers, return_index=True)
    joined = labels.copy()
    if not labels.any():
        joined = cells.copy()
    elif len(unique) == len(numbers):
        joined = np.where((cells > 0) & (labels == 0), cells + labels.max(), labels)
    else:
        top = max(labels.max(), cells.max())
        for row, column in zip(*np.nonzero(cells.T)[::-1], strict=True):
            a, b = cells[row, column], joined[row, column]
            if b == 0:
                joined[row, column] = top + a
            elif a != b:
                joined[joined == b] = a
    circuit, node = circuit_of(case, conductance, joined)
    n, found, result = circuit.layout.num_nodes, {}, []
    total = most = np.zeros(conductance.shape)
    for i, number in enumerate(unique):
        present, strong = cells.copy(), np.zeros(conductance.shape)
        if ids is not None:
            for j, other in enumerate(ids):
                if i != j and named[i, j] == (mode == "exclude"):
                    present[present == other] = 0
        if strengths is not None:
            strong[rows, columns] = np.where(present[rows, columns] == 0, 1, strengths[:, 1])
        if present.sum() == number:
            result.append(-1)
            continue
        alone = np.zeros(conductance.shape, int)
        alone[rows[first], columns[first]] = unique
        strength = 1.0 if strengths is None else strengths[i, 1]
        if one_to_all:
            source = np.where(alone == number, strength, 0.0)
            ground = np.where((present > 0) & (present != number), np.inf, 0.0)
        else:
            source = np.where(alone > 0, 1.0, 0.0) if strengths is None else strong
            source = np.where((present if strengths is None else alone) == number, 0.0, source)
            ground = np.where(present == number, np.inf, 0.0)
        fed, held = at_nodes(source, node, n), at_nodes(ground, node, n)
        fed, held = without_conflicts(fed, held, "rmvgnd" if one_to_all else "rmvsrc")
        v, through, used = solved(circuit, fed, held, only=node[rows[i], columns[i]])
        potential, current = (on_map(np.where(used, x, 0), node) for x in (v, through))
        found |= {f"curmap_{number}": current, f"voltmap_{number}": potential}
        total, most = total + current, np.maximum(most, current)
        value = potential[rows[first[i]], columns[first[i]]]
        unsolved = not used.any() or (one_to_all and not value)
        result.append(-1 if unsolved else value / strength if one_to_all else 0.0)
    sums = {"cum_curmap": total, "max_curmap": most}
    return found | {"resistances": np.stack([unique, result], 1)} | sums


def network(case):
    p, q, g = numbers_of(case.file("habitat_file")).T
    g = 1 / g if case.yes("habitat_map_is_resistances") else g
    n, ends = int(max(p.max(), q.max())) + 1, np.stack([p, q]).astype(int)
    graph = Graph(ends.T, n)
    zero = torch.zeros(1, n, 1, dtype=torch.float64)
    circuit, found = Circuit(torch.from_numpy(g)[None, :, None], zero, graph), {}

    def maps(source, ground, name):
        v, through, _ = solved(circuit, source, ground)
        flow = g * np.abs(v[ends[0]] - v[ends[1]])
        found[f"voltages{name}"] = np.stack([np.arange(n), v], 1)
        found[f"node_currents{name}"] = np.stack([np.arange(n), through], 1)
        found[f"branch_currents{name}"] = np.column_stack([ends.min(0), ends.max(0), flow])
        return v

    if case.scenario != "pairwise":
        source, ground = np.zeros((2, n))
        for field, name in ((source, "source_file"), (ground, "ground_file")):
            node, value = numbers_of(case.file(name)).T
            with np.errstate(divide="ignore"):
                inverse = name == "ground_file" and case.yes("ground_file_is_resistances")
                field[node.astype(int)] = 1 / value if inverse else value
        maps(*without_conflicts(source, ground, case.options["remove_src_or_gnd"]), "")
        return found
    focal = numbers_of(case.file("point_file")).flatten().astype(int)
    table = np.zeros((len(focal) + 1,) * 2)
    table[0, 1:] = table[1:, 0] = focal
    pairs = [(a, b) for a in focal for b in focal]
    resistance = circuit.resistance(torch.tensor(pairs)).reshape(len(focal), -1).numpy()
    table[1:, 1:] = np.where(np.isinf(resistance), -1, resistance)
    for i, a in enumerate(focal):
        for b in focal[i + 1 :]:
            source, ground = np.zeros((2, n))
            source[b], ground[a] = 1, np.inf
            maps(source, ground, f"_{a}_{b}")
    for kind, columns in (("node_currents", 1), ("branch_currents", 2)):
        each = [x for name, x in found.items() if name.startswith(kind)]
        total = sum(x[:, columns] for x in each)
        found[f"{kind}_cum"] = np.column_stack([each[0][:, :columns], total])
    columns3 = [(a, b, table[i + 1, j + 1]) for i, a in enumerate(focal)
                for j, b in enumerate(focal) if j > i]  # fmt: skip
    return found | {"resistances": table, "resistances_3columns": np.array(columns3)}


def outputs(case):
    if case.options.get("data_type") == "network":
        return network(case)
    conductance, corner = grid_of(case.file("habitat_file"))
    missing = conductance == NO_DATA
    if case.yes("habitat_map_is_resistances"):
        conductance = 1 / conductance
    conductance = np.where(missing, 0, conductance)
    labels = np.zeros(conductance.shape, int)
    if case.yes("use_polygons"):
        labels = np.maximum(grid_of(case.file("polygon_file"))[0], 0).astype(int)
    if case.yes("use_mask"):
        conductance = np.where(grid_of(case.file("mask_file"))[0] > 0, conductance, 0)
    if case.scenario == "advanced":
        return advanced(case, conductance, labels, corner)
    run = pairwise if case.scenario == "pairwise" else one_and_all
    return run(case, conductance, labels, case.points(conductance, corner))


# Published, but of an older version of the case: no such pair or file is a result of its settings.
OLD = {
    "sgVerify13": [
        "resistances_3columns",
        *(f"{kind}map_{pair}" for kind in ("cur", "volt")
          for pair in ("1_4", "1_9", "2_4", "2_8", "2_9", "4_8", "4_9")),
    ],
    "sgVerify14": ["curmap_max"],
    "allToOneVerify12": ["curmap_4"],
    "sgNetworkVerify2": [
        f"{kind}_{i}_{j}" for kind in ("voltages", "node_currents", "branch_currents")
        for i in range(6) for j in (5, 6)
    ],
}  # fmt: skip


def differences(case):
    """The largest difference of each published file, in parts of its largest value or 1."""
    stem, found = case.path.stem, outputs(case)
    off = {}
    for path in sorted(ROOT.glob(f"output_verify/{stem}_*")):
        name = path.stem.removeprefix(stem + "_")
        kinds = [kind for kind in ("cur", "volt") if kind in name]
        if name in OLD.get(stem, []) or not set(kinds) <= set(case.maps):
            continue
        truth = grid_of(path)[0] if path.suffix == ".asc" else numbers_of(path)
        # Nothing flows between focal nodes of one region, nor of two parts.
        value = found.get(name, np.zeros_like(truth))
        if "_currents" in name or "voltages" in name:
            value = value[np.isin(value[:, 0], truth[:, 0]) | ("branch" in name)]
        if "branch" in name:
            rows = {tuple(sorted(map(int, row[:2]))): abs(row[2]) for row in truth}
            truth = np.array([rows.get((int(a), int(b)), 0.0) for a, b, _ in value])
            value = value[:, 2]
        assert truth.shape == value.shape, name
        known = truth > NO_DATA
        scale = max(np.abs(truth[known]).max(initial=0), 1.0)
        off[name] = np.abs(value - truth)[known].max(initial=0) / scale
    return off


@pytest.mark.skipif(not CASES, reason="CIRCUITSCAPE_TESTS is not set")
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_all_outputs_are_circuitscapes(path):
    off = differences(Case(path))
    assert off
    assert max(off.values()) < TOLERANCE, {k: v for k, v in off.items() if not v < TOLERANCE}
