"""Timing one case: contenders that differ by factors of thousands, in turns where that is quick.

A contender whose call would take longer than its limit is timed on fewer networks and its times
scaled to all of them; ``timed_networks`` in its row says so. A call of more than `LONG_MS` warms
itself up: its first call counts, and it is called again only while it stays within `BUDGET_MS`.
What fails is noted and left out: no peer ends a run.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from _floors import moving_calls, moving_floor
from _harness import Call, Turns, add_ratios, fill, milliseconds
from _networks import CHANNELS, TOLERANCE, Case, Networks, make, quality, unavoidable_bytes
from _solvers import Build, NotFitting, Solver

LONG_MS = 300.0
BUDGET_MS = 3000.0
LIMIT_MS = {"forward": 20_000.0, "both": 12_000.0}
BOTH_OVER_FORWARD = 2.5  # a guess, to choose how many networks
SAMPLE = 8  # times the networks of the last trial in the next one
ROUNDINGS = 4  # times the rounding of potentials that a residual may have above the tolerance


class TooLong(Exception):
    """One network takes longer than all may: its trial is all that is timed."""

    def __init__(self, ms: float) -> None:
        super().__init__(f"{ms / 1e3:.0f} s for one network")
        self.ms = ms


class Bench:
    """Contenders, turns and limits of a run; notes of what was left out."""

    def __init__(self, found: Mapping[str, Build], turns: Turns, notes: list[str]) -> None:
        self.found, self.turns, self.notes = dict(found), turns, notes
        tiny = make(Case((4, 4), 2))
        for build in self.found.values():  # what is loaded at a first call is no part of any
            with contextlib.suppress(Exception):
                build(tiny).both()

    def measure(
        self,
        case: Case,
        columns: tuple[str, ...] = ("forward", "both"),
        names: tuple[str, ...] | None = None,
        limit: float = 1.0,
    ) -> dict[str, Any]:
        """A row for each contender, and the floors.

        Parameters
        ----------
        names
            Of the contenders; all by default.
        limit
            Share of `LIMIT_MS`.
        """
        networks = make(case)
        rows: dict[str, dict[str, Any]] = {}
        calls: dict[tuple[str, str], Call] = {}
        firsts: dict[tuple[str, str], float] = {}
        trials: dict[tuple[str, str], list[float]] = {}
        for name in self.found if names is None else [n for n in names if n in self.found]:
            row: dict[str, Any] = {"name": name}
            try:
                solvers = self._solvers(name, networks, columns, limit)
                solver = solvers["forward"][1]
                firsts[name, "forward"], v = _warm(solver.forward)
                row |= self._judged(networks.first(solvers["forward"][0]), v, solver)
                if "both" in columns:
                    firsts[name, "both"], _ = _warm(solvers["both"][1].both)
            except NotFitting:
                continue
            except TooLong as trial:
                rows[name] = row | {"timed_networks": {"forward": 1}}
                trials[name, "forward"] = [trial.ms]
                continue
            except Exception as failure:
                self._note(name, case, failure)
                continue
            rows[name] = row | {"timed_networks": {c: solvers[c][0] for c in columns}}
            calls |= {(name, "forward"): solver.forward}
            calls |= {(name, "both"): solvers["both"][1].both} if "both" in columns else {}
        times = self._times(calls, firsts, case) | trials
        limits = {
            c: moving_floor(c, count, times)
            for c, count in unavoidable_bytes(case).items()
            if c in columns
        }
        for (name, column), values in times.items():
            if name in rows and values:
                scale = case.networks / rows[name]["timed_networks"][column]
                fill(rows, {(name, column): [value * scale for value in values]})
        if rows:
            add_ratios(rows, next(iter(rows)), columns)
        for row in rows.values():
            for column in columns:
                ms = row.get(f"{column}_ms")
                if ms is not None:
                    row[f"{column}_floors"] = ms / limits[column]["bytes_ms"]
                    row[f"{column}_ns"] = ms * 1e6 / (case.networks * case.nodes)
        return {**case.label(), "floors": limits, "rows": list(rows.values())}

    def _solvers(
        self, name: str, networks: Networks, columns: tuple[str, ...], limit: float
    ) -> dict[str, tuple[int, Solver]]:
        """How many networks each column is timed on, and the solver of so many."""
        build, total = self.found[name], len(networks)
        count = 1
        each = _each(build, networks.first(1))
        longest = max(LIMIT_MS[column] for column in columns) * limit
        if each > longest:
            raise TooLong(each)
        # Many at once take less each, so what one takes says too much.
        while each * total > longest / 2 and count < total and 2 * each * count < BUDGET_MS:
            count = min(total, SAMPLE * count)
            each = _each(build, networks.first(count))
        built: dict[int, Solver] = {}
        chosen = {}
        for column in columns:
            estimate = each * (BOTH_OVER_FORWARD if column == "both" else 1)
            count = total
            if estimate * total > LIMIT_MS[column] * limit:
                count = max(1, min(total, int(BUDGET_MS * limit / estimate)))
                count -= count % CHANNELS if count > CHANNELS else 0
            if count not in built:
                built[count] = build(networks.first(count))
            chosen[column] = (count, built[count])
        return chosen

    def _judged(self, networks: Networks, v: torch.Tensor, solver: Solver) -> dict[str, Any]:
        found: dict[str, Any] = quality(networks, v)
        found["holds"] = found["residual"] <= TOLERANCE + ROUNDINGS * found["rounding"]
        if solver.iterations:
            counts = solver.iterations()
            found |= {"iterations": max(counts), "mean_iterations": sum(counts) / len(counts)}
        return found

    def _times(
        self,
        calls: Mapping[tuple[str, str], Call],
        firsts: Mapping[tuple[str, str], float],
        case: Case,
    ) -> dict[tuple[str, str], list[float]]:
        failed: set[tuple[str, str]] = set()

        def guarded(key: tuple[str, str], call: Call) -> Call:
            def run() -> None:
                if key not in failed:
                    try:
                        call()
                    except Exception as failure:
                        failed.add(key)
                        self._note(key[0], case, failure)

            return run

        quick = {key: guarded(key, c) for key, c in calls.items() if firsts[key] <= LONG_MS}
        times = self.turns.times({**quick, **moving_calls(unavoidable_bytes(case))})
        for key, call in calls.items():
            if key not in quick:
                again = min(self.turns.rounds - 1, int(BUDGET_MS / firsts[key]) - 1)
                repeat = guarded(key, call)
                times[key] = [firsts[key], *(milliseconds(repeat) for _ in range(again))]
        return {key: [] if key in failed else values for key, values in times.items()}

    def _note(self, name: str, case: Case, failure: Exception) -> None:
        text = str(failure).splitlines()[0] if str(failure) else ""
        where = "x".join(map(str, case.grid))
        self.notes.append(f"{name} left out at {where}: {type(failure).__name__}: {text}")


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what did not converge shows in its residual
        ms = milliseconds(lambda: found.append(call()))
    return ms, found[0]


def _warm(call: Callable[[], Any]) -> tuple[float, Any]:
    """As `_timed`, once more where the first call can have been long by what it loaded."""
    ms, found = _timed(call)
    return _timed(call) if LONG_MS < ms < BUDGET_MS else (ms, found)


def _each(build: Build, networks: Networks) -> float:
    """Milliseconds a network of a call after one to warm up, if that one is not long enough."""
    solver = build(networks)
    ms = _timed(solver.forward)[0]
    if ms < BUDGET_MS:
        ms = _timed(solver.forward)[0]
    return ms / len(networks)
