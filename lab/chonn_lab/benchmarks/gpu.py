"""Scan, networks and training steps on a CUDA GPU, checked, then timed beside their peers.

    chonn-lab bench gpu               needs CUDA; writes lab/results/gpu.json
    chonn-lab bench gpu --smoke       everything at tiny sizes on the CPU: networks by Triton's
                                      interpreter, scans by PyTorch; needs another --output

Sections, the most valuable first; each is written as it ends, and what fails is noted
    checks      outputs and gradients of scans, networks and whole models against the CPU's in
                float64. Nothing is timed if one is off by more than its bound
    sections    training steps of models on 16 samples of 64 x 64 points: forward, backward, Adam.
                The model named FNO is `CHONNFNO2d` without cells, which is the FNO of PDEBench.
                Then scans and networks
    vision      training steps of timm's backbones on 64 images under bfloat16 autocast
    compiled    the training steps by `torch.compile`

Contenders
    chonn-ops   backend "cuda" for scans, "triton" for networks
    mamba-ssm   `selective_scan_fn`, in its own layout (B, D, L)
    torch-sla   conjugate gradients for a batch of matrices
    cuDSS       sparse Cholesky by nvmath-python; its plan is made beforehand, in `plan_ms`
    Cholesky    PyTorch's, of dense matrices, where they take at most 16 GiB

Columns
    forward, both   _ms: median of CUDA events; without autograd, and with gradients of all inputs
    step, autocast, recorded, compiled
                    _ms: a training step launched one by one, under bfloat16 autocast, replayed as
                    a CUDA graph, and compiled
    kernels         launches of a step, and whether one waits for the GPU (`synchronises`)
    peak_MiB        of PyTorch on the card during forward and backward, above those before
"""

import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from chonn_lab.benchmarks.harness import (
    Call,
    Row,
    Run,
    gradients,
    inference,
    main_of,
    milliseconds,
    training_step,
)
from chonn_lab.benchmarks.models import step_parts
from chonn_lab.benchmarks.network import Case, Networks, Solver, entries, make, ours, torch_sla
from chonn_lab.benchmarks.scan import make_inputs
from chonn_ops import Circuit, Direct, kirchhoff_scan

SHAPES = (
    ((8, 4096, 1536, 16), torch.bfloat16),
    ((8, 1024, 64, 16), torch.float32),
    ((2, 3136, 192, 1), torch.float32),
    ((1, 1_000_000, 16, 16), torch.float32),
)
CASES = (
    Case((64, 64), 128),
    Case((64, 64), 400),
    Case((256, 256), 32),
    Case((512, 512), 8),
    Case((32, 32, 32), 32),
    Case((1_000_000,), 4),
)
VISION = ("convnext_tiny", "chonn_tiny", "deit_small_patch16_224", "swin_tiny_patch4_window7_224")
# The largest error of values and of gradients in float32, over the largest of each.
BOUND = 1e-3
# Samples and points a side of training steps.
SIZES = {"cpu": (1, 32), "cuda": (16, 64)}
DENSE_BYTES = 2**34
TINY_SHAPES = (((1, 5, 3, 2), torch.float32),)
TINY_CASES = (Case((5, 4), 2), Case((7,), 2))


def timed(call: Call) -> list[float]:
    """Milliseconds of three calls by CUDA events."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]


def peak_of(call: Call) -> int:
    """Bytes on the card during a second call, above those before."""
    call()
    if not torch.cuda.is_available():
        return 0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return torch.cuda.max_memory_allocated() - before


def error_of(device: str, function: Callable[..., Any], inputs: Sequence[Tensor]) -> float:
    """The largest error of an output and of all gradients, over the largest of each."""
    results = []
    for place, dtype in ((device, torch.float32), ("cpu", torch.float64)):
        leaves = [x.detach().to(place, dtype).requires_grad_() for x in inputs]
        # By default convolutions of float32 have ten bits on a GPU.
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            y = function(*leaves)
            results.append((y, *torch.autograd.grad(y.square().mean(), leaves)))
    pairs = ((a.detach().cpu().double(), b.detach()) for a, b in zip(*results, strict=True))
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def checks(run: Run) -> Row:
    device = begun(run)
    names = ("CHONNNetwork2d", "CHONNUNet2d")
    n, shape = (16, (1, 33, 3, 2)) if run.smoke else (64, (3, 1000, 33, 5))
    errors = {"scan": error_of(device, kirchhoff_scan, make_inputs(shape, torch.float32))}
    case = Case((9, 7) if run.smoke else (130, 100), 2)
    circuits = make(case, "cpu")
    fields = [x[..., None] for x in (circuits.source, circuits.leak, *circuits.conductance)]

    def solve(source: Tensor, leak: Tensor, *g: Tensor) -> Tensor:
        return Circuit(g, leak).solve(source, Direct())

    errors["network"] = error_of(device, solve, fields)
    for name in names:
        model, (x,), _ = step_parts(models()[name], 2, n)
        model.eval()
        with torch.no_grad():  # at the start some gradients vanish
            for weights in model.parameters():
                weights += 0.1 * torch.randn_like(weights)

        def call(x: Tensor, *weights: Tensor, model: Any = model) -> Tensor:
            held = dict(zip((k for k, _ in model.named_parameters()), weights, strict=True))
            others = {k: v.to(x) for k, v in model.named_buffers() if v.is_floating_point()}
            return torch.func.functional_call(model, held | others, (x,))

        errors[name] = error_of(device, call, (x, *model.parameters()))
    print(errors)
    if wrong := {name: error for name, error in errors.items() if not error <= BOUND}:
        raise SystemExit(f"expected errors of at most {BOUND}, got {wrong}: nothing is timed")
    return errors


def timed_passes(forward: Call, both: Call) -> Row:
    return {"peak_bytes": peak_of(both), "calls": {"forward": forward, "both": both}}


def scans(run: Run, device: str, shape: tuple[int, ...], dtype: torch.dtype) -> Row:
    inputs = [t.to(device) for t in make_inputs(shape, dtype)]

    def contender(function: Callable[..., Tensor], arguments: list[Tensor] = inputs) -> Row:
        return timed_passes(inference(function, arguments), gradients(function, arguments))

    def mamba() -> Row:
        """mamba-ssm's scan with inputs in its own layout."""
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

        u, delta, decay, b, c, d = inputs
        turned = [t.transpose(1, 2).contiguous() for t in (u, delta, b, c)]
        return contender(selective_scan_fn, [*turned[:2], -decay, *turned[2:], d])

    # On the CPU, where the kernels do not run, PyTorch stands in for them.
    ours = functools.partial(kirchhoff_scan, backend="torch" if device == "cpu" else "cuda")
    makes = {"chonn-ops": lambda: contender(ours), "mamba-ssm": mamba}
    return run.section(makes, shape=[*shape], dtype=str(dtype)[6:])


def factored(
    networks: Networks, place: tuple[Tensor, Tensor], factor: Callable[[], Any], **about: Any
) -> Solver:
    """A peer without gradients, which factors matrices whose entries are in this place. The
    gradients of values and source take one more solve with the factors."""
    (row, column), source = place, networks.source.flatten(1)
    weight = torch.ones_like(source)

    def both() -> tuple[Tensor, Tensor]:
        solve = factor()
        v, w = solve(source), solve(weight)
        return -w[:, row] * v[:, column], w

    return Solver(lambda: factor()(source).view_as(networks.source), both, about)


def cholesky(networks: Networks) -> Solver:
    """Dense matrices one by one: a batch took longer on an H100."""
    row, column, values = entries(networks)
    empty = values.new_zeros(2 * [int(row[-1]) + 1])

    def factor() -> Any:
        lower = [torch.linalg.cholesky(empty.index_put((row, column), v)) for v in values]
        return lambda b: torch.cat(
            [torch.cholesky_solve(x[:, None], a).mT for x, a in zip(b, lower, strict=True)]
        )

    return factored(networks, (row, column), factor)


def cudss(networks: Networks) -> Solver:
    """All matrices at once, by their upper triangles."""
    from nvmath.sparse import advanced  # pyright: ignore[reportMissingImports]

    row, column, values = entries(networks)
    upper = row <= column
    held, n = values[:, upper], int(row[-1]) + 1
    starts = torch.searchsorted(row[upper], torch.arange(n + 1, device=row.device))
    places = [x.int().repeat(len(held), 1) for x in (starts, column[upper])]
    matrices = torch.sparse_csr_tensor(*places, held, (len(held), n, n))
    b = torch.empty_like(networks.source).view(len(held), n, 1)
    options = {
        "sparse_system_type": advanced.DirectSolverMatrixType.SPD,
        "sparse_system_view": advanced.DirectSolverMatrixViewType.UPPER,
    }
    solver = advanced.DirectSolver(matrices, b, options=options)

    def solve(source: Tensor) -> Tensor:
        b.copy_(source[..., None])
        return solver.solve()[..., 0]

    def factor() -> Any:
        solver.factorize()
        return solve

    return factored(networks, (row, column), factor, plan_ms=milliseconds(solver.plan))


def networks(run: Run, device: str, case: Case) -> Row:
    circuits = make(case, device)

    def contender(build: Callable[..., Solver]) -> Row:
        solver = build(circuits)
        return {**solver.about, **timed_passes(solver.forward, solver.both)}

    triton = functools.partial(ours, backend="triton")
    builds = {"chonn-ops": triton, "torch-sla": torch_sla, "cuDSS": cudss}
    if len(circuits) * 4 * circuits.source[0].numel() ** 2 <= DENSE_BYTES:
        builds["Cholesky"] = cholesky
    makes = {name: functools.partial(contender, build) for name, build in builds.items()}
    return run.section(makes, **case.label())


def models() -> dict[str, Callable[[], torch.nn.Module]]:
    from chonn_ops import CHONNFNO2d, CHONNNetwork2d, CHONNUNet2d, CKBOptions

    fno: dict[str, Any] = {"modes1": 12, "modes2": 12, "width": 20, "initial_step": 1}
    return {
        "FNO": lambda: CHONNFNO2d(1, **fno, ckb=CKBOptions(order=0)),
        "CHONNFNO2d": lambda: CHONNFNO2d(1, **fno),
        "CHONNNetwork2d": lambda: CHONNNetwork2d(1, 1),
        "CHONNUNet2d": lambda: CHONNUNet2d(1, 1),
    }


def begun(run: Run) -> str:
    """The device, after what has to be set before the first section."""
    if run.smoke:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported
        return "cpu"
    if not torch.cuda.is_available():
        raise SystemExit("expected a CUDA GPU, found none (--smoke runs without)")
    run.visit = timed
    return "cuda"


def recorded(step: Call) -> Call:
    """Replays a step as a CUDA graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def launches(step: Call) -> Row:
    """Kernels of a step, and whether it waits for the GPU."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step()
        torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
        waits = False
    except RuntimeError:
        waits = True
    finally:
        torch.cuda.set_sync_debug_mode("default")
    kernels = [x for x in profile.events() if x.device_type == torch.autograd.DeviceType.CUDA]
    return {"kernels": len(kernels), "synchronises": waits}


def under_autocast(model: torch.nn.Module, device: str) -> Callable[..., Tensor]:
    def call(*inputs: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            return model(*inputs).float()

    return call


def steps(run: Run, device: str) -> Row:
    """Training steps of models."""
    samples, n = SIZES[device]

    def make(name: str) -> Row:
        model, inputs, target = step_parts(models()[name], samples, n, device)
        step = training_step(model, inputs, target)
        half = training_step(model, inputs, target, under_autocast(model, device))
        row: Row = {"peak_bytes": peak_of(step), "calls": {"step": step, "autocast": half}}
        if device == "cuda":
            row |= launches(step)
            row["calls"]["recorded"] = recorded(training_step(model, inputs, target))
        return row

    makes = {name: functools.partial(make, name) for name in models()}
    return run.section(makes, steps=f"{samples} samples of {n} x {n}")


def compiled(run: Run) -> Iterator[Row]:
    """Training steps by `torch.compile`, a model at a time."""
    device = begun(run)
    samples, n = SIZES[device]

    def make(name: str) -> Row:
        model, inputs, target = step_parts(models()[name], samples, n, device)
        backend = "aot_eager" if device == "cpu" else "inductor"
        step = training_step(model, inputs, target, torch.compile(model, backend=backend))
        return {"peak_bytes": peak_of(step), "calls": {"compiled": step}}

    for name in [*models()][: 2 if run.smoke else None]:
        yield run.section({name: functools.partial(make, name)}, compiled=name)


def backbones(run: Run) -> Iterator[Row]:
    """Training steps of timm's backbones, one at a time, since each takes gigabytes."""
    from chonn_lab.benchmarks import vision  # imports Triton, before `begun` could choose

    device, names = begun(run), vision.SMOKE if run.smoke else VISION
    images, points = (2, 32) if run.smoke else (64, 224)

    def make(name: str) -> Row:
        model = vision.build(name, points).train().to(device)
        x = torch.randn(images, 3, points, points, device=device)
        target = torch.randn(images, 1000, device=device)
        step = training_step(model, (x,), target, under_autocast(model, device))
        return {"peak_bytes": peak_of(step), "calls": {"step": step}}

    for name in names:
        section = run.section({name: functools.partial(make, name)}, images=images)
        for row in section["rows"]:
            row["images_per_second"] = 1e3 * images / row["step_ms"]
        yield section


def sections(run: Run) -> Iterator[Row]:
    device = begun(run)
    yield steps(run, device)
    for shape, dtype in TINY_SHAPES if run.smoke else SHAPES:
        yield scans(run, device, shape, dtype)
    for case in TINY_CASES if run.smoke else CASES:
        yield networks(run, device, case)


main = main_of(
    __doc__,
    "gpu",
    {"checks": checks, "sections": sections, "vision": backbones, "compiled": compiled},
    ["triton", "timm", "mamba-ssm", "torch-sla", "nvmath-python", "nvidia-cudss-cu13"],
    rounds=5,
    visit_ms=0.0,
)

if __name__ == "__main__":
    main()
