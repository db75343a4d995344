"""Many runs at once, by Hydra's launchers: the same results as one after the other."""

import pytest
from running import command, numbers, read


def results(folder):
    return {path.name: numbers(read(path)) for path in folder.glob("runs/tiny/smoke/*.json")}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    command(folder, "seed=0,1,2", "-m")
    return results(folder)


@pytest.mark.slow
def test_joblib(tmp_path, expected):
    command(tmp_path, "seed=0,1,2", "-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    assert results(tmp_path) == expected


@pytest.mark.slow
def test_ray_starts_the_run_of_a_killed_worker_again(tmp_path, expected):
    """One of two workers dies in the second epoch; its run resumes and ends at the same numbers."""
    pytest.importorskip("ray", reason="needs Ray: make setup-ray")
    options = ("hydra/launcher=ray", "+hydra.launcher.init.num_cpus=2")
    once = tmp_path / "killed"
    environment = {"TINY_KILL": "order2:6", "TINY_KILL_ONCE": str(once)}
    command(tmp_path, "seed=0,1,2", "-m", *options, **environment)
    assert once.exists()
    assert results(tmp_path) == expected


@pytest.mark.slow
def test_ray_reports_a_run_that_fails_and_keeps_the_others(tmp_path, expected):
    pytest.importorskip("ray", reason="needs Ray: make setup-ray")
    done = command(tmp_path, "seed=0,-1", "-m", "hydra/launcher=ray", code=1)
    assert "seed: expected an integer of at least 0, got -1" in done.stderr
    assert results(tmp_path) == {"order2-seed0.json": expected["order2-seed0.json"]}
