"""Manufactured solutions: what makes a field the solution of -div(k grad u) + a u = f."""

from __future__ import annotations

import itertools
import math

import torch

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
