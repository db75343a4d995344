"""Checks that generators and readers share."""

import os


def check_least(*arguments: tuple[str, int, int]) -> None:
    """ValueError for the first (name, value, least) whose value is below its least."""
    for name, value, least in arguments:
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


def check_sizes(n_samples: int, resolution: int, least: int, seed: int, workers: int) -> None:
    """`check_least` of what generators have in common; `least` is that of the resolution."""
    check_least(
        ("n_samples", n_samples, 1),
        ("resolution", resolution, least),
        ("seed", seed, 0),
        ("workers", workers, 1),
    )


def check_range(
    path: "str | os.PathLike[str]", n_samples: int, start: int, stop: "int | None"
) -> None:
    """ValueError unless a file of `n_samples` samples has those from `start` up to `stop`."""
    if not 0 <= start < (n_samples if stop is None else stop) <= n_samples:
        raise ValueError(f"{path}: samples {start} to {stop} asked for, it has {n_samples} samples")
