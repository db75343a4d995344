"""Counts of multiply-adds against arithmetic by hand."""

import torch
from torch import nn

from chonn_lab.cost import multiply_adds
from chonn_ops import KirchhoffCell, Scan


def test_layers():
    layers = nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(5 * 64, 7)
    found = multiply_adds(nn.Sequential(*layers), [torch.ones(2, 3, 8, 8)])
    assert found == 2 * (64 * 5 * 3 * 9 + 7 * 320)


def test_scan():
    def count_of(states):
        cell = KirchhoffCell(6, Scan(d_state=states, directions="raster")).to("meta")
        return multiply_adds(cell, [torch.zeros(2, 10, 6, device="meta")])

    # Beside the scan there are two products with weights of 6 x states.
    assert count_of(8) - count_of(4) == 2 * 10 * 6 * (4 * (4 + 2)) + 2 * 2 * 10 * 6 * 4
