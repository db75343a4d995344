"""Scan and networks on a CUDA GPU: checked, then timed beside their peers.

    chonn-lab bench gpu               needs CUDA; writes lab/results/gpu.json
    chonn-lab bench gpu --interpret   everything at tiny sizes on the CPU, by Triton's interpreter;
                                      needs another --output

Checks
    Scan: output and every gradient of backend "triton" in float32 and bfloat16 against backend
    "torch" in float64, by the tolerances of the tests. Networks: potentials and every gradient of
    backend "triton" in float64 against an elimination by PyTorch on the CPU, and float32 residuals
    against the tolerance. Nothing is timed if a check fails.

Contenders
    chonn-ops   backend "triton"
    torch       scans: backend "torch"; lines of up to 20,000 steps, which it takes one by one
    mamba-ssm   `selective_scan_fn`, in its own layout (B, D, L)
    mambapy     `pscan` on materialised (B, L, D, N) coefficients
    torch-sla   conjugate gradients for a batch of matrices

Columns
    forward, both   _ms: median of CUDA events; without autograd, and with gradients of all inputs
    peak_MiB        on the card during forward and backward, above those before

Training steps of models come first: forward, backward and Adam, on 16 samples of 64 x 64 points.
The model named FNO is `CHONNFNO2d` without cells, which is the FNO of PDEBench. The last section is
of timm's models, 64 images of 224 x 224. Their columns

    step_ms     as written, kernel by kernel
    autocast    the same with the forward pass under `torch.autocast` in bfloat16
    recorded    the whole step as one CUDA graph
    kernels     of a step, and `waits`: how often it waits for the device

What fails is a row with its error, and does not stop the others.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chonn_lab.benchmarks import harness, network_solvers
from chonn_lab.benchmarks.harness import environment, show, version, write_result
from chonn_lab.benchmarks.network_solvers import ROUNDINGS, TOLERANCE, Case
from chonn_lab.benchmarks.scan import both_call, make_inputs, mambapy_scan
from chonn_lab.benchmarks.training import inference
from chonn_lab.paths import RESULTS

SHAPES = (
    ((8, 4096, 1536, 16), torch.bfloat16),
    ((8, 1024, 64, 16), torch.float32),
    ((2, 3136, 192, 1), torch.float32),
    ((1, 1_000_000, 16, 16), torch.float32),
)
CASES = (
    Case((16, 16), 400),
    Case((64, 64), 400),
    Case((256, 256), 32),
    Case((512, 512), 8),
    Case((32, 32, 32), 32),
    Case((1_000_000,), 4),
)
TINY_SHAPES = (((1, 5, 3, 2), torch.float32),)
SCAN_CHECKS = (((2, 200, 20, 16), ()), ((1, 1000, 16, 16), ()), ((2, 2700, 20, 16), (9, 300)))
TINY_SCAN_CHECKS = (((1, 5, 3, 2), ()), ((1, 6, 2, 2), (2, 3)))
FIELDS: tuple[dict[str, str], ...] = (
    {"directions": "cross", "boundary": "matched"},
    {"directions": "axial", "boundary": "periodic"},
    {"directions": "bidirectional", "boundary": "neumann"},
)
NETWORK_CHECKS = (
    Case((16, 16), 32),
    Case((63, 64), 16),
    Case((5, 7, 9), 4),
    Case((1000,), 4),
    Case((64, 64), 4, 10_000.0, "field"),
)
TINY_NETWORK_CHECKS = (Case((5, 4), 2), Case((7,), 2))
# As in tests/scan/scan_cases.py.
SCAN_TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 6e-3}
EXACT = 1e-12  # tolerance of the solves in float64
EQUAL = 1e-8  # of eliminations in float64
LONGEST_FOR_TORCH = 20_000
PEERS = ("torch", "mamba-ssm", "mambapy", "torch-sla")
VISION = ("chonn_tiny", "convnext_tiny", "deit_small_patch16_224", "swin_tiny_patch4_window7_224")
TINY_VISION = ("test_chonn", "test_vit")
STEPS = ("step_ms", "autocast_ms", "recorded_ms", "kernels", "waits")
COLUMNS = ("name", *STEPS, "forward_ms", "both_ms", "peak_bytes", "error")

Calls = dict[tuple[str, str], Callable[[], object]]


def milliseconds(
    calls: Mapping[Any, Callable[[], object]], rounds: int, device: str
) -> dict[Any, list[float]]:
    """CUDA events around each call: one to warm up and three timed ones a round, in turns."""
    times: dict[Any, list[float]] = {key: [] for key in calls}
    for _ in range(rounds):
        for key, call in calls.items():
            call()
            if device == "cpu":
                times[key].append(harness.milliseconds(call))
                continue
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
            marks[0].record()
            for mark in marks[1:]:
                call()
                mark.record()
            torch.cuda.synchronize()
            times[key] += [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
    return times


def peak_of(call: Callable[[], object], device: str) -> int:
    """Bytes on the card during a second call, above those before."""
    call()
    if device == "cpu":
        return 0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return torch.cuda.max_memory_allocated() - before


def failure(error: Exception) -> str:
    torch.cuda.empty_cache()
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def scan(backend: str, **modes: str) -> Callable[..., Tensor]:
    from chonn_ops import kirchhoff_scan, scan_field

    function: Any = scan_field if modes else kirchhoff_scan
    return lambda *inputs: function(*inputs, backend=backend, **modes)


def leaves(tensors: list[Tensor], device: str, dtype: torch.dtype | None = None) -> list[Tensor]:
    return [t.detach().to(device, dtype).requires_grad_() for t in tensors]


def with_gradients(y: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """An output, and the gradients of its sum with random signs."""
    generator = torch.Generator().manual_seed(1)
    signs = torch.randint(0, 2, y.shape, generator=generator) * 2.0 - 1.0
    return [y, *torch.autograd.grad(y, inputs, signs.to(y))]


def largest_error(found: list[Tensor], truth: list[Tensor]) -> float:
    """RMS of the error over RMS of the truth, of the worst tensor."""
    pairs = zip(found, truth, strict=True)
    return max(((a.double().to(t) - t).norm() / t.norm()).item() for a, t in pairs)


def check_scans(device: str, tiny: bool) -> Iterator[dict[str, Any]]:
    for shape, grid in TINY_SCAN_CHECKS if tiny else SCAN_CHECKS:
        for modes in FIELDS[: 1 if tiny else None] if grid else ({},):
            for dtype, tolerance in SCAN_TOLERANCE.items():
                inputs = leaves(make_inputs(shape, dtype, grid), device)
                found = with_gradients(scan("triton", **modes)(*inputs), inputs)
                exact = leaves(inputs, device, torch.float64)
                truth = with_gradients(scan("torch", **modes)(*exact), exact)
                error = largest_error(found, truth)
                row = {"shape": [*shape], "grid": [*grid], **modes, "dtype": str(dtype)[6:]}
                yield row | {"rms_ratio": error, "passed": error <= tolerance}


def check_networks(device: str, tiny: bool) -> Iterator[dict[str, Any]]:
    from chonn_ops.network import kirchhoff_network

    def solve(backend: str, inputs: list[Tensor], tol: float) -> Tensor:
        source, leak, *conductance = inputs
        options: Any = {"tol": tol, "backend": backend, "method": "direct"}
        return kirchhoff_network(source, tuple(conductance), leak, **options)

    for case in TINY_NETWORK_CHECKS if tiny else NETWORK_CHECKS:
        networks = network_solvers.make(case, device)
        single = network_solvers.channels_last(networks)
        double, host = leaves(single, device, torch.float64), leaves(single, "cpu", torch.float64)
        truth = with_gradients(solve("torch", host, EXACT), host)
        with torch.no_grad():
            v = network_solvers.networks_first(solve("triton", single, TOLERANCE))
        found = network_solvers.quality(networks, v)
        error = largest_error(with_gradients(solve("triton", double, EXACT), double), truth)
        within = found["residual"] <= TOLERANCE + ROUNDINGS * found["rounding"]
        passed = within and error <= EQUAL
        yield {**case.label(), "backend": "triton", **found, "rms_ratio": error, "passed": passed}


def mamba_scan(inputs: list[Tensor]) -> tuple[Callable[..., Tensor], list[Tensor]] | None:
    """mamba-ssm's scan with inputs in its own layout."""
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    except ImportError:
        return None
    u, delta, decay, b, c, d = (t.detach() for t in inputs)
    turned = [t.transpose(1, 2).contiguous() for t in (u, delta, b, c)]
    return selective_scan_fn, leaves([*turned[:2], -decay, *turned[2:], d], "cuda")


def scan_calls(
    shape: tuple[int, ...], dtype: torch.dtype, device: str
) -> dict[str, Callable[[], Any]]:
    """For each contender a function that makes its forward and both calls."""
    inputs = leaves(make_inputs(shape, dtype), device)
    found = {"chonn-ops": (scan("triton"), inputs)}
    if shape[1] <= LONGEST_FOR_TORCH:
        found["torch"] = (scan("torch"), inputs)
    if device != "cpu" and (mamba := mamba_scan(inputs)):
        found["mamba-ssm"] = mamba
    if version("mambapy"):
        found["mambapy"] = (mambapy_scan, inputs)
    return {
        name: lambda given=given: (inference(*given), both_call(*given))
        for name, given in found.items()
    }


def network_calls(case: Case, device: str) -> dict[str, Callable[[], Any]]:
    """The same for networks."""
    networks = network_solvers.make(case, device)
    builds = {
        "chonn-ops": network_solvers.ours("triton"),
        "torch-sla": network_solvers.torch_sla_cg,
    }

    def calls(build: network_solvers.Build) -> Any:
        solver = build(networks)
        return solver.forward, solver.both

    return {name: lambda build=build: calls(build) for name, build in builds.items()}


def measure(
    label: dict[str, Any], makes: Mapping[str, Callable[[], Any]], rounds: int, device: str
) -> dict[str, Any]:
    """Times and peak memory of each contender; an error for those that cannot take the case."""
    rows: dict[str, dict[str, Any]] = {name: {"name": name} for name in makes}
    calls: Calls = {}
    for name, make in makes.items():
        try:
            forward, both = make()
            rows[name]["peak_bytes"] = peak_of(both, device)
        except Exception as error:
            rows[name]["error"] = failure(error)
            continue
        calls |= {(name, "forward"): forward, (name, "both"): both}
    for (name, column), times in milliseconds(calls, rounds, device).items():
        rows[name][f"{column}_ms"] = statistics.median(times)
    return {**label, "rows": list(rows.values())}


def models() -> dict[str, torch.nn.Module]:
    from chonn_ops import CHONNFNO2d, CHONNNetwork2d, CHONNRollout2d, CHONNUNet2d, CKBOptions

    fno: dict[str, Any] = {"modes1": 12, "modes2": 12, "width": 20, "initial_step": 1}
    return {
        "FNO": CHONNFNO2d(1, **fno, ckb=CKBOptions(order=0)),
        "CHONNFNO2d": CHONNFNO2d(1, **fno),
        "CHONNNetwork2d": CHONNNetwork2d(1, 1),
        "CHONNUNet2d": CHONNUNet2d(1, 1),
        "CHONNRollout2d": CHONNRollout2d(1, 1),
    }


def step_of(
    model: torch.nn.Module, inputs: tuple[Tensor, ...], target: Tensor, autocast: bool
) -> Callable[[], object]:
    """A training step that a CUDA graph can record."""
    device = target.device.type
    optimiser = torch.optim.Adam(model.parameters(), 1e-3, capturable=device != "cpu")

    def step() -> None:
        optimiser.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            y = model(*inputs)
        (y.float() - target).square().mean().backward()
        optimiser.step()

    return step


def model_inputs(name: str, device: str, samples: int, n: int) -> tuple[Any, ...]:
    """One of `models` or of timm's, its inputs, and targets."""
    torch.manual_seed(0)
    if name in VISION + TINY_VISION:
        # timm imports Triton, so not before the interpreter is set.
        from chonn_lab.benchmarks import vision

        model = vision.build(name, n).to(device).train()
        images = torch.rand(samples, 3, n, n, device=device)
        return model, (images,), torch.rand(samples, 1000, device=device)
    model = models()[name].to(device).train()
    x, target = torch.rand(2, samples, 1, n, n, device=device).unbind()
    if "FNO" not in name:
        return model, (x,), target
    # Channels last, with coordinates.
    at = (torch.arange(n, device=device) + 0.5) / n
    grid = torch.stack(torch.meshgrid(at, at, indexing="ij"), -1).expand(samples, n, n, 2)
    return model, (x.movedim(1, -1), grid), target.movedim(1, -1)[..., None, :]


def recorded(step: Callable[[], object]) -> Callable[[], object]:
    """The step as one CUDA graph, recorded as PyTorch's notes on CUDA say."""
    if not torch.cuda.is_available():
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def kernels_of(step: Callable[[], object]) -> dict[str, int]:
    """Kernels of a step, and calls that wait for the device."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as seen:
        step()
    events = list(seen.events() or ())
    on_device = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA]
    copies = ("Memcpy", "Memset")
    waits = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
    return {
        "kernels": sum(not e.name.startswith(copies) for e in on_device),
        "waits": sum(e.name in waits for e in events) - (len(activities) - 1),  # profile's own
    }


def steps(names: Iterable[str], samples: int, n: int, rounds: int, device: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for name in names:
        row: dict[str, Any] = {"name": name}
        rows.append(row)
        try:
            step = step_of(*model_inputs(name, device, samples, n), autocast=False)
            row["peak_bytes"] = peak_of(step, device)
            calls = {"step_ms": step}
            row |= kernels_of(step)
            calls["autocast_ms"] = step_of(*model_inputs(name, device, samples, n), autocast=True)
            times = milliseconds(calls, rounds, device)
            row |= {key: statistics.median(found) for key, found in times.items()}
            # Last: a recording that fails may leave the device unusable.
            replay = recorded(step_of(*model_inputs(name, device, samples, n), autocast=False))
            row["recorded_ms"] = statistics.median(milliseconds({"": replay}, rounds, device)[""])
        except Exception as error:
            row["error"] = failure(error)
    return {"steps": f"{samples} samples of {n} x {n}", "rows": rows}


def sections(rounds: int, device: str) -> Iterator[dict[str, Any]]:
    tiny = device == "cpu"
    yield steps(models(), *((1, 32) if tiny else (16, 64)), rounds, device)
    for shape, dtype in TINY_SHAPES if tiny else SHAPES:
        label = {"shape": [*shape], "dtype": str(dtype)[6:]}
        yield measure(label, scan_calls(shape, dtype, device), rounds, device)
    for case in TINY_NETWORK_CHECKS if tiny else CASES:
        yield measure(case.label(), network_calls(case, device), rounds, device)
    yield steps(*((TINY_VISION, 2, 32) if tiny else (VISION, 64, 224)), rounds, device)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="three timed calls each")
    parser.add_argument("--interpret", action="store_true", help="tiny sizes without a GPU")
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu.json")
    options = parser.parse_args()
    if options.interpret:
        if options.output == parser.get_default("output"):
            parser.error("expected another --output for a run without a GPU")
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported
    elif not torch.cuda.is_available():
        print("expected a CUDA GPU, found none (--interpret runs without)", file=sys.stderr)
        return 1
    device = "cpu" if options.interpret else "cuda"
    checks = []
    for row in itertools.chain(
        check_scans(device, options.interpret), check_networks(device, options.interpret)
    ):
        checks.append(row)
        print("ok  " if row["passed"] else "FAIL", row)
    if not all(row["passed"] for row in checks):
        print("results are outside the tolerance; nothing timed", file=sys.stderr)
        return 1
    options.visit_ms, options.smoke = None, False
    about = environment(options, ("triton", "mamba-ssm", "mambapy", "torch-sla"))
    name = None if options.interpret else torch.cuda.get_device_name(0)
    about |= {"gpu": name, "cuda": torch.version.cuda}
    found = []
    for section in sections(options.rounds, device):
        found.append(section)
        print(" ".join(str(value) for key, value in section.items() if key != "rows"))
        show(section["rows"], *COLUMNS)
        # Whole after every section: a machine with a GPU may be lent for minutes only.
        write_result(options.output, {"environment": about, "checks": checks, "sections": found})
    ours = [row for section in found for row in section["rows"] if row["name"] not in PEERS]
    return int(any("error" in row for row in ours))


if __name__ == "__main__":
    sys.exit(main())
