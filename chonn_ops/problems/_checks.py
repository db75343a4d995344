"""Checks that generators and readers share."""


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
