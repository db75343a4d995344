"""What is replaced in PDEBench's modules, and that it goes back."""

from contextlib import contextmanager
from types import ModuleType

import numpy as np
import pytest
import torch

from chonn_plugins.pdebench import patches, preflight
from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.job import Job
from chonn_plugins.pdebench.results import scored
from chonn_plugins.pdebench.training import Watch


def a_job(family: str = "unet") -> Job:
    args = {"initial_step": 3, "data_path": "data", "filename": "x.hdf5", "single_file": True}
    return Job("chonn_unet", family, None, args)


@pytest.fixture
def train() -> ModuleType:
    module = ModuleType("train")
    module.np, module.torch, module.device = np, torch, torch.device("cpu")
    return module


def test_undo_restores_in_reverse(train):
    undo = patches.Patches()
    before = dict(vars(train))
    patches.numpy_infty(undo, train)
    patches.torch_functions(undo, train, print, Watch())
    assert train.np.infty == np.inf
    assert train.np.zeros is np.zeros
    assert train.torch.save is print
    assert train.torch.zeros is torch.zeros
    assert not hasattr(np, "infty")
    undo.close()
    undo.close()
    assert dict(vars(train)) == before


def test_the_reader_of_groups_gets_the_initial_step(train):
    seen = {}

    def reader(filename, initial_step=10, saved_folder="", if_test=False):
        seen.update(name=filename, start=initial_step, folder=saved_folder, test=if_test)

    train.UNetDatasetMult = reader
    patches.grouped_reader(patches.Patches(), train, a_job())
    train.UNetDatasetMult("rdb", saved_folder="data/", if_test=True)
    assert seen == {"name": "rdb", "start": 3, "folder": "data/", "test": True}


def test_batches_reach_the_device(train):
    """Simulated with the meta device: the git version joins CPU batches with GPU predictions."""
    train.device = torch.device("meta")
    patches.torch_functions(patches.Patches(), train, print, Watch())
    fields = torch.utils.data.TensorDataset(torch.rand(4, 2), torch.rand(4, 3))
    loader = train.torch.utils.data.DataLoader(fields, batch_size=2)
    assert len(loader) == 2
    assert all(field.device.type == "meta" for batch in loader for field in batch)
    assert torch.utils.data.DataLoader(fields).dataset is fields


def test_save_is_whole_or_nothing(tmp_path):
    path = tmp_path / "model.pt"
    save = patches.WholeSave()
    save({"a": torch.ones(2)}, str(path))
    kept = path.read_bytes()
    with pytest.raises((AttributeError, TypeError, RuntimeError)):
        save({"a": torch.zeros(2), "b": lambda: None}, str(path))
    assert path.read_bytes() == kept
    assert [p.name for p in tmp_path.iterdir()] == ["model.pt"]
    assert save.count == 1
    # PDEBench's own models keep their places, and a link keeps its target.
    (tmp_path / "link.pt").symlink_to(path)
    patches.WholeSave()({"a": torch.zeros(2)}, tmp_path / "link.pt")
    assert (tmp_path / "link.pt").is_symlink()
    assert path.read_bytes() != kept


def test_a_checkpoint_of_another_job_is_not_replaced(tmp_path):
    """Two trainings of the same job that start before either has a checkpoint."""
    path = tmp_path / "model.pt"
    first, second = (patches.WholeSave(replace=False) for _ in range(2))
    first({}, path)
    with pytest.raises(JobError, match="has appeared since this training began: another one"):
        second({}, path)
    first({"a": torch.ones(1)}, path)
    assert "a" in torch.load(path)


@pytest.fixture
def fno(train) -> ModuleType:
    """A trainer with PDEBench's three FNOs."""
    train.FNO1d = train.FNO2d = train.FNO3d = None
    return train


def test_options_that_do_not_fit_the_axes_of_the_data(fno, make_job):
    words = {"boundary": ["periodic", "robin", "robin"]}
    job = make_job("darcy", model_name="chonn_network", ckb=words)
    layout = preflight.read_layout(job)
    patches.model_builders(patches.Patches(), fno, job, layout, Watch(), patches.WholeSave())
    with pytest.raises(JobError, match=r"^args\.ckb, on data of 2 axes: boundary: expected .* got"):
        fno.FNO2d(num_channels=1, width=4, modes1=2, modes2=2, initial_step=1)


@pytest.mark.parametrize("family", ["fno", "unet"])
def test_a_checkpoint_says_where_and_which_frames_and_points_its_model_sees(
    train, make_job, family
):
    options = {"reduced_resolution": 2, "reduced_resolution_t": 5}
    job = make_job("1d", family, model_name=f"chonn_{family}", **options)
    save, layout = patches.WholeSave(), preflight.read_layout(job)
    for axes in (1, 2, 3):
        setattr(train, f"{'FNO' if family == 'fno' else 'UNet'}{axes}d", None)
    patches.model_builders(patches.Patches(), train, job, layout, Watch(), save)
    if family == "fno":
        train.FNO1d(num_channels=1, width=4, modes=2, initial_step=2)
        place = {"box": layout.box}
    else:
        train.UNet1d(1, 1)
        place = {"lengths": layout.lengths, "nodes": layout.nodes}
    assert (save.described["every_frame"], save.described["every_point"]) == (5, 2)
    assert place.items() <= save.described["host"].items()


@pytest.mark.filterwarnings("error")
def test_the_first_epoch_goes_on_without_a_warning(train):
    patches.torch_functions(patches.Patches(), train, print, Watch())
    optimizer = train.torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = train.torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    saved = {"epoch": 0, "optimizer_state_dict": optimizer.state_dict()}
    saved[patches.RANDOM] = torch.get_rng_state()
    assert patches.after_its_epoch(saved, schedule)["epoch"] == 1
    assert schedule.get_last_lr() == [0.5]


def test_patches_end_with_training_even_if_it_fails(train):
    undo = patches.Patches()
    calls = []

    def run_training(**kwargs):
        calls.append(kwargs)
        raise KeyboardInterrupt

    train.run_training = run_training

    @contextmanager
    def around():
        calls.append("before")
        yield
        calls.append("after")

    patches.numpy_infty(undo, train)
    patches.training_call(undo, train, a_job(), Watch(), around())
    with pytest.raises(KeyboardInterrupt):
        train.run_training(flnm="x.hdf5", base_path="data")
    assert calls == ["before", {"flnm": "x.hdf5", "base_path": "data/"}]
    assert train.run_training is run_training
    assert train.np is np


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_metric_func_keeps_its_numbers(ndim):
    metrics = pytest.importorskip("pdebench.models.metrics")
    generator = torch.Generator().manual_seed(0)
    pred, target = (torch.rand(2, *(8,) * ndim, 3, 2, generator=generator) for _ in range(2))

    class Seen:
        def update(self, pred, target):
            self.shapes = pred.shape, target.shape

    seen = Seen()
    score = scored(metrics.metric_func, seen)
    mean, full = score(pred, target), score(pred, target, if_mean=False)
    assert seen.shapes == (pred.shape, target.shape)
    assert [tuple(e.shape) for e in mean] == [()] * 5 + [(3,)]
    for averaged, errors in zip(mean, full, strict=True):
        expected = errors.mean() if errors.ndim == 1 else errors.mean(dim=(0, -1))
        torch.testing.assert_close(averaged, expected, equal_nan=True)
    if ndim < 3:
        own = metrics.metric_func(pred, target)
        torch.testing.assert_close([*mean], [*own], equal_nan=True, rtol=0, atol=0)
