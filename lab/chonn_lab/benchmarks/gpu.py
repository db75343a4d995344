"""Scan and networks on a CUDA GPU: checked, then timed beside their peers.

    chonn-lab bench gpu               needs CUDA; writes lab/results/gpu.json
    chonn-lab bench gpu --interpret   tiny checks alone, by Triton's interpreter on the CPU

Checks
    Scan: output and every gradient of backend "triton" in float32 and bfloat16 against backend
    "torch" in float64, by the tolerances of the tests. Networks: potentials and every gradient in
    float64 against backend "reference", and float32 residuals against the tolerance. Nothing is
    timed if a check fails.

Contenders
    chonn-ops   scans: backend "triton"; networks: PyTorch, which is what CUDA selects
    torch       scans: backend "torch"; lines of up to 20,000 steps, which it takes one by one
    mamba-ssm   `selective_scan_fn`, in its own layout (B, D, L)
    mambapy     `pscan` on materialised (B, L, D, N) coefficients
    torch-sla   conjugate gradients for a batch of matrices

Columns
    forward, both   _ms: median of CUDA events; without autograd, and with gradients of all inputs
    peak_MiB        on the card during forward and backward, above those before

Training steps of models follow: forward, backward and Adam, on 16 samples of 64 x 64 points. The
model named FNO is `CHONNFNO2d` without cells, which is the FNO of PDEBench.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chonn_lab.benchmarks import network_solvers
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
EQUAL = 1e-8  # to the reference, in float64
LONGEST_FOR_TORCH = 20_000
COLUMNS = ("name", "step_ms", "forward_ms", "both_ms", "peak_bytes", "error")

Calls = dict[tuple[str, str], Callable[[], object]]


def milliseconds(calls: Mapping[Any, Callable[[], object]], rounds: int) -> dict[Any, list[float]]:
    """CUDA events around each call: one to warm up and three timed ones a round, in turns."""
    times: dict[Any, list[float]] = {key: [] for key in calls}
    for _ in range(rounds):
        for key, call in calls.items():
            call()
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
            marks[0].record()
            for mark in marks[1:]:
                call()
                mark.record()
            torch.cuda.synchronize()
            times[key] += [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
    return times


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
        return kirchhoff_network(source, tuple(conductance), leak, tol=tol, backend=backend)

    for case in TINY_NETWORK_CHECKS if tiny else NETWORK_CHECKS:
        networks = network_solvers.make(case, device)
        single = network_solvers.channels_last(networks)
        double, host = leaves(single, device, torch.float64), leaves(single, "cpu", torch.float64)
        truth = with_gradients(solve("reference", host, EXACT), host)
        with torch.no_grad():
            v = network_solvers.networks_first(solve("torch", single, TOLERANCE))
        found = network_solvers.quality(networks, v)
        error = largest_error(with_gradients(solve("torch", double, EXACT), double), truth)
        within = found["residual"] <= TOLERANCE + ROUNDINGS * found["rounding"]
        passed = within and error <= EQUAL
        yield {**case.label(), "backend": "torch", **found, "rms_ratio": error, "passed": passed}


def mamba_scan(inputs: list[Tensor]) -> tuple[Callable[..., Tensor], list[Tensor]] | None:
    """mamba-ssm's scan with inputs in its own layout."""
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    except ImportError:
        return None
    u, delta, decay, b, c, d = (t.detach() for t in inputs)
    turned = [t.transpose(1, 2).contiguous() for t in (u, delta, b, c)]
    return selective_scan_fn, leaves([*turned[:2], -decay, *turned[2:], d], "cuda")


def scan_calls(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Callable[[], Any]]:
    """For each contender a function that makes its forward and both calls."""
    inputs = leaves(make_inputs(shape, dtype), "cuda")
    found = {"chonn-ops": (scan("triton"), inputs)}
    if shape[1] <= LONGEST_FOR_TORCH:
        found["torch"] = (scan("torch"), inputs)
    if mamba := mamba_scan(inputs):
        found["mamba-ssm"] = mamba
    if version("mambapy"):
        found["mambapy"] = (mambapy_scan, inputs)
    return {
        name: lambda given=given: (inference(*given), both_call(*given))
        for name, given in found.items()
    }


def network_calls(case: Case) -> dict[str, Callable[[], Any]]:
    """The same for networks."""
    networks = network_solvers.make(case, "cuda")
    builds = {"chonn-ops": network_solvers.ours("torch"), "torch-sla": network_solvers.torch_sla_cg}

    def calls(build: network_solvers.Build) -> Any:
        solver = build(networks)
        return solver.forward, solver.both

    return {name: lambda build=build: calls(build) for name, build in builds.items()}


def measure(
    label: dict[str, Any], makes: Mapping[str, Callable[[], Any]], rounds: int
) -> dict[str, Any]:
    """Times and peak memory of each contender; an error for those that cannot take the case."""
    rows: dict[str, dict[str, Any]] = {name: {"name": name} for name in makes}
    calls: Calls = {}
    for name, make in makes.items():
        try:
            forward, both = make()
            both()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            both()
            rows[name]["peak_bytes"] = torch.cuda.max_memory_allocated() - before
        except Exception as error:
            if name == "chonn-ops":
                raise
            text = str(error).partition("\n")[0]
            rows[name]["error"] = f"{type(error).__name__}: {text}"
            torch.cuda.empty_cache()
            continue
        calls |= {(name, "forward"): forward, (name, "both"): both}
    for (name, column), times in milliseconds(calls, rounds).items():
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


def step_call(name: str, samples: int = 16, n: int = 64) -> Callable[[], object]:
    """A training step on random fields."""
    torch.manual_seed(0)
    model = models()[name].cuda().train()
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    x, target = torch.rand(2, samples, 1, n, n, device="cuda").unbind()
    inputs: tuple[Tensor, ...] = (x,)
    if "FNO" in name:  # channels last, with coordinates
        at = (torch.arange(n, device="cuda") + 0.5) / n
        grid = torch.stack(torch.meshgrid(at, at, indexing="ij"), -1)
        inputs = (x.movedim(1, -1), grid.expand(samples, n, n, 2))
        target = target.movedim(1, -1)[..., None, :]

    def step() -> None:
        optimiser.zero_grad()
        (model(*inputs) - target).square().mean().backward()
        optimiser.step()

    return step


def steps(rounds: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for name in models():
        step = step_call(name)
        step()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        peak = torch.cuda.max_memory_allocated() - before
        times = milliseconds({name: step}, rounds)[name]
        rows.append({"name": name, "step_ms": statistics.median(times), "peak_bytes": peak})
    return {"steps": "16 samples of 64 x 64", "rows": rows}


def sections(rounds: int) -> Iterator[dict[str, Any]]:
    yield steps(rounds)
    for shape, dtype in SHAPES:
        label = {"shape": [*shape], "dtype": str(dtype)[6:]}
        yield measure(label, scan_calls(shape, dtype), rounds)
    for case in CASES:
        yield measure(case.label(), network_calls(case), rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="three timed calls each")
    parser.add_argument("--interpret", action="store_true", help="tiny checks without a GPU")
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu.json")
    options = parser.parse_args()
    if options.interpret:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported
    elif not torch.cuda.is_available():
        print("expected a CUDA GPU, found none (--interpret checks without)", file=sys.stderr)
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
    if options.interpret:
        return 0
    options.visit_ms, options.smoke = None, False
    about = environment(options, ("triton", "mamba-ssm", "mambapy", "torch-sla"))
    about |= {"gpu": torch.cuda.get_device_name(0), "cuda": torch.version.cuda}
    found = []
    for section in sections(options.rounds):
        found.append(section)
        print(" ".join(str(value) for key, value in section.items() if key != "rows"))
        show(section["rows"], *COLUMNS)
        # Whole after every section: a machine with a GPU may be lent for minutes only.
        write_result(options.output, {"environment": about, "checks": checks, "sections": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
