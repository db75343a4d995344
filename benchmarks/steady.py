"""A training of `chonn run darcy | poisson --scale small` by the clock: step times its steps.

Each model has its own batch size, as in the study; loss, backward and AdamW, on random fields.

Columns
    step_ms     the median
    training_s  of all steps: 256 samples, 15 epochs
    ratio       that time over the FNO's
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from _harness import Call, Turns, arguments, environment, fill, show, start, write_result
from _training import parameter_count

from chonn_ops.experiments import get
from chonn_ops.experiments._steady import relative_l1

PROBLEMS = ("darcy", "poisson")
MODELS = ("network", "fno", "unet", "cno")
COLUMNS = ("step_ms", "training_s", "ratio")


def prepare(problem: str, name: str, scale: str) -> tuple[Call, dict[str, Any]]:
    """One optimiser step of a model of the study, and what it is."""
    experiment = get(problem)
    config = experiment.scales[scale]
    (variant,) = [v for v in experiment.variants(config) if v.name == name]
    config = dataclasses.replace(config, **variant.changes)
    torch.manual_seed(0)
    model = variant.build(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate)
    grid = (config.batch_size, 1, config.resolution, config.resolution)
    source, target = torch.rand(grid), torch.rand(grid)

    def step() -> None:
        optimizer.zero_grad()
        relative_l1(model(source), target).mean().backward()
        optimizer.step()

    row = {
        "problem": problem,
        "name": name,
        "label": variant.label,
        "parameters": parameter_count(model),
        "batch": config.batch_size,
        "steps": config.n_train // config.batch_size * config.epochs,
    }
    return step, row


def main(given: list[str] | None = None) -> None:
    options = start(arguments(__doc__, "steady"), given)
    turns = Turns(options.rounds, options.visit_ms)
    rows: dict[str, dict[str, Any]] = {}
    calls: dict[tuple[str, str], Call] = {}
    for problem in PROBLEMS:
        for name in MODELS:
            key = f"{problem} {name}"
            calls[key, "step"], rows[key] = prepare(
                problem, name, "smoke" if options.smoke else "small"
            )
    fill(rows, turns.times(calls))
    for row in rows.values():
        row["training_s"] = row["step_ms"] * row["steps"] / 1e3
    for row in rows.values():
        row["ratio"] = row["training_s"] / rows[f"{row['problem']} fno"]["training_s"]
    show(list(rows.values()), "problem", "label", "parameters", "batch", *COLUMNS)
    write_result(
        options.output, {"environment": environment(options, []), "rows": list(rows.values())}
    )


if __name__ == "__main__":
    main()
