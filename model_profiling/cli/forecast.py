"""Predict what SME2 would change in a run, or in a model, which is measured first."""

import argparse
from pathlib import Path

from model_profiling import api
from model_profiling.api.definition import takes
from model_profiling.base.errors import InputError
from model_profiling.cli.answer import answer, page_of, show_result
from model_profiling.cli.progress import progress

TAKES = takes(more="measured! emulated? target speedups verbose json")
EXAMPLE = "sme2-kit forecast out_toy_cnn/runs/linux --target apple_m4"


def run(args: argparse.Namespace) -> int:
    from model_profiling.analysis.run.run_forecasts import forecast_targets
    from model_profiling.report.content.forecast import of_targets, report

    if args.target and args.speedups:
        raise InputError("--target and --speedup exclude each other", "Name the machine, or what to assume.")
    measured = _measured(str(args.measured))
    proof = api.open_run(args.emulated) if args.emulated is not None else None
    found: list[object]
    if args.target == "all":
        every = forecast_targets(measured, proof)
        found, said = [*every], of_targets(measured.summary.model, every)
    else:
        one = api.forecast(measured, proof, target=args.target, speedups=args.speedups)
        found, said = [*one], report(measured.summary.model, list(one))
    bare = measured.path.is_file()
    page, following = (None, []) if bare else (page_of(measured.path), _next(measured, args))
    return answer(args, found, lambda: show_result(said, page, following, args.verbose))


def _next(measured: "api.Run", args: argparse.Namespace) -> list[object]:
    """Return the page with the forecast in it; first its proof, if there is none."""
    if args.emulated is None:
        program = measured.manifest.model.file()
        return ["kernels", program] if program is not None else []
    target = ["--target", args.target] if args.target and args.target != "all" else []
    return ["report", measured.path, "--forecast", args.emulated, *target, "--html"]


def _measured(what: str) -> "api.Run":
    """Return the run at a path; a program or a model is measured first, where `run` and `profile` put it."""
    if Path(what).is_dir() or Path(what).suffix == ".etdump":
        return api.open_run(what)
    with progress() as report:
        return api.profile(what, on_progress=report)
