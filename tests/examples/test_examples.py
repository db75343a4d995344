"""The examples at smoke scale: they run, and what they print is so."""

import ast
import importlib.util
import math
import re
import sys
from pathlib import Path

import commands
import pytest

pytest.importorskip("h5py")
pytest.importorskip("scipy")
import torch
from scipy.spatial import Delaunay

FOLDER = Path(__file__).parents[2] / "examples"


def run(name, capsys, *arguments):
    """Module of an example, and what it prints."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(list(arguments))
    return module, capsys.readouterr().out


def test_these_scripts_and_no_more():
    scripts = sorted(p.stem for p in FOLDER.glob("*.py") if not p.stem.startswith("_"))
    expected = """darcy_mesh diode_ladder direct_solve gaussian_field gmsh_part habitat
        learned_law mesh_file neuralop_darcy pdebench_darcy pdebench_time pore_network pretrained
        read_network richards tomography waves wells your_arrays"""
    assert scripts == expected.split()


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.name)
def test_the_first_line_says_what_a_script_does(path):
    """It is the script's ``--help``."""
    first = ast.get_docstring(ast.parse(path.read_text("utf-8"))).partition("\n")[0]
    assert re.fullmatch(r"[A-Z].*\.", first)


def test_a_direct_solve_is_near_the_datas_scheme_and_passive(capsys):
    module, printed = run("direct_solve", capsys, "--resolution", "16", "--samples", "2")
    assert 0.001 < float(re.search(r"harmonic faces: (\S+)", printed)[1]) < 0.1
    assert float(re.search(r"arithmetic faces: (\S+)", printed)[1]) < 1e-6
    # Twice the conductivity, half the pressure.
    a = torch.rand(1, 8, 8) + 0.1
    torch.testing.assert_close(module.pressure(2 * a), module.pressure(a) / 2)


def test_the_diodes_of_a_ladder_are_found(capsys):
    _, printed = run("diode_ladder", capsys, "--sections", "4")
    assert "emission coefficient: 1.8000" in printed


def test_bands_of_a_gaussian_field_cover_what_they_say(capsys):
    _, printed = run("gaussian_field", capsys, "--resolution", "16")
    covered = re.findall(r"(\S+)% of new errors within \S+ deviations, (\S+)% of samples", printed)
    assert len(covered) == 3
    for errors, samples in covered:
        assert 80 < float(errors) < 97
        assert 87 < float(samples) < 93


def test_a_law_is_learned_from_fields(capsys):
    _, printed = run("learned_law", capsys, "--resolution", "12")
    law, same, more = (float(x) for x in re.findall(r"([\d.]+)%", printed))
    assert law < 5
    assert same < 1
    assert more < 50


def test_water_in_the_column_of_celia_is_that_of_a_finer_grid(capsys):
    """The water content every 5 cm, by SciPy's LSODA on a grid of 0.125 cm, to 1e-8."""
    _, printed = run("richards", capsys, "--cells", "40")
    lines = dict(line.split(": ") for line in printed.splitlines())
    assert abs(float(lines["mass balance"])) < 1e-10
    water = [float(x) for x in lines["water from the bottom"].split()]
    truth = [0.0999, 0.0999, 0.0999, 0.0999, 0.1009, 0.1801, 0.2494, 0.2631, 0.2676]
    assert water == pytest.approx(truth, abs=2e-3)


def test_waves_do_not_enter_the_obstacle(tmp_path, capsys):
    picture = tmp_path / "waves.png"
    arguments = ("--points", "64", "--wavelengths", "4", "--output", str(picture))
    module, printed = run("waves", capsys, *arguments)
    assert 0 < float(re.search(r"obstacle: ([\d.]+) %", printed)[1]) < 20
    assert picture.stat().st_size > 10_000
    pressure, air = module.waves(48, 3)
    assert (pressure[~air] == 0).all()
    torch.testing.assert_close(
        pressure, pressure.flip(1), rtol=1e-3, atol=1e-3 * pressure.abs().max().item()
    )


def test_the_pretrained_network_is_good_on_its_grid_and_on_a_finer_one(capsys):
    pytest.importorskip("safetensors")
    arguments = ("--resolutions", "64", "96", "--samples", "2")
    _, printed = run("pretrained", capsys, *arguments)
    errors = [float(error) for error in re.findall(r"relative L1 ([\d.]+)", printed)]
    assert len(errors) == 2
    assert max(errors) < 0.003


def test_a_network_is_read(capsys):
    pytest.importorskip("safetensors")
    _, printed = run("read_network", capsys, "--resolution", "16", "--samples", "1")
    assert len(re.findall(r"axis \d, \w+ face: \S+ held 0\.0\d+ behind", printed)) == 4
    assert float(re.search(r"over that at 0\.1: (\S+)", printed)[1]) == pytest.approx(10, rel=0.02)


def test_a_disc_is_imaged_from_its_rim(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "disc.png"
    sizes = ("--electrodes", "16", "--resolution", "24")
    _, printed = run("tomography", capsys, *sizes, "--figure", str(figure))
    assert printed.startswith("208 measurements")
    errors = [float(x) for x in re.findall(r"log-conductivity ([\d.]+)", printed)]
    assert len(errors) == 2
    assert max(errors) < 0.8
    assert printed.count("converged: True") == 2
    assert figure.stat().st_size > 0


def test_arrays_become_a_model_and_a_picture(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("safetensors")
    folder = tmp_path / "plate"
    sizes = ("--samples", "32", "--epochs", "2", "--output", str(folder))
    module, printed = run("your_arrays", capsys, *sizes)
    assert float(re.search(r"new samples: (\S+)", printed)[1]) < 0.01
    model = module.CHONNNetwork2d.from_pretrained(folder)
    torch.manual_seed(1)
    x, y = map(torch.from_numpy, module.arrays(2))
    assert x.shape == y.shape == (2, 1, 64, 96)
    with torch.no_grad():
        assert module.relative_l1(model(x), y) < 0.01
    assert (folder / "picture.png").stat().st_size > 10_000
    with pytest.raises(FileExistsError):
        module.main([*sizes])


def test_permeability_is_recovered_from_wells(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "wells.png"
    sizes = ("--resolution", "16", "--seeds", "2")
    _, printed = run("wells", capsys, *sizes, "--figure", str(figure))
    found = re.findall(
        r"permeability ([\d.]+), of the prior's mean ([\d.]+); .* ([\d.]+)%;", printed
    )
    assert len(found) == 2
    for error, alone, covered in found:
        assert float(error) < 0.6 * float(alone)
        assert 75 < float(covered) < 99
    assert printed.count("converged: True") == 2
    assert figure.stat().st_size > 0


def test_circuits_learn_on_a_mesh_with_holes(capsys):
    sizes = ("--resolution", "14", "--samples", "4", "--tests", "2", "--seconds", "2")
    module, printed = run("darcy_mesh", capsys, *sizes)
    found = re.findall(r"^(\w+): .*relative L1 ([\d.]+), on the finer mesh ([\d.]+)", printed, re.M)
    errors = {name: tuple(map(float, values)) for name, *values in found}
    assert list(errors) == ["equation", "circuit", "messages"]
    assert errors["equation"][1] < errors["equation"][0] < 0.2
    assert max(errors["circuit"]) < 0.3
    mesh = module.mesh(14)
    holes = sum(math.pi * radius**2 for _, _, radius in module.HOLES)
    assert 1 - holes < float(mesh.volumes.volume.sum()) < 1 - 0.95 * holes
    assert (module.sample(mesh, 0)[1][mesh.volumes.walls.node] == 0).all()


def test_a_mesh_file_of_an_annulus_has_its_analytic_temperature(tmp_path, capsys):
    meshio = pytest.importorskip("meshio")
    turn = 2 * math.pi * (torch.arange(96) + torch.arange(13)[:, None] % 2 / 2).double() / 96
    r = torch.linspace(0.5, 1, 13).double()[:, None]
    points = torch.stack([r * turn.cos(), r * turn.sin(), 0 * r * turn], -1).reshape(-1, 3)
    triangles = Delaunay(points[:, :2]).simplices
    triangles = triangles[(triangles >= 96).any(1)]  # those inside the inner circle go
    file, output = tmp_path / "annulus.vtu", tmp_path / "u.vtu"
    meshio.write_points_cells(file, points.numpy(), [("triangle", triangles)])
    run("mesh_file", capsys, str(file), "--output", str(output))
    u = torch.tensor(meshio.read(output).point_data["u"])
    r = points.norm(dim=1)
    exact = (1 - r.square()) / 4 - 0.1875 * r.log() / math.log(0.5)
    torch.testing.assert_close(u, exact, rtol=0, atol=3e-4)


def test_physical_groups_of_gmsh_are_walls(tmp_path, capsys):
    """A tube between a wall at 400 K and a film to 300 K, in gmsh's older format and in numbers."""
    meshio = pytest.importorskip("meshio")
    n, rings = 96, 17
    turn = 2 * math.pi * (torch.arange(n) + torch.arange(rings)[:, None] % 2 / 2).double() / n
    r = torch.linspace(0.05, 0.1, rings).double()[:, None]
    points = torch.stack([r * turn.cos(), r * turn.sin(), 0 * r * turn], -1).reshape(-1, 3)
    triangles = Delaunay(points[:, :2]).simplices
    triangles = triangles[(triangles >= n).any(1)]
    around = torch.stack([torch.arange(n), torch.arange(1, n + 1) % n], 1)
    cells = [("line", around + (rings - 1) * n), ("line", around), ("triangle", triangles)]
    tags = [[number] * len(of) for number, (_, of) in enumerate(cells, 1)]
    names = {"hot": [1, 1], "hole": [2, 1], "steel": [3, 2]}
    file = tmp_path / "tube.msh"
    data = {"gmsh:physical": tags, "gmsh:geometrical": tags}
    tube = meshio.Mesh(points.numpy(), cells, cell_data=data, field_data=names)
    tube.write(file, file_format="gmsh22")
    _, printed = run("gmsh_part", capsys, str(file))
    heat = 2 * math.pi * 100 / (math.log(2) / 50 + 1 / (500 * 0.05))
    assert float(re.search(r"([\d.]+) W", printed)[1]) == pytest.approx(heat, rel=2e-3)
    coldest, hottest = map(float, re.search(r"([\d.]+) to ([\d.]+) K", printed).groups())
    assert coldest == pytest.approx(300 + heat / (2 * math.pi * 500 * 0.05), abs=0.1)
    assert hottest == 400


def test_a_pore_networks_permeability_is_of_fourth_order_in_the_radii(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "pores.png"
    _, printed = run("pore_network", capsys, "--pores", "200", "--figure", str(figure))
    assert "sum to 4.0000" in printed
    assert figure.stat().st_size > 10_000


def test_a_habitat_is_a_metric_of_resistances(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "habitat.png"
    module, printed = run("habitat", capsys, "--cells", "40", "--figure", str(figure))
    found = {tuple(pair): float(r) for *pair, r in re.findall(r"(\d) and (\d): .* (\S+)", printed)}
    assert len(found) == 10
    assert found["1", "4"] < found["1", "2"] + found["2", "4"]
    resistance = module.landscape(40, 0)
    _, _, current = module.connectivity(resistance, torch.tensor([245, 1230]))
    assert current.flatten()[[245, 1230]].tolist() == pytest.approx([1, 1])  # A, in and out
    assert (current[resistance.isnan()] == 0).all()


@pytest.mark.slow
def test_neuraloperators_fno_trains_with_circuits(tmp_path):
    pytest.importorskip("neuralop")
    for name, samples, points in (("train_16", 8, 16), ("test_16", 50, 16), ("test_32", 50, 32)):
        fields = {key: torch.rand(samples, points, points) for key in ("x", "y")}
        torch.save(fields, tmp_path / f"darcy_{name}.pt")
    command = [sys.executable, FOLDER / "neuralop_darcy.py", "--data", tmp_path]
    sizes = ["--epochs", "1", "--n-train", "8", "--width", "8", "--modes", "4"]
    done = commands.run(*command, *sizes)
    lines = done.stdout.splitlines()[-3:]
    assert [line.partition(",")[0] for line in lines] == ["FNO", "FNO with networks", "circuit"]
    errors = [re.findall(r"\d+ x \d+: ([\d.]+)", line) for line in lines]
    assert all(len(found) == 2 and all(0 < float(e) < 10 for e in found) for found in errors)
