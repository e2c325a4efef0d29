"""Export and run many models, dtypes and rewrites on many targets, and compare them on one page."""

import argparse
from typing import TYPE_CHECKING

from model_profiling.api.definition import takes
from model_profiling.api.verbs import sweep as run_sweep
from model_profiling.base.errors import RunError
from model_profiling.base.printing import tell
from model_profiling.cli.answer import answer, note, show_result
from model_profiling.cli.progress import progress

if TYPE_CHECKING:
    from model_profiling.fleet.sweep.jobs import Job

TAKES = takes(run_sweep, "dry_run html=NoHtml json")
EXAMPLE = "sme2-kit sweep models.json --dry-run"


def run(args: argparse.Namespace) -> None:
    from model_profiling.fleet.sweep.sweep import Sweep

    sweep = Sweep(args.asked, args.out, args.only or (), pages=args.html is not False)
    if args.dry_run:
        plan = sweep.plan(bool(args.fresh))
        data = [{"job": job.name, "finished": done, "after": job.after, "command": job.words} for job, done in plan]
        answer(args, data, lambda: _show_plan(plan))
        return
    with progress(of="jobs", command="sweep") as report:
        result = sweep.run(args.ray, bool(args.fresh), report, note)
    from model_profiling.fleet.sweep.portfolio import PAGE
    from model_profiling.fleet.sweep.portfolio import report as portfolio

    home = sweep.folder.home
    page, following = (home / PAGE if sweep.pages else None), ["history", "list", "--root", home]
    answer(args, result, lambda: show_result(portfolio(result), page, following))
    failed = [job for job in result.jobs if job.state == "failed"]
    if failed:
        raise RunError(
            f"{len(failed)} of {len(result.jobs)} jobs failed; first {failed[0].name}: {failed[0].failure}",
            f"{failed[0].hint} Run the same command to try again what failed.".strip(),
        )


def _show_plan(plan: "list[tuple[Job, bool]]") -> None:
    done = sum(finished for _, finished in plan)
    lines = [f"  {'finished' if finished else 'to do':<10}{job.name}" for job, finished in plan]
    tell("\n".join([*lines, f"{len(plan)} jobs, {done} finished", ""]))
