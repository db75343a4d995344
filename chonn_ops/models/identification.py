"""The numbers of `CHONNStep`: their units, and the equation that predicts some frames best."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Set
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from chonn_ops.network.layout import residual_of
from chonn_ops.nn.circuit_head import DISTANCE, DISTANCE_GAIN
from chonn_ops.nn.geometry import Geometry

# The logarithm of a diffusivity has further to go than weights: it is the second number and the
# first one times its parameter, the domain and a frame being 1. A third and three times of the
# first one changed errors after training by 2 % on Burgers' equation 0.001 and raised those of
# diffusion-sorption by up to 15 %.
GAIN, DIFFUSIVITY = 8.0, -11.0
# Units of the parameters that are numbers for the whole field: change a frame, in the unit of the
# state; displacement a frame, in that of the domain; logarithm of a capacity. After 60 steps of
# Adam at 1e-2 from a calibrated start, three times the second one had an error 28 % higher on
# Burgers' equation 0.001, a third 4 %; the third one changed 2 % on diffusion-sorption. A third of
# the first one had 0.0006 instead of 0.0041 on reaction-diffusion, which was at 0.00005 before.
RATE, SPEED, STORE = 0.1, 1 / 16, 0.25
# The numbers: what they are where nothing is, and the most that a step changes them.
NUMBERS = {
    "carry": (0.0, math.inf),
    "forcing": (0.0, math.inf),
    "reaction": (0.0, math.inf),
    "storage": (0.0, 2.0),
    "diffusivity": (-2.0, 2 / GAIN),
    "level": (0.0, math.inf),
    "distance": (2.0, 2 / DISTANCE_GAIN),
    "last.weight": (0.0, math.inf),
}
# The parts of a step, which are there if any of these numbers is.
PARTS = {"carry": "carry", "react": "reaction", "store": "storage", "diffuse": "diffusivity"}
# About so many values of first frames are compared, which takes some seconds. The start is this
# diffusivity, in cells squared a frame; a third and three times of it changed no error. Levenberg
# and Marquardt's method takes at most so many steps, and `FEW` before terms are dropped, where 30
# changed errors by 3 % at most. Of more numbers than `MANY`, or of velocities, some are dropped
# before frames are compared: without that a dam break took 60 s instead of 16. With it for fewer,
# Burgers' equation 0.001 had an error of 0.27 instead of 0.008, and diffusion-reaction on 128 x 128
# points, whose start of white noise hid terms, 0.35 instead of 0.0018.
VALUES, START, TURNS, FEW, MANY = 1e4, 0.1, 30, 4, 100
# Rates of noise say that nothing diffuses, so the diffusivities that they leave are multiplied by
# each of these, and that is kept which predicts frames best. From those that rates left,
# diffusion and sorption got walls far away and capacities of 100 to 0.01: 0.13 instead of 0.0008.
FACTORS = [10 ** (k / 2) for k in range(9)]
# Equations without what carries, with a velocity that no frame shows, or that start from a speed
# are given up if their first fit leaves this part of the change. Sorption leaves 0.1, gases 0.5;
# fitting these took minutes, and a vorticity that a dam break has not one of two.
HOPELESS = 0.3
# Errors of so many frames, each predicted from the one before, decide which terms are needed and
# what they are: a single frame prefers speeds that make up for how a step begins. With 1, 4, 8 and
# 16 frames rollouts had errors of 0.033, 0.013, 0.009 and 0.006 on Burgers' equation 0.001, whose
# diffusivity was off by 58, 3, 3 and 3 %.
FRAMES = 8
# Inverses of channels that stay above this part of their size are terms. Without such terms
# compressible flow on a line had an error of 0.019 instead of 0.015, and on a plane, where samples
# have densities from 0.1 to 10, the true other terms have 0.51 instead of 0.05.
NEAR = 0.01
# Terms are dropped without which squares of errors rise by less than the first part of themselves
# or the second part of the change; where frames are predicted worse then, by less than a tenth, or
# a hundredth, of both. A third and three times of the first part left parts and errors as they
# were. Without the second one reaction-diffusion had an error of 0.00012 instead of 0.00005, and
# with 1e-5 a test of heat and reaction kept a capacity that was not there. When all terms stayed
# instead of those of a tenth, late frames of reaction-diffusion, which hardly diffuse, had a
# capacity: errors of 0.00015 instead of 0.0001, and 1.6 times the seconds.
WORTH, LITTLE = 0.05, 1e-4
CAREFUL = 1.0, 0.1, 0.01
# Further forms are tried beyond this mean square of errors over the change, and one is taken whose
# mean square is below this part of that of the simpler ones. Beyond 0.02 only, smooth compressible
# flow on a plane had an error of 0.0149, with limited fluxes, instead of 0.0023. Smooth waves are
# tried where they are better with the same equation: with limited ones alone advection by 51 cells
# a frame, whose errors are small beside its change, had 0.050 instead of 0.003. The simplest have
# neither what carries nor what reacts: with all at once diffusion and sorption had 0.0014 instead
# of 0.0008, and trained in three times the seconds. Without a rate that is more than a polynomial
# PDEBench's diffusion and sorption on 1,024 cells had 0.0031 instead of 0.0012: its generator
# alternates where the state is above 0.9, which acts as a source.
ENOUGH, WORSE = 1e-4, 0.7
# In the end windows count the less the more they leave, by the function of S. Geman and D. McClure
# (1985) whose scale is their median, found so many times: a jump, or a start of white noise, is
# told from what follows it. With 0, 1 and 3 times rollouts of a dam break had errors of 0.0089,
# 0.0047 and 0.0045, and the gravity along both axes differed by 4, 0.1 and 0.4 %.
# Diffusion-reaction had 0.00027, 0.00021 and 0.00021; reaction-diffusion 0.00005 and 0.00007 twice.
# Two steps make a frame where the median of what windows leave falls below `WORSE` of itself with
# them, as the order of the parts matters there: Burgers' equation 0.1 had 0.00008 instead of
# 0.0003, diffusion-reaction 0.00005 instead of 0.00016, and vorticity 0.0023 instead of 0.0047.
ROUNDS = 3
# States that move by more cells than this in a frame are tried with that speed as the start, since
# rates at the frames say nothing of it. Advection by 26 cells a frame had an error of 0.68 without
# that, and has 0.042.
FAR = 2
# Rates at the frames are compared by means over blocks of so many cells that second differences in
# time are at most this times as large as first ones, in squares, as those of a wave of five frames
# are, where Simpson's rule is off by 2 %. Blocks begin after every part of this many of their size.
# This is the weak form of D. Messenger and D. Bortz (2021) with constant test functions. Cell by
# cell, PDEBench's compressible flow on a line, where sound crosses 16 cells a frame, got a wrong
# equation, whose rollouts had an error of 0.48; with blocks its numbers are within 4 %.
ROUGH, OVERLAP = 1.5, 4
# Where no blocks are slow enough, rates of those windows of several channels are compared that are,
# in so many values for each number. Compressible flow on a plane, where sound is ten times as fast
# in some samples as in others, had an error of 0.44 from two of all windows, and has 0.053.
EACH = 64


class Candidate(NamedTuple):
    """An equation to try: its parts, its forms, and how far states move in a frame at its start,
    (axes, C)."""

    parts: set[str]
    forms: Set[str] = frozenset()
    moves: Tensor | None = None


class Identification:
    """`CHONNStep.calibrate` of a model in float64, without gradients, for frames (S, T, \\*grid, C)
    and a geometry that have been checked: `run` leaves the equation in the model's numbers."""

    def __init__(self, model: Any, frames: Tensor, where: Geometry) -> None:
        self.model = model
        self.parameters: dict[str, Tensor] = {name: model.get_parameter(name) for name in NUMBERS}
        pairs = [(p, NUMBERS[name]) for name, p in self.parameters.items()]
        self.absent, self.largest = (
            torch.cat([torch.full_like(p, pair[i]).flatten() for p, pair in pairs]) for i in (0, 1)
        )
        self.where, self.steps = where, where.spacing
        known = min(2, frames.shape[1] - 1)
        length = min(known + FRAMES, frames.shape[1])
        windows = frames.unfold(1, length, 1).movedim(-1, 2).flatten(0, 1)  # (N, length, *grid, C)
        count = min(len(windows), max(2, int(VALUES * len(windows) / windows[:, 0].numel())))
        self.frames = self._in_units(frames)
        on_grid = where.volumes is None
        self.rings = [on_grid and self._is_ring(axis) for axis in range(model.axes)]
        w = some(windows, count) / model.size
        self.windows, self.targets = w[:, : known + 1], w[:, known:]
        self.change = self._change(w, known)
        self.early, self.block = self._compared(windows[:, : known + 1] / model.size, count)

    def run(self) -> tuple[Tensor, float]:
        """Error of the next frames over the change, as roots of mean squares, (C,); and that of the
        last of `FRAMES`, a frame, in which noise counts less."""
        model = self.model
        best: tuple[float, dict[str, Tensor], Candidate] = math.inf, {}, Candidate(set())
        for form in self._candidates():
            worth = best[0] >= ENOUGH and (form.forms != {"hats"} or best[0] < math.inf)
            if form.forms == {"smooth"}:  # of the best equation so far
                model.load_state_dict(best[1])
                form = form._replace(moves=best[2].moves)
                worth = "carry" in model.parts and self._is_better("smooth")
            if not worth:
                continue
            self._begin(form)
            squares = min(math.inf, self._fit_form(form))  # of NaN, infinity
            plain = not form.forms and form.moves is None
            if squares < WORSE * best[0] or (plain and best[0] == math.inf):
                best = squares, copy.deepcopy(model.state_dict()), form
        model.load_state_dict(best[1])
        errors = self._frame_error()
        drift = float(errors[:, -1].square().mean().sqrt()) / errors.shape[1]
        return errors[:, 0].square().flatten(0, -2).mean(0).sqrt(), drift

    def _walls(self) -> list[tuple[Tensor, float]]:
        """For each wall that has a potential, in the order of `level`: states (S, T, F, C) beside
        it, and half the size of their cells across it."""
        v, volumes = self.frames, self.where.volumes
        if volumes is None:
            return [
                (v.narrow(axis + 2, end, 1).flatten(2, -2), step / 2)
                for axis, step in enumerate(self.steps)
                for end in (0, -1)
            ]
        places = [volumes.sets[name] for name in self.model.sets]
        walls = [[x[some] for x in volumes.walls[:2]] for some in places]
        return [
            (v[:, :, node], float((volumes.volume[node] / area).mean() / 2)) for node, area in walls
        ]

    def _in_units(self, x: Tensor) -> Tensor:
        """Frames (S, T, \\*grid, C) in the units that the model gets from them."""
        model, flat = self.model, x.flatten(0, -2)
        size = flat.square().mean(0).sqrt()
        model.size.copy_(torch.where(size > 0, size, 1))
        flat = flat / model.size
        least, most = flat.aminmax(dim=0)
        C, margin = model.channels, (most - least) / 4
        model.low[:C], model.high[:C] = least - margin, most + margin
        model.positive[:C] = least > NEAR
        if C > 1:  # inverses stay finite
            model.low.copy_(torch.where(least > NEAR, model.low.maximum(least / 2), model.low))
        model.units.fit(flat)
        return x / model.size

    def _change(self, w: Tensor, known: int) -> Tensor:
        """Change of windows (N, T, \\*grid, C) from frame to frame, (N, T - known, 1, C).

        Frames count alike, but for those in which next to nothing happens: without the tenth, and
        with three of them, errors changed by 7 % on Burgers' equation 0.001. Channels that do not
        change at all are parameters of the equation, without errors.
        """
        change = (w[:, known:] - w[:, known - 1 : -1]).square()
        change = change.mean(tuple(range(2, w.dim() - 1)), keepdim=True).sqrt()
        change = change + change.mean(0) / 10
        return change.masked_fill(change == 0, math.inf)

    def _means(self, x: Tensor, size: int) -> Tensor:
        """Means over blocks of so many cells along each axis, which overlap, (N, \\*blocks, C)."""
        for dim in range(1, x.dim() - 1) if size > 1 else ():
            x = x.unfold(dim, size, max(1, size // OVERLAP)).mean(-1)
        return x

    def _compared(self, w: Tensor, count: int) -> tuple[Tensor, int]:
        """The windows of all (N, T, \\*grid, C) whose rates are compared, and the cells of blocks.

        Simpson's rule asks that second differences in time are at most `ROUGH` times as large as
        first ones, in squares: in means over the least blocks of all windows, or else in some of
        the windows of several channels.
        """
        if self.model.sets is not None or w.shape[1] < 3:
            return some(w, count), 1

        def slow(w: Tensor, size: int, *over: int) -> Tensor:
            z = w / self._change(w, w.shape[1] - 1)[:, :1]
            first, second = (self._means(z.diff(k, 1)[:, 0], size).square() for k in (1, 2))
            return second.mean(over) <= ROUGH * first.mean(over)

        size = 1
        while 4 * size <= min(w.shape[2:-1]):
            if slow(self.windows, size, *range(w.dim() - 1)):
                # About as many means of blocks.
                return some(w, count * max(1, size // OVERLAP)), size
            size *= 2
        kept = slow(w, 1, *range(1, w.dim() - 1))
        numbers = self.absent.numel() - self.model.last.weight.numel()
        enough = math.ceil(EACH * numbers / w[0, 0].numel())
        if w.shape[-1] > 1 and int(kept.sum()) >= enough:
            return some(w[kept], max(count, enough)), 1
        return some(w, count), 1

    def _is_ring(self, axis: int) -> bool:
        """Whether the ends of an axis differ by as little as neighbours, in the later frames."""
        v, word = self.frames, self.model.boundary[axis]
        if word != "auto":
            return word == "periodic"
        late, dim = v[:, v.shape[1] // 2 :], axis + 2
        near, ends = late.diff(dim=dim), late.narrow(dim, 0, 1) - late.narrow(dim, -1, 1)
        limit = (2 * late.var(dim, correction=0).mean() * near.square().mean()).sqrt()
        return bool(ends.square().mean() < limit)

    def _moves(self) -> Tensor:
        """Cells by which each channel moves along each periodic axis from one frame to the next, by
        which the correlation of both is largest, (axes, C)."""
        before, after = self.windows[:, -2], self.targets[:, 0]
        moves = before.new_zeros(self.model.axes, self.model.channels)
        for axis in [axis for axis, ring in enumerate(self.rings) if ring]:
            a, b = (torch.fft.rfft(x, dim=axis + 1) for x in (before, after))
            n = before.shape[axis + 1]
            likeness = torch.fft.irfft(a.conj() * b, n, axis + 1).movedim(axis + 1, 0)
            most = likeness.flatten(1, -2).sum(1).argmax(0)
            moves[axis] = torch.where(most > n // 2, most - n, most)
        return moves

    def _is_better(self, form: str) -> bool:
        """Whether most windows have far lower errors with the same equation in this form, too,
        which then stays."""
        model, forms, before = self.model, self.model.forms, self._typical_error()
        model._set_parts(model.parts, forms | {form}, self.rings)
        if not (better := self._typical_error() < WORSE * before):
            model._set_parts(model.parts, forms, self.rings)
        return better

    def _candidates(self) -> list[Candidate]:
        """The forms that data of such windows and ends may have, from simple to rich."""
        model, still = self.model, ({"store", "diffuse"}, {"store", "diffuse", "react"})
        candidates = [Candidate(parts) for parts in still]
        candidates.append(Candidate(still[-1], {"hats"}))
        if model.sets is not None:
            return candidates
        forms, parts = [{"smooth"}], set(PARTS)
        candidates.append(Candidate(parts))
        moves = self._moves()
        if bool((moves.abs() > FAR).any()):
            candidates.append(Candidate(parts, moves=moves))
        if model.channels == 1 and model.axes == 2 and all(self.rings):
            forms.append({"smooth", "vorticity"})
        if model.channels == 1 and self.windows.shape[1] > 2 and model.positive[0]:
            forms.append({"mass"})
        return candidates + [Candidate(parts, form) for form in forms]

    # All numbers are one row, and so is what belongs to each of them.

    def _row(self) -> Tensor:
        return torch.cat([p.flatten() for p in self.parameters.values()])

    def _views(self, row: Tensor) -> dict[str, Tensor]:
        """The entries of a row by the name and in the shape of their parameter."""
        parts = row.split([p.numel() for p in self.parameters.values()])
        pairs = zip(self.parameters.items(), parts, strict=True)
        return {name: x.view_as(p) for (name, p), x in pairs}

    def _set(self, row: Tensor) -> None:
        for name, x in self._views(row).items():
            self.parameters[name].copy_(x)

    def _begin(self, form: Candidate) -> None:
        """Nothing but diffusion, and walls near by at the potentials beside them."""
        model, unit, volumes = self.model, self.model.unit, self.where.volumes
        parts, forms, moves = form
        step = min(self.steps) if volumes is None else volumes.volume.mean() ** (1 / model.axes)
        model._set_parts(parts, set(forms), self.rings)
        for p in model.last.parameters():
            p.zero_()
        if "hats" in forms:
            self._set_hats()
        row = torch.zeros_like(self.absent)
        numbers = self._views(row)
        start = math.log(START * (float(step) / unit) ** 2)
        numbers["diffusivity"].fill_((start - DIFFUSIVITY) / GAIN)
        level, distance = (numbers[name].flatten(0, -2) for name in ("level", "distance"))
        for i, (beside, half) in enumerate(self._walls()):
            level[i] = beside.flatten(0, -2).mean(0)
            distance[i] = math.log(half / (unit * DISTANCE)) / DISTANCE_GAIN
        for axis, move in enumerate([] if moves is None else moves):
            speed = move * self.steps[axis] / (unit * SPEED)
            numbers["carry"][axis].diagonal()[0, : len(move)] = speed
        if "mass" in forms:
            # What flows carries itself along, and fills the nodes that it enters. Where this had to
            # be found, a dam break had an error of 0.0065 instead of 0.0035.
            for axis in range(model.axes):
                numbers["carry"][axis].diagonal()[2 + axis] = 1
                numbers["carry"][axis, 0, 1 + axis, 1] = 1
        self._set(row)

    def _set_hats(self) -> None:
        """Let the network's features be hats, spread over the values of each channel: differences
        of kinks. Their shares are found as other numbers are, in the last layer."""
        model, C = self.model, self.model.channels
        first, *others = (layer for layer in model.trunk if isinstance(layer, nn.Linear))
        neuron = torch.arange(first.out_features, device=self.frames.device)
        count, channel = math.ceil(len(neuron) / C), neuron % C
        least, most = (self.frames.flatten(0, -2) / model.units.size).aminmax(dim=0)
        slope = count / (most - least).clamp(min=1e-9)[channel]
        first.weight.zero_()
        first.weight[neuron, C + channel] = slope
        first.bias.copy_(-slope * least[channel] - neuron // C)
        for layer in others:
            layer.weight.copy_(torch.eye(len(neuron)))
            layer.bias.zero_()
        for layer in others[:1]:  # differences of the kinks of one channel
            layer.weight.diagonal(C).fill_(-2.0)
            layer.weight.diagonal(2 * C).fill_(1.0)

    def _free(self) -> Tensor:
        """Which numbers this form may have. Capacities depend on their own channel and on those
        that are parameters, which have no equation."""
        model, C = self.model, self.model.channels
        free = torch.ones_like(self.absent, dtype=torch.bool)
        masks = self._views(free)
        constant = self.change.isinf().flatten(0, -2).all(0)
        masks["storage"] &= (torch.eye(C).to(constant) | constant).repeat(1, 2)
        for name in ("reaction", "diffusivity"):
            masks[name][constant] = False
        for axis, ring in enumerate(self.rings if model.sets is None else ()):
            masks["level"][axis] = masks["distance"][axis] = not ring
        carry = masks["carry"]
        carry[:] = model.sets is None
        carry[..., model.states + 1 :] &= (model.positive > 0) & (C > 1)
        nodes = self.frames.flatten(2, -2)
        carry[:, :C][:, constant] = False
        carry[:, :, :C][:, :, (nodes == nodes[:, :, :1]).flatten(0, -2).all(0)] = False
        if "mass" in model.forms:
            carry[:, 0] = carry.diagonal(dim1=1, dim2=2)[:] = False
            for name in masks.keys() - {"carry"}:
                masks[name][:] = False
        else:
            carry[:, C:], carry[:, :, C:] = False, False
            if "vorticity" not in model.forms:
                carry[..., 1 + C : 1 + model.states] = False
        masks["forcing"][:] = "vorticity" in model.forms
        masks["forcing"][:, 0] = False
        for part, name in PARTS.items():
            masks[name] &= part in model.parts
        masks["last.weight"][:] = False
        masks["last.weight"][:C] = ~constant[:, None] if "hats" in model.forms else False
        return free

    def _keep(self, free: Tensor) -> None:
        """Leave these numbers in place, and nothing where the others are. Without diffusion there
        are neither capacities nor walls, which `free` then lacks, too."""
        model, masks = self.model, self._views(free)
        masks["storage"] &= masks["diffusivity"][:, None]
        masks["distance"] &= masks["diffusivity"]
        masks["level"] &= masks["distance"]
        kept = free.clone()
        if "mass" in model.forms:
            carry = self._views(kept)["carry"]
            carry[:, 0] = carry.diagonal(dim1=1, dim2=2)[:] = True
        self._set(torch.where(kept, self._row(), self.absent))
        parts = {part for part, name in PARTS.items() if masks[name].any()}
        parts |= {"react"} if masks["last.weight"].any() else set()
        model._set_parts(parts, model.forms, self.rings)

    def _fit_form(self, form: Candidate) -> float:
        """Find the numbers of one form; the mean square of the error of next frames. Rates at
        the frames come first, because Burgers' equation had wrong minima without them."""
        model, free, rate_error = self.model, self._free(), self._rate_error()
        self._keep(free)
        error = self._fit(rate_error, free, 2 if form.moves is None else 0)
        if int(free.sum()) > MANY or "mass" in model.forms:
            free = next(self._needed(rate_error, free, error))
            self._keep(free)
        self._spread(free)
        first = self._fit(lambda: self._frame_error(1), free, FEW)
        plain = "carry" in form.parts and form.moves is None and form.forms <= {"smooth"}
        special = model.sets is None and not plain
        if special and float(first.square().mean()) > HOPELESS:
            return math.inf
        error = self._frame_error().flatten()
        if float(error.square().mean()) > HOPELESS:
            error = self._fit(self._frame_error, free, FEW)
        row, parts, squares = self._row(), model.parts, float(error.square().mean())
        nothing = float(((self.windows[:, -1:] - self.targets) / self.change).square().mean())
        for fewer in self._needed(self._frame_error, free, error):
            self._keep(fewer)
            after = float(self._fit(self._frame_error, fewer).square().mean())
            if after <= min(2 * squares + LITTLE, WORSE * nothing):
                free = fewer
                break
            model._set_parts(parts, model.forms, self.rings)
            self._set(row)
        else:
            # All terms stay where none explains much, so that something learns, and where those
            # that seemed to explain nothing did, beyond the first order.
            return squares
        self._is_better("halved")
        for _ in range(ROUNDS):
            typical = self._typical_error() or math.inf
            self._fit(partial(self._weighted_error, typical), free, FEW)
        return float(self._frame_error().square().mean())

    def _spread(self, free: Tensor) -> None:
        """Set the diffusivities to that multiple of themselves which predicts frames best. Rates of
        noise say little of them."""
        some, row = self._views(free)["diffusivity"], self._row()
        best, kept = math.inf, row
        for factor in FACTORS if bool(some.any()) else ():
            now = row.clone()
            self._views(now)["diffusivity"][some] += math.log(factor) / GAIN
            self._set(now)
            squares = float(self._frame_error(1).square().mean())
            if squares < best:
                best, kept = squares, now
        self._set(kept)

    def _function(self, error: Callable[[], Tensor], free: Tensor) -> Callable[[Tensor], Tensor]:
        """Errors (rows,) as a function of the free numbers, which it sets."""

        def errors(numbers: Tensor) -> Tensor:
            self._set(self._row().masked_scatter(free, numbers))
            return error().flatten()

        return errors

    def _fit(self, error: Callable[[], Tensor], free: Tensor, turns: int = TURNS) -> Tensor:
        """Set the free numbers so that squares of errors are least; the errors (rows,) then."""
        errors = self._function(error, free)
        return errors(levenberg_marquardt(errors, self._row()[free], self.largest[free], turns))

    def _needed(self, error: Callable[[], Tensor], free: Tensor, now: Tensor) -> Iterator[Tensor]:
        """Which of the free numbers explain something of these errors, to first order, as few as
        `CAREFUL` says at first. Logarithms have no zero; walls are left out as they are, because a
        derivative says nothing of a wall that holds what is beside it."""
        errors, row, scale = self._function(error, free), self._row(), self._row()
        self._views(scale)["diffusivity"].fill_(1 / GAIN)
        effects = jacobian(errors, row[free], now) * scale[free]
        self._views(walls := torch.zeros_like(free))["distance"].fill_(True)
        for column in walls[free].nonzero().flatten():
            numbers = row[free]
            numbers[column] = self.absent[free][column]
            effects[:, column] = now - errors(numbers)
        self._set(row)
        # What diffuses stays with its walls and its capacity.
        base, above = torch.full_like(row, -1), torch.full_like(row, -2)
        channels = torch.arange(self.model.channels).to(row)
        self._views(base)["diffusivity"].copy_(channels)
        parts = self._views(above)
        parts["storage"].copy_(channels[:, None].expand_as(parts["storage"]))
        parts["distance"].copy_(channels.expand_as(parts["distance"]))
        locks = base[free][:, None] == above[free]
        kept = free[:0]
        for part in CAREFUL:
            before, kept = kept, needed(effects, effects.sum(1) - now, locks, part)
            if not torch.equal(kept, before):
                yield free.masked_scatter(free, kept)

    def _frame_error(self, frames: int = FRAMES) -> Tensor:
        """Error of the next frames over the change, (N, frames, \\*grid, C)."""
        model, known = self.model, self.windows.shape[1] - 1
        n = min(frames, self.targets.shape[1])
        states = list(self.windows[:, :known].unbind(1))
        for _ in range(n):
            states.append(model.step(torch.cat(states[-model.history :], -1), 1.0, self.where))
        errors = torch.stack(states[known:], 1) - self.targets[:, :n]
        return errors / self.change[:, :n]

    def _typical_error(self) -> float:
        """Median of the mean squares of `_frame_error` of each window."""
        return float(self._frame_error().square().flatten(1).mean(1).median())

    def _weighted_error(self, typical: float) -> Tensor:
        """`_frame_error` of windows that count the less, the more they leave."""
        errors = self._frame_error()
        weights = (1 + errors.square().flatten(1).mean(1) / typical).rsqrt()
        return errors * weights.view(-1, *[1] * (errors.dim() - 1))

    def _rate_error(self) -> Callable[[], Tensor]:
        """What rates at the frames leave of the change from first to last, by Simpson's rule.
        Nearly linear in the numbers, so it has no wrong minima. Also sets the range of velocities
        that no frame shows."""
        model, steps, z = self.model, self.steps, self.early
        change = self._change(z, z.shape[1] - 1)
        if "mass" in model.forms:
            speeds = [
                model._velocity(z[:, k + 1] - z[:, k], (z[:, k + 1] + z[:, k]) / 2, steps)
                for k in range(2)
            ]
            mean, target = (speeds[0] + speeds[1]) / 2, speeds[1] - speeds[0]
            self._set_range(mean)
            unit, whole = target.square().mean().sqrt(), torch.cat((z[:, 1], mean), -1)

            def velocity_error() -> Tensor:
                weights = model._speeds(1.0, steps)
                return (model._drift(whole, weights, steps)[..., 1:] - target) / unit

            return velocity_error
        if "vorticity" in model.forms:
            self._set_range(model._velocity(z[:, -1], None, steps))
        shares = z.new_tensor((1 / 3, 4 / 3, 1 / 3) if z.shape[1] == 3 else (1 / 2, 1 / 2))
        target, every = z[:, -1] - z[:, 0], z.flatten(0, 1)

        def rate_error() -> Tensor:
            moved = torch.einsum("t,nt...->n...", shares, self._rates(every).view_as(z))
            error = (moved - target) / (change[:, 0] * (z.shape[1] - 1))
            return self._means(error, self.block)

        return rate_error

    def _set_range(self, velocity: Tensor) -> None:
        reach = 1.5 * velocity.abs().amax()
        self.model.low[1:], self.model.high[1:] = -reach, reach

    def _rates(self, v: Tensor) -> Tensor:
        """Change of states (N, \\*grid, C) a frame by all parts at once."""
        model, steps = self.model, self.steps
        circuit = model.circuit(v, self.where)
        current = torch.zeros_like(v) if circuit.current is None else circuit.current
        flow = residual_of(v, current, circuit.conductance, circuit.leak, circuit.layout)
        rate = model.rate(v) + flow / circuit.volume / model._slowness(v, store=True)
        if "vorticity" in model.forms:
            rate = rate + model._push(v, 1.0)
        if "carry" in model.parts:
            rate = rate + model._drift(v, model._speeds(1.0, steps), steps)
        return rate


def some(windows: Tensor, count: int) -> Tensor:
    """So many of windows (N, ...), which steps of the golden ratio spread over all of them."""
    places = torch.arange(min(count, len(windows)), device=windows.device)
    return windows[(places * ((math.sqrt(5) - 1) / 2) % 1 * len(windows)).long()]


def jacobian(
    function: Callable[[Tensor], Tensor], at: Tensor, value: Tensor, step: float = 1e-5
) -> Tensor:
    """Derivatives (rows, numbers) of a function with this value (rows,), by differences."""
    shifts = torch.eye(len(at), dtype=at.dtype, device=at.device) * step
    columns = [(function(at + shift) - value) / step for shift in shifts]
    return torch.stack(columns, 1) if columns else value.new_zeros(len(value), 0)


def levenberg_marquardt(
    function: Callable[[Tensor], Tensor], start: Tensor, largest: Tensor, turns: int
) -> Tensor:
    """Numbers with which squares of a function (rows,) are least, by Levenberg and Marquardt's
    method, whose steps change no number by more than its largest."""
    value, damping = function(start), 1e-3
    for _ in range(turns if len(start) else 0):
        slopes, last = jacobian(function, start, value), float(value.square().sum())
        gram, drive = slopes.T @ slopes, slopes.T @ value
        bend = gram.diagonal()
        cost = math.inf
        while damping < 1e6:
            matrix = gram + torch.diag(damping * bend + 1e-9 * bend.max() + 1e-30)
            change = torch.linalg.solve(matrix, drive).clamp(-largest, largest)
            after = function(start - change)
            if (cost := float(after.square().sum())) < last:
                value, start, damping = after, start - change, damping / 10
                break
            damping *= 10
        if not cost < 0.995 * last:
            break
    return start


def needed(effects: Tensor, target: Tensor, locks: Tensor, part: float) -> Tensor:
    """Which columns (rows, numbers) least squares need for a target (rows,): without any of them
    the squares are larger by this part of `WORTH` and `LITTLE`, or there are others that lock it
    (numbers, numbers)."""
    unit = effects.norm(dim=0)
    effects = effects / torch.where(unit > 0, unit, 1)
    gram, drive, whole = effects.T @ effects, effects.T @ target, float(target.square().sum())
    gram = gram + 1e-10 * torch.eye(len(gram)).to(gram)  # columns may depend on one another
    keep = torch.ones_like(drive, dtype=torch.bool)
    while keep.any():
        inverse = torch.linalg.inv(gram[keep][:, keep])
        shares = inverse @ drive[keep]
        rises = shares.square() / inverse.diagonal()
        rises[locks[keep][:, keep].any(1)] = math.inf
        rest = max(whole - float(shares @ drive[keep]), 0.0)
        if rises.min() > part * (WORTH * rest + LITTLE * len(target)):
            break
        keep[keep.nonzero()[rises.argmin()]] = False
    return keep
