"""Kirchhoff's current law cell by cell, written without a matrix."""

import itertools

import numpy as np


def cell_residual(nu, u, f=1.0):
    """What flows out of every cell of the unit box less its source; walls at u = 0 on its faces."""
    n = len(nu)
    f = np.broadcast_to(f, nu.shape)
    residual = np.zeros(nu.shape)
    for cell in itertools.product(range(n), repeat=nu.ndim):
        for axis, step in itertools.product(range(nu.ndim), (-1, 1)):
            place = list(cell)
            place[axis] += step
            if 0 <= place[axis] < n:
                other = tuple(place)
                flow = (nu[cell] + nu[other]) / 2 * (u[cell] - u[other])
            else:
                flow = 2 * nu[cell] * u[cell]
            residual[cell] += flow * n**2
        residual[cell] -= f[cell]
    return residual


def node_residual(a, u, f=1.0):
    """The same at the inner nodes of a grid with the walls among its nodes."""
    n = len(a)
    residual = np.zeros((n - 2, n - 2))
    for i, j in itertools.product(range(1, n - 1), repeat=2):
        for k, m in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
            residual[i - 1, j - 1] += (a[i, j] + a[k, m]) / 2 * (u[i, j] - u[k, m])
    return residual * (n - 1) ** 2 - f
