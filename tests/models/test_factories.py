"""`device` and `dtype` as torch.nn has them, and state dicts whose names nothing may change."""

import hashlib

import pytest
import torch
from model_cases import BLOCKS, MODELS

EVERY = {**MODELS, **BLOCKS}
# Digests of the names and shapes in the state dict.
DIGESTS = {
    "CHONNNetwork1d": "c08aa5b373dd",
    "CHONNNetwork2d": "b5bd297ffd6a",
    "CHONNNetwork3d": "6235ae09910a",
    "CKB of scans": "5291aa4b8952",
    "CNOUNet of networks": "855648ba6634",
    "CHONNUNet3d": "cfe25f454de8",
    "CHONNUNet2d": "559788ed14fe",
    "CHONNUNet1d": "bc824c2381e4",
    "CHONNFNO3d": "aa8487a4d8e6",
    "CHONNFNO2d": "3da77c41a507",
    "CHONNFNO1d": "f1de53eb1e00",
    "CHONNStep1d": "d59e6ea1fa69",
    "CHONNStep2d": "c7fdc081a237",
    "CHONNStep3d": "e694c09003e8",
    "CHONNFNO1d of scans": "d87f434b9d39",
    "CHONNFNO2d of scans": "b53625181f3f",
    "CHONNFNO3d of scans": "6dc37fd5cad0",
    "CHONNUNet1d of scans": "2404fa1b43b8",
    "CHONNUNet2d of scans": "c2f3b9f3785b",
    "CHONNUNet3d of scans": "9155874a15de",
    "CNOUNet of scans": "7cb9615e69a7",
    "KirchhoffCell": "2b2b284c0860",
    "NetworkCell": "b6ec365621a6",
    "CKB of networks": "1d9bf089ba6b",
}


@pytest.mark.parametrize("name", EVERY)
def test_dtype_is_that_of_all_it_holds_and_returns(name):
    build, inputs = EVERY[name]
    model = build(dtype=torch.float64)
    tensors = [*model.parameters(), *model.buffers()]
    assert {x.dtype for x in tensors} <= {torch.float64, torch.complex128, torch.int64}
    assert torch.float64 in {x.dtype for x in tensors}
    outputs = model(*(x.double() for x in inputs))
    assert outputs.dtype == torch.float64
    assert outputs.isfinite().all()


@pytest.mark.parametrize("name", EVERY)
def test_on_the_meta_device_nothing_is_allocated(name):
    build, _ = EVERY[name]
    model, real = build(device="meta"), build()
    assert {x.device.type for x in (*model.parameters(), *model.buffers())} == {"meta"}
    shapes = {key: (x.shape, x.dtype) for key, x in real.state_dict().items()}
    assert {key: (x.shape, x.dtype) for key, x in model.state_dict().items()} == shapes


@pytest.mark.parametrize("name", EVERY)
def test_names_of_the_state_dict_stay(name):
    build, _ = EVERY[name]
    state = build(device="meta").state_dict()
    names = "\n".join(f"{key} {tuple(x.shape)}" for key, x in state.items())
    assert hashlib.sha256(names.encode()).hexdigest()[:12] == DIGESTS[name]
