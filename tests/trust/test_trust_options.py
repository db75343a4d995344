"""Options of blocks and of the plugins: every set of them is refused in a sentence, or works."""

import pytest
import torch

pytest.importorskip("hypothesis")
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from chonn_ops import CKB, CKBOptions
from chonn_ops.nn.geometry import NODES
from chonn_ops.nn.layers import NORMS
from chonn_ops.nn.options import CELLS, STAGE_INPUTS, TOPOLOGIES
from chonn_ops.scan import BOUNDARIES, DIRECTIONS

pytest.importorskip("omegaconf")
from chonn_plugins.pdebench import JobError
from chonn_plugins.pdebench.job import resolve

draws = settings(max_examples=60, deadline=None, derandomize=True, database=None)
WORDS = (*BOUNDARIES, "robin")
GOOD = {
    "order": st.integers(0, 3),
    "d_state": st.integers(1, 4),
    "expand": st.integers(1, 2),
    "norm": st.sampled_from(tuple(NORMS)),
    "directions": st.sampled_from(tuple(DIRECTIONS)),
    "boundary": st.one_of(
        st.sampled_from(WORDS), st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)
    ),
    "topology": st.sampled_from(TOPOLOGIES),
    "stage_input": st.sampled_from(STAGE_INPUTS),
    "constrained": st.booleans(),
    "selective_norm": st.sampled_from((None, True, False)),
    "cell": st.sampled_from(tuple(CELLS)),
    "num_networks": st.integers(1, 3),
    "tol": st.sampled_from((1e-2, 1e-3)),
    "nodes": st.sampled_from(tuple(NODES)),
    "selective": st.booleans(),
}
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from((10**30, -(10**30))),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.one_of(st.integers(-2, 2), st.sampled_from(WORDS)), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
options = st.fixed_dictionaries({}, optional=GOOD)


def test_every_option_is_drawn():
    assert {name for cell in CELLS for name in CKBOptions(cell).to_mapping()} == set(GOOD)


# Refusals are no success for these.
TAKEN = ({}, {"order": 3, "expand": 2}, {"cell": "scan", "directions": "cross"})


@draws
@given(given=options, axes=st.integers(1, 3))
@example(given=TAKEN[0], axes=1)
@example(given=TAKEN[1], axes=2)
@example(given=TAKEN[2], axes=3)
def test_options_that_are_taken_make_a_block(given, axes):
    try:
        ckb = CKBOptions.from_mapping(given)
        assume(ckb.order != 0)
        block = CKB(4, axes, **vars(ckb))
    except ValueError as error:
        assert "expected" in str(error)  # noqa: PT017 - it may also be taken
        assert given not in TAKEN
        return
    assert CKBOptions.from_mapping(ckb.to_mapping()) == ckb
    x = torch.randn(1, 4, *(5,) * axes, requires_grad=True)
    y = block(x)
    assert y.shape == x.shape
    y.sum().backward()
    assert y.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@draws
@given(given=options, name=st.sampled_from(sorted(GOOD)), value=ANYTHING)
@example(given={}, name="order", value=2)
def test_other_values_are_refused_by_name(given, name, value):
    try:
        ckb = CKBOptions.from_mapping({**given, name: value})
    except ValueError as error:
        assert "expected" in str(error)  # noqa: PT017 - it may also be taken
        assert {**given, name: value} != {"order": 2}
        return
    # What is taken can be taken again, and hashed as a value is.
    assert CKBOptions.from_mapping(ckb.to_mapping()) == ckb
    hash(ckb)


MODELS = ("chonn_unet", "chonn_fno", "chonn_network")
PLACES = {
    "stages": st.sampled_from((["bottleneck"], ("encoder4",), "bottleneck", [], 3, None)),
    "downsample": st.integers(-1, 2),
    "width": st.integers(-1, 6),
    "depth": st.integers(-1, 2),
    "mlp_ratio": st.sampled_from((1, 2, 0, 1.5)),
    "patch": st.integers(-1, 2),
    "coordinates": st.sampled_from((True, False, 1, "x")),
}


@draws
@given(
    model=st.sampled_from(MODELS),
    given=options,
    places=st.fixed_dictionaries({}, optional=PLACES),
    other=st.dictionaries(st.sampled_from((*GOOD, *PLACES, "x")), ANYTHING, max_size=1),
    seed=st.sampled_from((None, 0, 7)),
)
@example(model="chonn_unet", given={"order": 0}, places={}, other={}, seed=7)
def test_pdebench_jobs_are_refused_by_name_or_keep_what_was_set(model, given, places, other, seed):
    ckb = {**given, **places, **other}
    args = {"model_name": model, "ckb": ckb, "filename": "f.hdf5", "single_file": True}
    args |= {} if seed is None else {"seed": seed}
    try:
        job = resolve(args)
    except JobError as error:
        text = str(error)
        assert text.startswith(("args.ckb: ", "args.ckb."))
        assert any(name in text for name in (*ckb, "expected"))
        assert ckb != {"order": 0}
        return
    assert job.options == ckb
    complete = job.model.complete(job.options)
    assert all(complete[name] == value for name, value in ckb.items())
    # A file's name: no folder in it, and other options have other names.
    assert "/" not in job.suffix
    plain = resolve({**args, "ckb": {}})
    changed = {k for k, v in ckb.items() if v != job.model.defaults_of(job.options).get(k)}
    assert (job.suffix == plain.suffix) == (not changed)


@draws
@given(given=st.fixed_dictionaries({}, optional=GOOD), name=st.sampled_from(("cell", "order", "x")))
@example(given={}, name="cell")
@example(given={}, name="x")
def test_neuraloperator_mixers_are_refused_by_name_or_run(given, name):
    models = pytest.importorskip("neuralop.models")
    kwargs = {**given, **({"x": 1} if name == "x" else {})}
    try:
        model = models.FNO(
            (4, 4), 1, 1, 4, n_layers=1, spectral_mixer="ckb", spectral_mixer_kwargs=kwargs
        )
    except (ValueError, TypeError) as error:
        text = str(error)
        assert "expected" in text or (name == "x" and "'x'" in text)
        assert kwargs
        return
    assert name != "x"
    assert model(torch.randn(1, 1, 8, 8)).isfinite().all()
