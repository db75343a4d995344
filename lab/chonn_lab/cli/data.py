"""The ``chonn-lab data`` commands."""

import argparse
import importlib
import inspect
from pathlib import Path
from typing import Any

from joblib import cpu_count

from chonn_ops.cli.arguments import add_force

PROBLEMS = {
    "order1d": "order-defined 1-D benchmark",
    "darcy": "Darcy flow in PDEBench's layout",
    "poisson": "Poisson's equation in CNO's layout",
    "shallow_water": "PDEBench's radial dam break; needs PyClaw",
    "navier_stokes": "vorticity, in FNO's layout",
    "fno_darcy": "the FNO paper's Darcy flow on 421 x 421; resumes",
    "condiff": "diffusion in rough log-normal media, after ConDiff; resumes",
    "helmholtz_open": "waves of a point source in an open medium; resumes",
    "meshes": "Darcy flow and heat on meshes of triangles and tetrahedra",
    "upscaling": "pressure on a coarse grid from a fine medium",
    "unknown_law": "pressure from porosity, by an unknown law",
    "advection": "1-D advection in PDEBench's layout, exact; resumes",
    "burgers": "1-D Burgers' equation in PDEBench's layout; resumes",
}
FETCHED = {
    "darcy": "PDEBench's 2D_DarcyFlow_beta1.0_Train.hdf5 (1.3 GB)",
    "shallow_water": "PDEBench's 2D_rdb_NA_NA.h5 (6.6 GB)",
}


def add_data_commands(commands: Any) -> None:
    """Add ``data`` to the subparsers of ``chonn-lab``."""
    data = commands.add_parser("data", help="generate, fetch or identify benchmark data")
    actions = data.add_subparsers(metavar="ACTION", required=True)
    generate = _with_names(actions, "generate", "compute a data set", PROBLEMS)
    generate.set_defaults(command=_generate)
    generate.add_argument(
        "rest", nargs=argparse.REMAINDER, metavar="...", help="its own options; --help lists them"
    )
    fetch = _with_names(actions, "fetch", "download a published data set", FETCHED)
    fetch.set_defaults(command=_fetch)
    fetch.add_argument("--folder", default=".", help="existing folder, default: this one")
    add_force(fetch)
    info = actions.add_parser("info", help="where data files come from: generated or official")
    info.add_argument("files", metavar="FILE", nargs="+", help="data file of any kind")
    info.set_defaults(command=_info)


def _with_names(
    actions: Any, action: str, text: str, names: dict[str, str]
) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        action,
        help=text,
        description="\n".join(f"{name:14} {what}" for name, what in names.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("problem", choices=tuple(names), metavar="PROBLEM", help="one of these")
    return parser


def _problem(name: str) -> Any:
    return importlib.import_module(f"chonn_lab.problems.{name}")


def _generate(arguments: argparse.Namespace) -> None:
    """Call the problem's `generate`, whose parameters are the options."""
    problem = _problem(arguments.problem)
    options = vars(_parser(arguments.problem, problem).parse_args(arguments.rest))
    # The one of two files that an interrupted call has made is not made again.
    there = set() if options["force"] else set(Path(options.get("folder") or ".").glob("*"))
    made = problem.generate(**options)
    for path in made if isinstance(made, tuple) else (made,):
        print(f"{path} is there already" if path in there else f"wrote {path}")


def _parser(name: str, problem: Any) -> argparse.ArgumentParser:
    """Options from the signature of `generate`; the help is the data card."""
    from chonn_lab.problems import generation

    parser = argparse.ArgumentParser(
        prog=f"chonn-lab data generate {name}",
        description=f"{problem.__doc__}\n{inspect.getdoc(problem.generate)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parameters = dict(inspect.signature(problem.generate).parameters)
    if parameters.pop("options", None):
        parameters |= inspect.signature(generation.make_files).parameters
    for option, parameter in parameters.items():
        if option == "force":
            add_force(parser)
        elif option not in ("progress", "recipes"):
            default = cpu_count() if option == "workers" else parameter.default
            # Annotations are texts such as "float | None".
            kind = next(kind for kind in (int, float, str) if kind.__name__ in parameter.annotation)
            parser.add_argument(
                f"--{option.replace('_', '-')}", type=kind, default=default, help=f"[{default}]"
            )
    return parser


def _fetch(arguments: argparse.Namespace) -> None:
    done = _problem(arguments.problem).fetch(arguments.folder, force=arguments.force)
    print(f"{arguments.problem}: {'downloaded, checksum verified' if done else 'is there already'}")


def _info(arguments: argparse.Namespace) -> None:
    from chonn_lab.problems import origin

    for path in arguments.files:
        print(origin.identify(path))
