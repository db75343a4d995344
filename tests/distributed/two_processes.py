"""Every model on two processes against one.

It prints a table, as in lab/results/logs/two_processes.log, or writes all results to a file::

    python -m torch.distributed.run --nproc_per_node=2 tests/distributed/two_processes.py [FILE]
"""

import copy
import itertools
import json
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from test_every_model import MODELS, moved

from chonn_ops import CKB

WHOLE = StateDictOptions(full_state_dict=True)
STEPS = 4


def share(inputs):
    """This process's half of a batch of two."""
    return [x.chunk(2)[dist.get_rank()] for x in inputs]


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gradients(model, inputs):
    model.zero_grad()
    model(*inputs).square().mean().backward()
    return [None if p.grad is None else whole(p.grad) for p in model.parameters()]


@torch.no_grad()
def difference(found, expected):
    """The norm of the difference of two lists of tensors, relative to that of the second."""
    pairs = list(zip(found, expected, strict=True))
    assert all((a is None) == (b is None) for a, b in pairs)
    above = sum((a - b).abs().square().sum() for a, b in pairs if a is not None)
    return float((above / sum(b.abs().square().sum() for _, b in pairs if b is not None)).sqrt())


def data_parallel(model):
    return DistributedDataParallel(model)


def sharded(model):
    """Each block is sharded on its own, and the weights of Fourier modes, since FSDP2 wants one
    dtype in each group."""
    for module in reversed(list(model.modules())[1:]):
        if isinstance(module, CKB) or any(p.is_complex() for p in module.parameters(recurse=False)):
            fully_shard(module)
    return fully_shard(model)


KINDS = {"DDP": data_parallel, "FSDP2": sharded}


def train(model, optimizer, inputs, steps):
    for _ in steps:
        optimizer.zero_grad()
        model(*inputs).square().mean().backward()
        optimizer.step()


def make_optimizer(model):
    # The adaptive part of Adam magnifies rounding where gradients are near 0.
    return torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-3)


def check(name, kind, folder):
    """What one model does on two processes against one."""
    if kind == "FSDP2" and name.startswith("neuralop FNO"):
        pytest.skip("neuraloperator's FactorizedTensor cannot be sharded")
    wrap = KINDS[kind]
    build, inputs = MODELS[name]
    torch.manual_seed(0)
    plain = build().eval()
    half, other, alone = share(inputs), moved(plain), copy.deepcopy(plain)
    model = wrap(copy.deepcopy(plain))
    gradients(model, half)  # the second pass raises if parameters were unused in the first
    found = {"gradients": difference(gradients(model, half), gradients(alone, inputs))}

    # State dicts load both ways.
    set_model_state_dict(model, tensors(other.state_dict()), options=WHOLE)
    copied = copy.deepcopy(plain)
    copied.load_state_dict({k: whole(v) for k, v in tensors(get_model_state_dict(model)).items()})
    found["state"] = difference(list(copied.parameters()), list(other.parameters()))
    set_model_state_dict(model, tensors(plain.state_dict()), options=WHOLE)

    # One process with the whole batch, two processes, two processes that stop and resume.
    train(alone, make_optimizer(alone), inputs, range(STEPS))
    optimizer = make_optimizer(model)
    train(model, optimizer, half, range(STEPS // 2))
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": tensors(weights), "optimizer": moments}, checkpoint_id=folder)
    train(model, optimizer, half, range(STEPS // 2, STEPS))
    resumed = wrap(other)
    optimizer = make_optimizer(resumed)
    weights, moments = get_state_dict(resumed, optimizer)
    weights = tensors(weights)
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=folder)
    set_state_dict(resumed, optimizer, model_state_dict=weights, optim_state_dict=moments)
    train(resumed, optimizer, half, range(STEPS // 2, STEPS))
    ends = [[whole(p) for p in m.parameters()] for m in (alone, model, resumed)]
    return {**found, "trained": difference(ends[1], ends[0]), "resumed": difference(*ends[2:0:-1])}


def tensors(state):
    """A state dict without the mapping that neuraloperator's models add, its plain ones too, and
    that a wrapped model does not load."""
    return {name: value for name, value in state.items() if name != "_metadata"}


def checks():
    """Results by model and kind, the same in both processes."""
    for name, kind in itertools.product(MODELS, KINDS):
        with tempfile.TemporaryDirectory() as own:
            folder = [own]
            dist.broadcast_object_list(folder)
            try:
                found = check(name, kind, folder[0])
            except pytest.skip.Exception as reason:
                found = {"skipped": str(reason)}
            except Exception:
                found = {"error": traceback.format_exc()}
            dist.barrier()
        yield f"{name}: {kind}", found


def check_trainer():
    """neuraloperator's Trainer with a wrapped model and a distributed sampler, against itself on
    one process: differences of the parameters and of the error after two epochs."""
    try:
        from neuralop import LpLoss, Trainer

        from chonn_plugins.neuralop import CHONNNetwork
    except ImportError:
        return {"skipped": "needs neuraloperator"}
    draw = torch.Generator().manual_seed(0)
    fields = [torch.rand(1, 8, 8, generator=draw) + 0.5 for _ in range(8)]
    data = [{"x": x, "y": x.flip(-1)} for x in fields]

    def trained(wrap, sampler, batch_size):
        torch.manual_seed(0)
        model = CHONNNetwork(1, 1, width=4)
        wrapped = wrap(model)
        optimizer = torch.optim.Adam(wrapped.parameters(), lr=1e-3, eps=1e-3)
        trainer = Trainer(model=wrapped, n_epochs=2, device="cpu", verbose=False)
        error = trainer.train(
            train_loader=DataLoader(data, batch_size, sampler=sampler),
            test_loaders={"test": DataLoader(data, 8)},
            optimizer=optimizer,
            scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 10),
            training_loss=LpLoss(d=2, reduction="mean"),
            eval_losses={"l2": LpLoss(d=2)},
        )["test_l2"]
        return list(model.parameters()), [torch.as_tensor(error)]

    two = trained(DistributedDataParallel, DistributedSampler(data, shuffle=False), 2)
    one = trained(lambda model: model, None, 4)
    return {"parameters": difference(two[0], one[0]), "error": difference(two[1], one[1])}


def main(path=None):
    warnings.filterwarnings("ignore", "FSDP2-wrapped module")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    results = {**dict(checks()), "Trainer": check_trainer()}
    if dist.get_rank() == 0 and path is not None:
        Path(path).write_text(json.dumps(results))
    elif dist.get_rank() == 0:
        print("| model | DDP | FSDP2 |\n| --- | ---: | ---: |")
        for name in MODELS:
            found = [results[f"{name}: {kind}"].get("gradients") for kind in KINDS]
            cells = ("" if value is None else f"{value:.1e}" for value in found)
            print(f"| {name} | {' | '.join(cells)} |")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
