"""What holds for every model in every host: gradients are those of autograd, the state dict holds
the parameters and blocks are called as modules, so averages, copies, checkpoints and hooks work;
integers are numbers."""

import copy
import io
import pickle
import re

import pytest
import torch
import torch.distributed as dist
from model_cases import BLOCKS, coordinates, fields, made
from model_cases import MODELS as OURS
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.func import functional_call, grad, stack_module_state
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils._pytree import tree_map

from chonn_ops import CKB, CKBOptions


def timm_model(**options):
    return pytest.importorskip("timm").create_model("test_chonn", num_classes=3, **options)


def neuralop_fno(**options):
    fno = pytest.importorskip("neuralop.models").FNO
    return fno((4, 4), 1, 1, 6, n_layers=2, spectral_mixer="ckb", **options)


def neuralop_network():
    pytest.importorskip("neuralop")
    from chonn_plugins.neuralop import CHONNNetwork

    return CHONNNetwork(1, 1, width=4)


def pdebench(name, ndim, host, **options):
    from chonn_plugins.pdebench import models

    return getattr(models, name).build(ndim, host, options)


ONE, TWO = ({"num_channels": 1, "initial_step": n} for n in (1, 2))
LINE, PLANE = (8,), (16, 16)
MODELS = {
    **BLOCKS,
    **{name: case for name, case in OURS.items() if "UNet3d of scans" not in name},
    "CHONNFNO2d, downsample": (
        made("CHONNFNO2d", 1, 2, 2, 4, 1, ckb=CKBOptions("scan"), downsample=2),
        (fields(2, 6, 6, 1), coordinates(6, 6)),
    ),
    "timm": (timm_model, (fields(2, 3, 64, 64),)),
    "timm, networks": (lambda: timm_model(cell="network"), (fields(2, 3, 64, 64),)),
    "neuralop FNO": (neuralop_fno, (fields(2, 1, 8, 8),)),
    "neuralop FNO, scans": (
        lambda: neuralop_fno(spectral_mixer_kwargs={"cell": "scan"}),
        (fields(2, 1, 8, 8),),
    ),
    "neuralop CHONNNetwork": (neuralop_network, (fields(2, 1, 8, 8),)),
    "PDEBench U-Net": (
        lambda: pdebench(
            "chonn_unet", 2, {"in_channels": 1, "out_channels": 1, "init_features": 2}
        ),
        (fields(2, 1, *PLANE),),
    ),
    "PDEBench FNO": (
        lambda: pdebench("chonn_fno", 1, {**ONE, "modes": 2, "width": 4}),
        (fields(2, *LINE, 1), coordinates(*LINE)),
    ),
    **{
        f"PDEBench {kind}": (
            lambda kind=kind, host=host: pdebench("chonn_network", 2, host, model=kind, width=4),
            (fields(2, 6, 6, host["initial_step"]), coordinates(6, 6)),
        )
        for kind, host in (("steady", ONE), ("step", TWO))
    },
}


# `make check` takes one of a kind.
QUICK = ("CHONNNetwork2d", "CHONNUNet1d", "CHONNFNO2d")
QUICK += ("CNOUNet of networks", "CHONNStep2d")
QUICK += ("timm", "neuralop FNO", "neuralop CHONNNetwork", "PDEBench step")


@pytest.fixture(
    params=[pytest.param(x, marks=() if x in QUICK else pytest.mark.thorough) for x in MODELS]
)
def case(request):
    build, inputs = MODELS[request.param]
    torch.manual_seed(0)
    return build().eval(), inputs


@pytest.fixture
def own(case, request):
    """A case whose layers are ours: neuraloperator's own write in place, which vmap refuses, and
    take neither integers nor empty batches."""
    if "neuralop FNO" in request.node.name:
        pytest.skip("these layers are neuraloperator's")
    return case


# Programs of volumes have nothing that those of planes lack, and take a minute each, as that of a
# U-Net of networks does, whose lines have all of it; cells are parts of blocks.
LONG = ("CHONNUNet2d", *(name for name in MODELS if "3d" in name or "Cell" in name))


def programs():
    """Names of models for tests that trace, which takes seconds each."""
    names = (x for x in MODELS if x not in LONG)
    kinds = ((x, pytest.mark.thorough if x in QUICK else pytest.mark.slow) for x in names)
    return pytest.mark.parametrize("name", [pytest.param(x, marks=mark) for x, mark in kinds])


def moved(model):
    """A copy whose parameters are all others."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5).add_(0.01)
    return other


def assert_same_parameters(a, b):
    pairs = zip(a.named_parameters(), b.parameters(), strict=True)
    assert [name for (name, p), q in pairs if not torch.equal(p, q)] == []


def gradients(model, *batches, scale=1.0):
    """What several backward passes leave in ``parameter.grad``."""
    model.zero_grad()
    for inputs in batches:
        (scale * model(*inputs).square().mean() / len(batches)).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def test_gradients_are_those_of_autograd(case):
    """No hook changes them, whatever gradients came before."""
    model, inputs = case
    assert not any(m._backward_hooks or m._backward_pre_hooks for m in model.modules())
    for parameter in model.parameters():
        assert not parameter._backward_hooks
        assert not parameter._post_accumulate_grad_hooks
    gradients(model, inputs)
    found = gradients(model, inputs, scale=1000.0)
    used = [p for p in model.parameters() if p.grad is not None]
    expected = torch.autograd.grad(1000 * model(*inputs).square().mean(), used)
    torch.testing.assert_close(found, list(expected), rtol=1e-4, atol=1e-6)


def test_every_parameter_learns(case, assert_learns, request):
    """Away from where heads start, at zero. PDEBench's FNO3d has norms that it never calls."""
    if request.node.callspec.params["case"] == "timm":
        pytest.skip("tests/timm has it, on larger images")
    model, inputs = case
    model = moved(model).train()
    model(*inputs).sin().sum().backward()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad or re.match(r"bn\d\.", name):
            parameter.grad = torch.ones_like(parameter)
    assert_learns(model)


def test_two_micro_batches_are_one_batch(case):
    """In single precision; pairs of gradients that cancel each other leave its rounding."""
    model, inputs = case
    halves = zip(*(x.chunk(2) for x in inputs), strict=True)
    parts, whole = gradients(model, *halves), gradients(model, inputs)
    for part, expected in zip(parts, whole, strict=True):
        assert (part - expected).norm() <= 1e-3 * expected.norm() + 1e-6


def test_the_state_dict_holds_the_parameters(case):
    model, _ = case
    state = model.state_dict()
    assert [n for n, p in model.named_parameters() if state[n].data_ptr() != p.data_ptr()] == []


def test_averages_follow(case):
    model, inputs = case
    new = moved(model)
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay=0.0))
    averaged.update_parameters(model)  # the first one copies
    averaged.update_parameters(new)
    assert_same_parameters(averaged.module, new)
    timm_utils = pytest.importorskip("timm.utils")
    if "_metadata" not in model.state_dict():  # neuraloperator's models, which timm's refuse
        for kind in (timm_utils.ModelEmaV2, timm_utils.ModelEmaV3):
            ema = kind(model, decay=0.0)
            ema.update(new)
            assert_same_parameters(ema.module, new)
    with torch.no_grad():
        written, state = copy.deepcopy(model), new.state_dict()
        for name, value in written.state_dict().items():
            if isinstance(value, torch.Tensor):
                value.copy_(state[name])
        torch.testing.assert_close(written(*inputs), new(*inputs), rtol=0, atol=0)


def test_copies_compute_the_same(case):
    model, inputs = case
    assigned = moved(model)
    assigned.load_state_dict(model.state_dict(), assign=True)
    others = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), assigned]
    with torch.no_grad():
        expected = model(*inputs)
        for other in others:
            assert_same_parameters(other, model)
            torch.testing.assert_close(other.eval()(*inputs), expected, rtol=0, atol=0)


@pytest.mark.parametrize("assign", [False, True])
def test_models_made_on_the_meta_device_compute_the_same(case, request, assign):
    model, inputs = case
    with torch.device("meta"):
        other = MODELS[request.node.callspec.params["case"]][0]().eval()
    if not assign:
        other.to_empty(device="cpu")
    other.load_state_dict(model.state_dict(), assign=assign)
    with torch.no_grad():
        torch.testing.assert_close(other(*inputs), model(*inputs), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("convert", "close"),
    [
        (lambda m: m.to(torch.float64), 1e-5),
        (lambda m: m.double(), 1e-5),
        (lambda m: m.to("cpu", torch.float32), 0),
        (lambda m: m.bfloat16(), 0.1),
    ],
    ids=["to float64", "double", "to float32", "bfloat16"],
)
def test_converted_models_compute_the_same(own, request, convert, close):
    """Complex weights, too, which PyTorch would make real or leave as they are. neuraloperator's
    FNO has such weights."""
    (model, inputs), name = own, request.node.name
    with torch.no_grad():
        expected = model(*inputs)
        other = convert(copy.deepcopy(model))
        dtype = next(p.dtype for p in other.parameters() if not p.is_complex())
        wide = torch.promote_types(dtype, torch.float32).to_complex()
        assert all(p.dtype == wide for p in other.parameters() if p.is_complex())
        found = other(*(x.to(dtype) for x in inputs))
    # Potentials of a cell alone are in single precision at least.
    assert found.dtype == (
        torch.promote_types(dtype, torch.float32) if "NetworkCell" in name else dtype
    )
    assert (found.to(expected) - expected).norm() <= close * expected.norm()


def test_gradients_of_each_sample_under_vmap(own):
    """By `functional_call`, whose parameters are plain tensors; coordinates are mapped, too."""
    model, inputs = own
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters, *sample):
        y = functional_call(model, parameters, tuple(x[None] for x in sample))
        return y.square().mean()

    mapped = (None, *[0] * len(inputs))
    found = torch.vmap(grad(loss), mapped)(parameters, *inputs)
    for index in range(2):
        sample = tuple(x[index : index + 1] for x in inputs)
        model.zero_grad()
        model(*sample).square().mean().backward()
        own = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        scale = max(g.norm() for g in own.values())
        for name, gradient in own.items():
            off = (found[name][index] - gradient).norm()
            assert off <= 1e-3 * gradient.norm() + 1e-4 * scale, name


def test_an_ensemble_under_vmap(own):
    """After it the model has its own parameters and buffers again. Large weights amplify rounding
    in timm's model: in double precision the difference is 1e-12."""
    model, inputs = own
    members = [model, moved(model)]
    with torch.no_grad():
        stacked = stack_module_state(members)
        found = torch.vmap(lambda *state: functional_call(model, state, inputs))(*stacked)
        expected = torch.stack([member(*inputs) for member in members])
    assert (found - expected).norm() <= 1e-2 * expected.norm()


def test_shapes_are_known_without_values(case):
    """On the meta device, by which programs plan memory; gradients, too."""
    model, inputs = case
    other = copy.deepcopy(model).to("meta")
    y = other(*(x.to("meta") for x in inputs))
    y.abs().sum().backward()
    with torch.no_grad():
        assert y.shape == model(*inputs).shape
    assert all(p.grad.is_meta for p in other.parameters() if p.grad is not None)


def test_a_batch_may_be_empty(own):
    """The last one of an evaluation on several processes, say."""
    model, inputs = own
    y = model(*(x[:0] for x in inputs))
    y.sum().backward()
    with torch.no_grad():
        assert y.shape == (0, *model(*inputs).shape[1:])


def test_distributed_checkpoints(case):
    model, _ = case
    new = moved(model)
    optimizer, fresh = (torch.optim.Adam(m.parameters()) for m in (model, new))
    weights, state = get_state_dict(model, optimizer)
    set_state_dict(new, fresh, model_state_dict=weights, optim_state_dict=state)
    assert_same_parameters(new, model)


def of_size(inputs, batch, *factors):
    """Inputs of another batch, on a grid as many times as large along each axis."""
    x, *places = inputs
    shape, first = [batch, *x.shape[1:]], 1 if places else 2  # with places channels are last
    for axis in range(first, first + x.dim() - 2):
        shape[axis] *= factors[min(axis - first, len(factors) - 1)]
    if not places:
        return (fields(*shape),)
    return fields(*shape), coordinates(*shape[1:-1])[:1].repeat(batch, *[1] * (len(shape) - 1))


@programs()
def test_exports_for_any_batch_and_grid(name):
    """And is saved and loaded. A U-Net's grid has more than 16 points. PyTorch 2.15 fixes the grid
    at MaxPool1d, neuraloperator 2.0 all sizes of its FNO, with and without our blocks."""
    build, small = MODELS[name]
    torch.manual_seed(0)
    model, inputs, other = build().eval(), of_size(small, 2, 2), of_size(small, 3, 3, 2)
    free = range(inputs[0].dim())
    if "UNet1d" in name:
        free, other = range(1), of_size(small, 3, 2)
    if "neuralop FNO" in name:
        free, other = range(0), of_size(small, 2, 2)
    any_size = dict.fromkeys(free, torch.export.Dim.AUTO)
    program = torch.export.export(model, inputs, dynamic_shapes=(any_size,) * len(inputs))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    with torch.no_grad():
        torch.testing.assert_close(loaded(*other), model(*other), rtol=1e-4, atol=1e-5)


@programs()
def test_compiles_as_one_graph(name):
    """tensorly breaks the graph of neuraloperator's FNO, with and without our blocks."""
    build, inputs = MODELS[name]
    torch.compiler.reset()
    torch.manual_seed(0)
    model = build().eval()
    whole = "neuralop FNO" not in name
    compiled = torch.compile(model, fullgraph=whole, backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs), model(*inputs), rtol=1e-4, atol=1e-5)
    found, expected = gradients(compiled, inputs), gradients(model, inputs)
    for gradient, reference in zip(found, expected, strict=True):
        assert (gradient - reference).norm() <= 1e-3 * reference.norm() + 1e-6
    if "UNet" not in name and "neuralop FNO" not in name and not inputs[1:]:
        other = of_size(inputs, 2, 2)
        torch.testing.assert_close(compiled(*other), model(*other), rtol=1e-4, atol=1e-5)


def modules_of_ours(model):
    """Names of our modules with parameters, inner ones first; a dictionary is never called."""
    ours = {
        module: name
        for name, module in model.named_modules()
        if type(module).__module__.startswith("chonn_")
        and next(module.parameters(), None) is not None
        and not isinstance(module, torch.nn.ParameterDict)
    }
    return dict(reversed(ours.items()))


def test_hooks_run(case):
    """PDEBench's FNO3d has norms that it never calls; they are not ours."""
    model, inputs = case
    ours = modules_of_ours(model)
    called = set()
    for module in ours:
        module.register_forward_hook(lambda module, *_: called.add(module))
    with torch.no_grad():
        model(*inputs)
    assert [name for module, name in ours.items() if module not in called] == []


def test_hooks_on_blocks_see_and_replace_what_blocks_return(case):
    """Features are extracted by hooks, and what a hook returns takes the place of the output."""
    model, inputs = case
    blocks = [m for m in model.modules() if isinstance(m, CKB)]
    if not blocks:
        pytest.skip("this model has cells without blocks")
    with torch.no_grad():
        expected, seen = model(*inputs), []
        hooks = [b.register_forward_hook(lambda *call: seen.append(call[-1])) for b in blocks]
        torch.testing.assert_close(model(*inputs), expected, rtol=0, atol=0)
        for hook in hooks:
            hook.remove()
        assert len(seen) == len(blocks)
        for features in seen:
            parts = features if isinstance(features, tuple) else (features,)
            assert all(part.shape[0] == 2 and part.isfinite().all() for part in parts)
        blocks[0].register_forward_hook(lambda *call: tree_map(lambda t: 2 * t, call[-1]))
        assert not torch.equal(model(*inputs), expected)


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    store = tmp_path_factory.mktemp("store") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module:UserWarning")
@pytest.mark.parametrize("each", ["block", pytest.param("module", marks=pytest.mark.thorough)])
def test_sharded_models_compute_the_same(case, each, one_process, request):
    """`fully_shard` gathers a module's parameters when the module is called. neuraloperator's
    `FactorizedTensor` cannot be sharded, so its FNOs are sharded in our modules only."""
    model, inputs = case
    sharded = copy.deepcopy(model)
    ours, theirs = modules_of_ours(sharded), "neuralop FNO" in request.node.name
    for module in reversed(list(sharded.modules())[1:]):
        # FSDP2 wants one dtype in each group, so the weights of Fourier modes get their own.
        modes = any(p.is_complex() for p in module.parameters(recurse=False)) and not theirs
        if modes or isinstance(module, CKB) or (each == "module" and module in ours):
            fully_shard(module, mesh=one_process)
    if not theirs:
        fully_shard(sharded, mesh=one_process)
    results = []
    for each_model in (model, sharded):
        y = each_model(*inputs)
        y.square().mean().backward()
        results.append(y)
    torch.testing.assert_close(*results)
    least = 1e-6 * max(p.grad.abs().max() for p in model.parameters() if p.grad is not None)
    for p, q in zip(model.parameters(), sharded.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            found = q.grad.full_tensor() if isinstance(q.grad, DTensor) else q.grad
            torch.testing.assert_close(found, p.grad, rtol=1e-4, atol=least)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_integers_are_numbers(case, request, dtype):
    """A medium of zeros and ones, or an image. neuraloperator's own layers refuse them."""
    model, (x, *rest) = case
    whole = (10 * (x - 0.5)).to(dtype)
    with torch.no_grad():
        if "neuralop FNO" in request.node.name:
            with pytest.raises(RuntimeError):
                model(whole)
            return
        for kind in (torch.float32, torch.float64):
            rest = [places.to(kind) for places in rest]
            found, expected = model.to(kind)(whole, *rest), model(whole.to(kind), *rest)
            assert found.dtype == kind
            torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_integers_are_numbers_to_replicas(own):
    """`DataParallel` calls copies whose weights are plain tensors, so that they have no
    parameters."""
    model, (x, *rest) = own
    replica = copy.deepcopy(model)
    for part in replica.modules():
        for name, weight in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            setattr(part, name, weight.detach())
    whole = (10 * (x - 0.5)).long()
    with torch.no_grad():
        found, expected = replica(whole, *rest), model(whole.float(), *rest)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats_are_refused_in_our_words(case, request, dtype):
    """PyTorch's words name an operand of a matrix product."""
    model, (x, *rest) = case
    theirs = "neuralop FNO" in request.node.name  # whose own layers see the input first
    message = f"[xu]: expected dtype torch.float32, as the parameters have, got {dtype}"
    refused = RuntimeError if theirs else ValueError
    with pytest.raises(refused, match="type" if theirs else message):
        model(x.to(dtype), *rest)


def test_autocast_and_strides_change_rounding_only(case):
    model, inputs = case
    expected = model(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(*inputs)
        model(inputs[0].bfloat16(), *inputs[1:])
    assert (found.float() - expected).norm() <= 0.1 * expected.norm()
    found.float().square().mean().backward()
    # PyTorch's gradients of weights of Conv3d read memory that nobody wrote, in bfloat16 on 2^3.
    volumes = [m.weight for m in model.modules() if isinstance(m, torch.nn.Conv3d)]
    for p in model.parameters():
        assert p.grad is None or p.grad.isfinite().all() or any(p is x for x in volumes)
    found = model(*(x.transpose(0, -1).contiguous().transpose(0, -1) for x in inputs))
    assert (found - expected).norm() <= 1e-4 * expected.norm()


def test_output_and_gradients_are_those_of_the_reference(own, monkeypatch):
    """The operators by the backend of this machine, and by the reference's loops and matrices."""
    model, inputs = copy.deepcopy(own[0]).double(), [x.double() for x in own[1]]
    leaves = [inputs[0].requires_grad_(), *(p for p in model.parameters() if p.requires_grad)]
    results = []
    for backend in ("", "reference"):
        monkeypatch.setenv("CHONN_SCAN_BACKEND", backend)
        monkeypatch.setenv("CHONN_NETWORK_BACKEND", backend)
        torch.manual_seed(1)
        y = model(*inputs)
        results.append((y, *torch.autograd.grad(y.sin().sum(), leaves, materialize_grads=True)))
    for actual, expected in zip(*results, strict=True):
        assert actual.isfinite().all()
        # Networks are solved to 1e-5.
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)
