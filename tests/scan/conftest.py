"""Selection of implementations."""

import emulated
import pytest
import torch

from chonn_ops.scan import cuda


@pytest.fixture
def backend(request, monkeypatch):
    """The backend of an implementation, whose instruction set or emulation is selected."""
    name, _, which = request.param.partition(" ")
    if name == "cpu" and which:
        monkeypatch.setenv("CHONN_SCAN_ISA", which)
    if which == "emulated":
        emulated.install(monkeypatch, emulated.card())
    yield name
    if which == "emulated":
        cuda.plan_of.cache_clear()


@pytest.fixture
def poisoned_memory():
    """`torch.empty` returns NaN: nothing may be read, or returned, before it is written."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)
