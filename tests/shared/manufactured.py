"""Manufactured solutions of -div(k grad u) + a u = f, and its finite volumes, cell by cell."""

import itertools
import math

import numpy as np
import torch
from scipy.sparse import coo_array

from chonn_ops import Dirichlet, Neumann, Robin


def manufactured(exact, medium, *points, absorption=0.0):
    """The field at points, its flux k grad u along each axis, and the source. `medium` returns a
    conductivity, or the entries (xx, yy, xy) of a tensor."""
    points = [x.detach().clone().requires_grad_() for x in points]
    u, k = exact(*points), medium(*points)
    slopes = torch.autograd.grad(u.sum(), points, create_graph=True)
    if isinstance(k, tuple):
        xx, yy, xy = k
        flux = [xx * slopes[0] + xy * slopes[1], xy * slopes[0] + yy * slopes[1]]
    else:
        flux = [k * slope for slope in slopes]
    f = absorption * u
    for part, x in zip(flux, points, strict=True):
        f = f - torch.autograd.grad(part.sum(), x, retain_graph=True)[0]
    return u.detach(), [x.detach() for x in flux], f.detach()


def wall(letter, u, outward):
    """The condition D, N or R that a field and its outward flux fulfil."""
    if letter == "D":
        return Dirichlet(u)
    return Neumann(outward) if letter == "N" else Robin(2.5, u + outward / 2.5)


def orders(errors):
    """Orders of convergence, where each grid is twice as fine as the one before."""
    return [math.log2(a / b) for a, b in itertools.pairwise(errors)]


def tensor(xx, yy, xy):
    """Tensors (..., 2, 2) of their entries."""
    return torch.stack([torch.stack([xx, xy], -1), torch.stack([xy, yy], -1)], -2)


def plain(k, spacing, faces, absorption, f, mask=None, inner=None, arithmetic=0.0):
    """Matrix and right side of the finite-volume scheme, cell by cell: an independent assembly.

    `faces` and `inner` hold ("dirichlet", value, distance), ("neumann", flux), ("robin",
    coefficient, value, distance) or ("periodic",), two an axis.
    """
    media = k if isinstance(k, list) else [k] * k.ndim
    k = media[0]
    grid, axes = k.shape, k.ndim
    width = [np.broadcast_to(np.asarray(h, float), n) for h, n in zip(spacing, grid, strict=True)]
    n = k.size
    rows, columns, values, right = [], [], [], np.zeros(n)
    number = np.arange(n).reshape(grid)
    exists = np.ones(grid, bool) if mask is None else mask

    def add(p, q, value):
        rows.append(p)
        columns.append(q)
        values.append(value)

    for at in itertools.product(*map(range, grid)):
        p, volume = number[at], math.prod(h[i] for h, i in zip(width, at, strict=True))
        if not exists[at]:
            add(p, p, 1.0)
            continue
        add(p, p, absorption[at] * volume)
        right[p] += f[at] * volume
        for axis, side in itertools.product(range(axes), (0, 1)):
            k = media[axis]
            h, area = width[axis][at[axis]], volume / width[axis][at[axis]]
            to = list(at)
            to[axis] += 2 * side - 1
            outside = not 0 <= to[axis] < grid[axis]
            condition = faces[axis][side]
            if outside and condition[0] == "periodic":
                to[axis] %= grid[axis]
                outside = False
            if not outside and exists[tuple(to)]:
                q = number[tuple(to)]
                a, b = k[at], k[tuple(to)]
                if not min(a, b) or p == q:
                    continue
                far = width[axis][to[axis]]
                harmonic, mean = 2 / (h / a + far / b), 2 * (a * far + b * h) / (h + far) ** 2
                g = area * ((1 - arithmetic) * harmonic + arithmetic * mean)
                add(p, p, g)
                add(p, q, -g)
                continue
            if not outside:
                condition = inner[axis][side]
            half = k[at] * area / (h / 2)
            if condition[0] == "neumann":
                right[p] += condition[1] * area
                continue
            if condition[0] == "dirichlet":
                g, value = k[at] * area / (h / 2 + condition[2]), condition[1]
            else:
                film, value, away = condition[1] * area, condition[2], condition[3]
                half = k[at] * area / (h / 2 + away)
                g = film * half / (film + half)
            add(p, p, g)
            right[p] += g * value
    return coo_array((values, (rows, columns)), shape=(n, n)).tocsc(), right
