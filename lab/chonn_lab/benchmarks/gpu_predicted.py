"""Milliseconds that an H100 is expected to take, predicted without a GPU.

Nothing here is a measured time of these kernels. What can be counted without a GPU is counted, on
the code as it is: launches and programs by running it with the launch replaced by a note,
instructions in the machine code that Triton and NVRTC make for the H100, bytes by the sizes of
tensors. What a count costs is calibrated by ``lab/results/gpu_probe.json``: times that an H100 took
for another implementation of the same algorithms, a probe, with the same counts.

The model of a launch
    A processor has four schedulers, and each gives out at most one instruction a cycle. With few
    warps a scheduler waits for their results. A launch takes `start` seconds more than the larger
    of two times: its bytes over the bandwidth that copies reach, and its instructions (programs,
    times warps, times instructions of a warp) over the cycles of all schedulers, of which a share
    of `busy` gives one out, or 1 / `wait` for each warp that a scheduler holds, if that is less.
    `fit` finds the three numbers by the times of single levels of the probe on 128 networks of
    64 x 64. The probe's totals on other sizes are predicted with them. The range of a prediction
    is the factor by which single levels deviate: totals deviate less, but kernels of more warps
    than the probe's may deviate like a level.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.nn.functional as F
import triton
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from triton.backends.compiler import GPUTarget

from chonn_lab.benchmarks import harness, vision
from chonn_lab.benchmarks.gpu import SIZES, models
from chonn_lab.benchmarks.harness import Row, Run, gradients, inference, main_of
from chonn_lab.benchmarks.models import step_parts
from chonn_lab.benchmarks.scan import make_inputs
from chonn_lab.paths import RESULTS
from chonn_ops import kirchhoff_scan
from chonn_ops.models import network as model_network
from chonn_ops.network import autograd as network_autograd
from chonn_ops.network import checks as network_checks
from chonn_ops.network import operator as network_operator
from chonn_ops.network.direct import factor as direct
from chonn_ops.network.direct import triton as elimination
from chonn_ops.network.direct.triton import kernels, small
from chonn_ops.nn import memory
from chonn_ops.nn.fused import functions as fused_functions
from chonn_ops.nn.fused import torch as fused_operations
from chonn_ops.nn.fused import triton as fused
from chonn_ops.scan import arguments as scan_arguments
from chonn_ops.scan import cuda
from chonn_ops.scan import operator as scan_operator
from chonn_ops.scan.cuda import nvrtc
from chonn_ops.scan.cuda.driver import Card

# An H100 SXM: processors times schedulers, cycles a second that it sustains, and bytes a second,
# of which copies reach about four fifths.
SCHEDULERS, CLOCK, BANDWIDTH = 132 * 4, 1.755e9, 0.8 * 3.35e12
CAPABILITY = (9, 0)
CARD = Card(0, SCHEDULERS // 4, 232448, CAPABILITY)
DRIVER = 0.003  # milliseconds that the driver's part of a launch is taken to cost the host
# Grids and numbers of networks.
CIRCUITS = (((64, 64), 128), ((256, 256), 32))


class Launch(NamedTuple):
    """A launch of a kernel: programs, warps of one, instructions of a warp, warps that a scheduler
    holds where there are enough, and bytes."""

    programs: int
    warps: int
    instructions: float
    held: float
    bytes: float


class Costs(NamedTuple):
    """See the model above."""

    busy: float
    wait: float
    start: float


def milliseconds(launches: Sequence[Any], costs: Costs) -> float:
    total = 0.0
    for programs, warps, instructions, held, size in launches:
        each = programs * warps / SCHEDULERS
        cycles = instructions * max(each / costs.busy, costs.wait * max(each / held, 1))
        total += costs.start + max(cycles / CLOCK, size / BANDWIDTH)
    return 1e3 * total


@cache
def probe() -> dict[str, Any]:
    """What an H100 measured of the probe, and the probe's counts."""
    return json.loads((RESULTS / "gpu_probe.json").read_text())


@cache
def fit() -> Costs:
    """The costs by the probe's levels."""
    busy, wait, start = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9), range(3, 13), (0, 0.5, 1, 1.5, 2)
    tried = (Costs(a, b, 1e-6 * c) for a, b, c in itertools.product(busy, wait, start))
    return min(tried, key=lambda costs: deviation("levels", costs))


def deviation(section: str, costs: Costs) -> float:
    """The factor that predicted and measured times of the probe differ by, in the square mean."""
    pairs = [(milliseconds(x["launches"], costs), x["ms"]) for x in probe()[section]]
    return math.exp(math.sqrt(statistics.fmean(math.log(a / b) ** 2 for a, b in pairs)))


# Circuits -----------------------------------------------------------------------------------------


def dump(code: bytes, *options: str) -> str:
    """What the tool that Triton brings tells of machine code."""
    path = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        command = [path, *options, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Code(NamedTuple):
    """Machine code: addresses, the loops' first and last ones, registers, shared bytes."""

    addresses: list[int]
    loops: list[tuple[int, int]]
    registers: int
    shared: int

    def executed(self, trips: Sequence[float]) -> float:
        """Instructions of a warp whose loops, in the order of the code, run so many times."""
        if len(trips) != len(self.loops):
            raise ValueError(f"expected {len(trips)} loops in the machine code, got {self.loops}")
        inner = sorted(zip(self.loops, trips, strict=True), key=lambda x: x[0][1] - x[0][0])
        return sum(
            next((n for (low, high), n in inner if low <= at <= high), 1) for at in self.addresses
        )

    def held(self, warps: int) -> float:
        """Warps that a scheduler holds, by the registers and shared memory of a processor."""
        registers = -(-self.registers // 8) * 8 * 32 * warps
        programs = min(32, 64 // warps, 65536 // registers, 233472 // (self.shared + 1024))
        return programs * warps / 4


_codes: dict[Any, Code] = {}


def code_of(kernel: Any, types: dict[str, str], constants: dict[str, Any], warps: int) -> Code:
    """Compile for the H100; Triton keeps what it compiled in its cache."""
    key = kernel.__name__, tuple(constants.items()), warps
    if key not in _codes:
        pointers = [x for x, kind in types.items() if kind[0] == "*" and x != "judged"]
        aligned = {(kernel.arg_names.index(x),): [["tt.divisibility", 16]] for x in pointers}
        signature = {x: types.get(x, "constexpr") for x in kernel.arg_names}
        source = triton.compiler.ASTSource(kernel, signature, constants, aligned)
        target = GPUTarget("cuda", 10 * CAPABILITY[0], 32)
        options = {"num_warps": warps, "enable_fp_fusion": True}
        found = triton.compile(source, target=target, options=options)
        text = dump(found.asm["cubin"], "-sass", "-res-usage")
        lines = re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);", text)
        jumps = [(re.search(r"\bBRA\b.*?(0x[0-9a-f]+)", x), int(at, 16)) for at, x in lines]
        loops = [(int(jump[1], 16), at) for jump, at in jumps if jump and int(jump[1], 16) < at]
        registers = re.search(r"REG:(\d+)", text)
        assert registers is not None
        addresses = [at for _, at in jumps]
        # A product of four warps at once counts as the products, 16 x 8 each, that a warp would do.
        for at, x in lines:
            wide = re.search(r"HGMMA\.64x(\d+)x", x)
            addresses += [int(at, 16)] * (int(wide[1]) // 8 - 1 if wide else 0)
        shared = found.metadata.shared
        _codes[key] = Code(addresses, sorted(loops), int(registers[1]), shared)
    return _codes[key]


_TYPES = {torch.float32: "*fp32", torch.float64: "*fp64", torch.int32: "*i32", torch.int64: "*i64"}


def counted(kernel: Any, grid: Sequence[int], args: Any, warps: int, constants: Any) -> Launch:
    """The counts of a launch of a Triton kernel."""
    given = dict(zip((x for x in kernel.arg_names if x not in constants), args, strict=True))
    types = {
        n: _TYPES[x.dtype] if torch.is_tensor(x) else "fp32" if isinstance(x, float) else "i32"
        for n, x in given.items()
    }
    code = code_of(kernel, types, constants, warps)
    name, programs, trips = kernel.__name__, math.prod(grid), []
    touched = sum(x.numel() * x.itemsize for x in given.values() if torch.is_tensor(x))
    if name == "levels":
        trips = [-(-given["nodes"] // constants["BLOCK"])]
    if name == "add":
        regions = given["REGION"][given["start"] :].long()
        pivots, size = given["INFO"].view(-1, kernels.WORDS)[regions, 1:3].double().T
        rows, block = (constants[x] for x in ("ROWS", "BLOCK"))
        # Rows of a region at a time, and for each of these columns: on average from the middle on.
        blocks = (pivots / rows).ceil()
        trips = [blocks.mean(), (blocks * ((size - pivots / 2) / block).ceil()).mean()]
        trips = [float(x) for x in trips]
    if kernel.fn.__module__ == small.__name__:
        trips, touched = of_small_fronts(name, given, grid[1], code.loops)
        touched *= grid[0] * kernels.LANES.value
    elif "REGION" in given and name != "add":  # pivots, and columns of the rest, of each front
        rows = given["REGION"][given["start"] :][: grid[1]].long()
        info = given["INFO"].view(-1, kernels.WORDS)[rows]
        pivots, size = (info[:, at.value].double() for at in (kernels.PIVOTS, kernels.SIZE))
        block = (pivots - given["k0"]).clamp(max=constants["P"])
        width = size - given["k0"] - block
        block = block.clamp(min=0)
        shares, update = float((block * (block + width)).sum()), float(width.square().sum()) / 2
        # The rows of shares, read or written once; beside them what the children or the panel
        # before handed over, and the update.
        touched = {"pivots": 2 * shares, "update": shares + 2 * update}.get(name, shares)
        touched += 2 * update * constants.get("FUSED", False)
        touched *= grid[0] * 4
        chunks = float((width / constants.get("C", 1)).ceil().mean())
        if name == "pivots":
            apart = constants["REST"] and not constants["WHOLE"]
            # Loops after that over pivots look for parts without ground, which are none.
            trips = [*[chunks] * apart, float(block.mean())]
            trips += [0] * (len(code.loops) - len(trips))
        elif name == "down":
            trips = [chunks]
        elif name == "update":  # tiles left of the diagonal have nothing to do
            tiles = given["tiles"]
            programs = programs // tiles**2 * tiles * (tiles + 1) // 2
    return Launch(programs, warps, code.executed(trips), code.held(warps), touched)


def of_small_fronts(
    name: str, given: dict[str, Any], fronts: int, loops: Sequence[tuple[int, int]]
) -> tuple[list[float], float]:
    """How often the loops of a program of `fronts` small fronts run, and bytes of a network.

    The compiler takes four earlier pivots at a time, and those that are left one by one; so it may
    take edges. Loops after those over pivots and over boundaries look for parts without ground."""
    rows = given["REGION"][given["start"] :][:fronts].long()
    info = given["INFO"].view(-1, kernels.WORDS)[rows]
    first, pivots, size = (x.long() for x in info[:, :3].T)
    width = size - pivots
    size_of_rows = float((pivots * (size + 1)).sum())
    if name != "eliminate":
        return [float(pivots.double().mean())] * len(loops), 4 * size_of_rows

    def mean(x: Tensor) -> float:
        return float(x.double().sum()) / fronts

    def by_four(x: Tensor) -> list[float]:
        return [mean(x // 4), mean(x % 4)]

    at = given["EDGE_AT"].long()
    nodes = torch.cat([torch.arange(a, a + n) for a, n in zip(first, pivots, strict=True)])
    edges = at[nodes + 1] - at[nodes]
    before = torch.cat([torch.arange(n) for n in pivots])
    apart = sum(loops[0][0] < x < loops[0][1] for x, _ in loops) == 4
    trips = [mean(pivots), *(by_four(edges) if apart else [mean(edges)]), *by_four(before)]
    trips += [mean(width), *(mean(width * x) for x in (pivots // 4, pivots % 4))]
    update = float((width * (width + 1)).sum()) / 2
    return trips + [0] * (len(loops) - len(trips)), 4 * (size_of_rows + 2 * update)


@contextlib.contextmanager
def noted(count: bool = True) -> Iterator[list[Any]]:
    """Operators on CPU tensors take their paths for CUDA, whose launches are noted and not done.

    Checks that read values, as only the CPU's paths do, find nothing.
    """
    notes: list[Any] = []

    def launch(
        kernel: Any, grid: Sequence[int], *args: Any, warps: int = 4, **constants: Any
    ) -> None:
        with _disable_current_modes():  # that count operations
            note = counted(kernel, grid, args, warps, constants) if count else (kernel, grid)
        notes.append(note)

    def launch_scan(which: int, *sizes: Any) -> None:
        """Pack the arguments, and note the launch."""
        notes.append(cuda.LAYOUT.pack(*sizes[-1]) and which)

    def nothing(*_: object) -> None: ...

    stub = SimpleNamespace(launch=launch_scan)
    recompute_from = memory.RECOMPUTE_FROM * memory.ON_GPU
    changes: tuple[tuple[Any, dict[str, Any]], ...] = (
        (elimination, {"_launch": launch}),
        (fused, {"_launch": launch}),
        (fused_functions, {"takes": lambda *_: True}),
        (network_operator.BACKENDS, {"name_for": lambda *_: "triton"}),
        (direct.BACKENDS, {"name_for": lambda *_: "triton"}),
        (scan_operator.BACKENDS, {"name_for": lambda *_: "cuda"}),
        (cuda, {"_kernels": lambda *_: stub, "_card": lambda _: CARD}),
        (scan_operator, {"checkpoint_steps": lambda *_: cuda.CUDA_CHECKPOINT}),
        (scan_operator, {"walks_whole_lines": lambda *_: False}),
        (network_operator, {"refuse_negative": nothing}),
        (network_autograd, {"labels_of": nothing}),
        (network_checks, {"answer": nothing}),
        (scan_operator, {"check_delta": nothing, "check_decay": nothing}),
        (model_network, {"answer": nothing}),
        (fused_operations, {"position_linear": F.linear}),
        (memory, {"RECOMPUTE_FROM": recompute_from}),
    )
    with contextlib.ExitStack() as stack:
        for target, names in changes:
            stack.enter_context(mock.patch.multiple(target, **names))
        # On CUDA every scan bounds its decay rates, on the CPU those that need it.
        slowest = dict.fromkeys(scan_arguments.SLOWEST, math.inf)
        stack.enter_context(mock.patch.dict(scan_arguments.SLOWEST, slowest))
        cuda.plan_of.cache_clear()
        yield notes
    cuda.plan_of.cache_clear()


def circuit(grid: tuple[int, ...], networks: int, count: bool = True) -> list[Any]:
    """The launches of a forward pass without gradients; kernels and grids only without `count`."""
    leak = torch.ones(networks, *grid, 1)
    plan = elimination.plan_of(grid, [False] * len(grid))
    with noted(count) as found:
        elimination.Factors(plan, [leak] * len(grid), leak, leak[:, None])
    return found


def row(quantity: str, count: str, ms: Sequence[float], peers: str) -> Row:
    names = "quantity", "counted", "low_ms", "ms", "high_ms", "peers"
    return dict(zip(names, (quantity, count, *ms, peers), strict=True))


def circuits(run: Run) -> list[Row]:
    costs, found = fit(), []
    spread = deviation("levels", costs)
    for grid, networks in CIRCUITS:
        peer = probe()["peers"][f"{networks} networks of {grid[0]} x {grid[1]}"]
        grid = (8, 8) if run.smoke else grid
        launches = circuit(grid, networks)
        programs = sum(x.programs for x in launches)
        instructions = sum(x.programs * x.warps * x.instructions for x in launches)
        ms = milliseconds(launches, costs)
        count = f"{len(launches)} launches of {programs / len(launches):,.0f} programs, "
        count += f"{instructions / 1e9:.2f}e9 instructions of warps"
        name = f"{networks} networks of {grid[0]} x {grid[1]}, forward"
        found.append(row(name, count, (ms / spread, ms, ms * spread), peer))
    return found


# Scans --------------------------------------------------------------------------------------------

SCANS = (
    ((8, 4096, 1536, 16), torch.bfloat16),
    ((8, 1024, 64, 16), torch.float32),
)
_GENERAL = 16  # special functions of a block that takes steps whose exponents are not small


def paths(text: str) -> Iterator[tuple[int, int]]:
    """Instructions of each inner loop of a scan's kernel where exponents are small, along the
    shortest and the longest way through its branches."""
    lines = {int(at, 16): x for at, x in re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);", text)}
    jumps = {at: re.match(r"(@?).*?BRA( !?U?P)?.*?(0x[0-9a-f]+)", x) for at, x in lines.items()}
    to = {at: (int(x[3], 16), bool(x[1] or x[2])) for at, x in jumps.items() if x}
    starts = {target for target, _ in to.values()} | {at + 16 for at in to}
    for end, (start, _) in sorted(to.items()):
        if start >= end or any(start < target < at < end for at, (target, _) in to.items()):
            continue
        blocks: dict[int, list[int]] = {}
        first = start
        for at in range(start, end + 16, 16):
            first = at if at in starts else first
            blocks.setdefault(first, []).append(at)
        special = {b: sum("MUFU" in lines[at] for at in block) for b, block in blocks.items()}
        fused = (sum("FFMA" in lines[x] for x in y) for b, y in blocks.items() if not special[b])
        if max(fused, default=0) < 60:
            continue
        lengths = {end + 16: (0, 0)}
        for b in sorted(blocks, reverse=True):
            last = blocks[b][-1]
            target, conditional = to.get(last, (last + 16, False))
            after = [target] if last != end else [end + 16]
            after += [last + 16] * conditional
            known = [lengths[x] for x in after if x in lengths]
            if special[b] < _GENERAL and known:
                low, high = min(x for x, _ in known), max(x for _, x in known)
                lengths[b] = len(blocks[b]) + low, len(blocks[b]) + high
        if start in lengths:
            yield lengths[start]


def scan_setting(shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    """How the kernels of a scan of B x L x D x N are compiled and launched."""
    B, L, D, N = shape
    return cuda.setting_of((B,), (L,), D, N, cuda.CODES[dtype], False, CARD)


def kernel_paths(name: str, macros: Any) -> list[tuple[int, int]]:
    """`paths` of one of our kernels of scans."""
    code = nvrtc.machine_code(cuda.SOURCE.read_text("utf-8"), macros, CAPABILITY)
    return list(paths(dump(code, "-sass", "-fun", name)))


def state_steps(*found: Sequence[int]) -> list[tuple[float, float]]:
    """Instructions of the forward and of the backward a step of a warp's lane and a state of it,
    along the shortest and the longest way, where a lane has four states.

    Found are those of 8 steps of the forward, with outputs, of 8 steps that the backward does again
    and of 4 steps of its adjoint.
    """
    return [(a / 32, b / 32 + c / 16) for a, b, c in zip(*found, strict=True)]


def scan_ms(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[list[list[float]], list[str]]:
    """Least, middle and largest milliseconds of the forward and of both passes of a large scan,
    those of the probe times the ratio of instructions; and what was counted."""
    macros, given = scan_setting(shape, dtype).macros, probe()["scan"]
    forward, back = (kernel_paths(name, macros) for name in cuda.NAMES[:2])
    ours = state_steps(max(forward), *back[:2])
    theirs = state_steps(*(given["instructions"][x] for x in ("forward", "again", "adjoint")))
    both = zip(given["forward_ms"], given["both_ms"], strict=True)
    parts = []
    for k, ms in enumerate((given["forward_ms"], [b - a for a, b in both])):
        ratios = [a[k] / b[k] for a, b in zip(ours, theirs, strict=True)]
        middle = statistics.median(ms) * statistics.geometric_mean(ratios)
        parts.append([min(ms) * min(ratios), middle, max(ms) * max(ratios)])
    counts = [
        "{:.1f} to {:.1f} instructions a state-step, of the probe {:.1f} to {:.1f}".format(
            *(add(x) for x in (*ours, *theirs))
        )
        for add in (lambda x: x[0], sum)
    ]
    return [parts[0], [a + b for a, b in zip(*parts, strict=True)]], counts


def small_ms(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[list[list[float]], list[str]]:
    """As `scan_ms`, of a scan whose lines are divided: the larger of the time of the host and of
    the GPU's. The host's is that of this processor, the least of many since other work interrupts
    some, and the driver's. The GPU's is that of the forward's two inner loops; both passes are in
    proportion to those of the large scan."""
    inputs = make_inputs(shape, dtype)
    calls = inference(kirchhoff_scan, inputs), gradients(kirchhoff_scan, inputs)
    with noted():
        host = [min(harness.milliseconds(call) for _ in range(200)) for call in calls]
    B, L, D, _ = shape
    setting = scan_setting(shape, dtype)
    walks = kernel_paths(cuda.NAMES[0], setting.macros)
    (pieces,) = setting.pieces
    warps = pieces * setting.groups
    instructions = L / pieces / 8 * sum(statistics.fmean(x) for x in walks)
    programs = B * -(-D // (setting.channels * setting.groups))
    launch = Launch(programs, warps, instructions, setting.resident * warps / 4, 0)
    forward, given = milliseconds([launch], fit()), probe()["scan"]
    device = [forward, forward * given["both_ms"][0] / given["forward_ms"][0]]
    called = [ms + launches * DRIVER for ms, launches in zip(host, (1, 3), strict=True)]
    pairs = list(zip(called, device, strict=True))
    times = [[max(device, factor * ms) for factor in (0.5, 1, 2)] for ms, device in pairs]
    texts = [f"{1e3 * ms:.0f} us of the host, {1e3 * gpu:.0f} us of the GPU" for ms, gpu in pairs]
    return times, texts


def scans(run: Run) -> list[Row]:
    found = []
    for shape, dtype in SCANS[run.smoke :]:
        name = f"scan {'x'.join(map(str, shape))}"
        large = shape == tuple(probe()["scan"]["shape"])
        times, counts = (scan_ms if large else small_ms)(shape, dtype)
        passes = ("forward", "both passes")
        for part, ms, count in zip(passes, times, counts, strict=True):
            peers = probe()["peers"].get(f"{name}, {part}", "-")
            found.append(row(f"{name}, {str(dtype)[6:]}, {part}", count, ms, peers))
    return found


# Training steps -----------------------------------------------------------------------------------

STEPS = ("CHONNNetwork2d", "CHONNFNO2d", "CHONNUNet2d")
# Operations of PyTorch that launch nothing, beside views.
NOTHING = {
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "promote_types"),
    *("_unsafe_view", "set_", "resize_", "lift_fresh", "result_type", "_local_scalar_dense"),
    *("as_strided_", "_record_function_enter_new", "_record_function_exit"),
}
_LIST = 36  # tensors that one launch of an operation on lists takes, as Adam's


# What our operators call: a mode does not see what happens inside of an operator.
_FORWARD = partial(network_operator.run_network, keep=True)
_BACKWARD = network_autograd.by_factor


class Operations(TorchDispatchMode):
    """Notes the bytes of each launch of PyTorch's operations, those inside of solves, too; and by
    the operations' names."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: list[float] = []
        self.by_name: defaultdict[str, float] = defaultdict(float)
        self.states = 0  # steps of states of scans

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func._schema.name.partition("::")[2]
        if name == "kirchhoff_network_kept":
            with self:
                return _FORWARD(*args, **kwargs)
        if name == "kirchhoff_scan":
            inputs, modes = scan_arguments.split(args)
            walks = {"raster": 1, "bidirectional": 2}.get(modes.directions, 2 * len(modes.grid))
            self.states += walks * inputs.u.numel() * inputs.decay.shape[1]
        with mock.patch.object(network_autograd, "by_factor", self._inside):
            found = func(*args, **kwargs)
        if not func.is_view and name not in NOTHING and func.namespace != "chonn_ops":
            tensors = [x for x in tree_leaves((args, kwargs, found)) if torch.is_tensor(x)]
            size = float(sum(x.numel() * x.itemsize for x in tensors))
            launches = -(-len(args[0]) // _LIST) if name.startswith("_foreach") else 1
            self.bytes += [size / launches] * launches
            self.by_name[name] += size
        return found

    def _inside(self, *args: Any) -> Any:
        with self:
            return _BACKWARD(*args)


def step(name: str, samples: int, n: int) -> tuple[list[float], list[Launch]]:
    """Bytes of the launches of PyTorch's operations in a training step, and the other launches."""
    model, inputs, target = step_parts(models()[name], samples, n)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, foreach=True)

    def call() -> None:
        optimizer.zero_grad()
        F.mse_loss(model(*inputs), target).backward()
        optimizer.step()

    with noted() as notes:
        call()
        notes.clear()
        with Operations() as operations:
            call()
    return operations.bytes, notes


def steps(run: Run) -> list[Row]:
    """Training steps, launched one by one and recorded as a CUDA graph.

    A launch by PyTorch takes the host as long as one of the FNO's 440 kernels at least, in the
    middle as one of the 844 of a step whose solves were the probe's, and at most the FNO's time
    over the number of operations that is counted here. One of Triton takes as long as one of the
    10,522 of the first Triton kernels. On the GPU operations take the time of their bytes at least,
    and at most as many times that as the FNO did, recorded.
    """
    samples, n = SIZES["cpu" if run.smoke else "cuda"]
    fno, ours, many = (x for x in probe()["steps"][:3])
    costs, found = fit(), []
    spread = deviation("levels", costs)

    def on_gpu(sizes: Sequence[float]) -> float:
        return milliseconds([Launch(1, 1, 0, 1, x) for x in sizes], costs)

    base = step("FNO", samples, n)[0]
    factor = fno["recorded_ms"] / on_gpu(base)
    measured = json.loads((RESULTS / "gpu.json").read_text())["sections"][0]["rows"][0]
    host = [x["eager_ms"] / x["kernels"] for x in (fno, ours)] + [measured["step_ms"] / len(base)]
    triton_host = [many["eager_ms"] / many["kernels"]] * 2 + host[1:2]
    for name in STEPS:
        sizes, solves = step(name, samples, n)
        solving = milliseconds(solves, costs)
        count = f"{len(sizes)} launches of operations, {sum(sizes) / 1e9:.1f} GB; {len(solves)} of "
        count += f"Triton, {solving:.1f} ms"
        pairs = zip(host, triton_host, strict=True)
        eager = [a * len(sizes) + b * len(solves) for a, b in pairs]
        parts = zip((1, math.sqrt(factor), factor), (1 / spread, 1, spread), strict=True)
        recorded = [a * on_gpu(sizes) + b * solving for a, b in parts]
        for kind, ms in (("eager", eager), ("recorded", recorded)):
            peers = probe()["peers"].get(f"{name}, {kind}", "-")
            found.append(row(f"step of {name}, {kind}", count, ms, peers))
    return found


# Vision -------------------------------------------------------------------------------------------

KINDS = {
    "matrix products": ("mm", "addmm", "bmm", "convolution", "convolution_backward"),
    "conversions and copies": ("_to_copy", "copy_", "clone", "cat"),
    "activations": tuple(x + y for x in ("gelu", "silu", "softplus") for y in ("", "_backward")),
    "norms": ("native_layer_norm", "native_layer_norm_backward"),
}


def vision_step(name: str, images: int, points: int) -> tuple[Operations, int]:
    """The operations of a training step under autocast, and launches of scans."""
    model = vision.build(name, points).train()
    x, target = torch.randn(images, 3, points, points), torch.zeros(images, dtype=torch.long)
    with noted(count=False) as notes, Operations() as operations:
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), target)
        loss.backward()
    return operations, len(notes)


def backbones(run: Run) -> list[Row]:
    """A training step of a backbone of timm, launched one by one under autocast.

    The larger of the host's time, by launches as above, and the GPU's: bytes, counted for two and
    for four images, at the rates of the measured peers, and scans, whose steps of a state take four
    times those of the large scan above, as many instructions as there four states do together.
    """
    given = probe()["vision"]
    images, points = given["images"], 64 if run.smoke else given["points"]
    peers = {x: 1e3 * images / rate for x, rate in given["images_per_second"].items()}
    names = [*peers, "chonn_tiny"]
    counted, fno = {}, probe()["steps"][0]
    for name in names:
        (few, scans), (more, _) = (vision_step(name, n, points) for n in (2, 4))
        size = sum(few.by_name.values())
        counted[name] = size + (sum(more.by_name.values()) - size) * (images - 2) / 2
    rates = sorted(peers[name] / counted[name] for name in peers)
    own = few  # of the last name, as are its scans
    shape, dtype = SCANS[0]
    steps, step_ms = own.states * images / 2, scan_ms(shape, dtype)[0][1][1] / math.prod(shape)
    launches = len(own.bytes) + scans
    found = []
    for rate in (rates[0], statistics.fmean(rates), rates[-1]):
        device = rate * counted[names[-1]] + 4 * steps * step_ms
        found.append(max(device, launches * fno["eager_ms"] / fno["kernels"]))
    sizes = {x: sum(own.by_name[y] for y in kind) for x, kind in KINDS.items()}
    sizes["others"] = sum(own.by_name.values()) - sum(sizes.values())
    shares = ", ".join(f"{x} {y / sum(sizes.values()):.0%}" for x, y in sizes.items())
    count = f"{1e3 * images / found[1]:,.0f} images a second; "
    count += f"{launches} launches, {scans} of scans, {4 * steps * step_ms:.1f} ms; "
    count += f"{counted[names[-1]] / 1e9:.0f} GB: {shares}"
    text = ", ".join(f"{name} {ms:.1f}" for name, ms in peers.items())
    return [row(f"step of {names[-1]}, {images} images, bfloat16", count, found, text)]


def calibration(run: Run) -> Row:
    del run
    costs = fit()
    errors = [x["ms"] / milliseconds(x["launches"], costs) for x in probe()["totals"]]
    spread = deviation("levels", costs)
    return {**costs._asdict(), "spread": spread, "low": min(errors), "high": max(errors)}


sections = {
    "calibration": calibration,
    "circuits": circuits,
    "scans": scans,
    "steps": steps,
    "vision": backbones,
}
main = main_of(__doc__, "gpu_predicted", sections, ["triton", "nvidia-cuda-nvrtc"])

if __name__ == "__main__":
    main()
