"""`sme2-kit sweep FILE`: models x dtypes x rewrites x threads x targets from one small file, and a portfolio page."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.printing import say_json, tell
from model_profiling.cli import shared_flags
from model_profiling.cli.answer import answer
from model_profiling.cli.next_step import ending
from model_profiling.cli.notes import note
from model_profiling.cli.progress import progress

if TYPE_CHECKING:
    from model_profiling.fleet.sweep.jobs import Job
    from model_profiling.fleet.sweep.result import SweepResult

HELP = "export and run many models, dtypes and rewrites on many targets, and compare them on one page"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE.json", help="what to sweep over")
    shared_flags.add_out(parser, "default: what the file says, else out_<its name>")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="only cells with this in their names; repeatable"
    )
    parser.add_argument("--fresh", action="store_true", help="measure all again; earlier results are kept and compared")
    parser.add_argument("--dry-run", action="store_true", help="list the jobs and which are finished; start nothing")
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="run the jobs on a Ray cluster (HOST:PORT, or auto for one on this machine)"
    )
    shared_flags.add_html(parser, "pages: neither that of the sweep nor those of its runs")
    parser.add_argument("--json", action="store_true", help="print sweep.json: every job and cell, with its numbers")


def run(args: argparse.Namespace) -> int:
    from model_profiling.api import sweep_api
    from model_profiling.base.errors import RunError

    sweep = sweep_api.open_sweep(args.file, args.out, args.only, pages=args.html is not False)
    if args.dry_run:
        _show_plan(sweep.plan(args.fresh), args.json)
        return 0
    with progress(of="jobs", command="sweep") as report:
        result = sweep.run(sweep_api.executor(args.ray), args.fresh, report, note)
    answer(args, result, lambda: tell(as_text(result, sweep.folder.home, sweep.pages)))
    failed = [job for job in result.jobs if job.state == "failed"]
    if failed:
        raise RunError(
            f"{len(failed)} of {len(result.jobs)} jobs failed; first {failed[0].name}: {failed[0].failure}",
            f"{failed[0].hint} Run the same command to try again what failed.".strip(),
        )
    return 0


def _show_plan(plan: "list[tuple[Job, bool]]", as_json: bool) -> None:
    if as_json:
        say_json([{"job": job.name, "finished": done, "after": job.after, "command": job.words} for job, done in plan])
        return
    done = sum(finished for _, finished in plan)
    lines = [f"  {'finished' if finished else 'to do':<10}{job.name}" for job, finished in plan]
    tell("\n".join([*lines, f"{len(plan)} jobs, {done} finished", ""]))


def as_text(result: "SweepResult", home: Path, page: bool = True) -> str:
    """Return one line for each cell, and where the page is, if there is one."""
    from model_profiling.fleet.sweep.portfolio import PAGE, changed_sentences
    from model_profiling.fleet.sweep.runtimes_section import runtime_sentences
    from model_profiling.report import numbers
    from model_profiling.report.terminal.style import wrapped
    from model_profiling.report.terminal.text_table import table

    rows = [("cell", "latency", "speedup (95 % interval)", "SME2", "data movement", "against the last sweep")]
    for cell in result.cells:
        for found in cell.results:
            speed = found.speedup
            rows.append(
                (
                    f"{cell.name} {found.phase}".strip(),
                    "-" if found.median_ms is None else numbers.ms(found.median_ms),
                    "-" if speed is None else numbers.bounded_speedup(speed.ratio, speed.low, speed.high),
                    "-" if found.sme2_coverage_percent is None else f"{found.sme2_coverage_percent:.0f} %",
                    "-" if found.data_movement_percent is None else f"{found.data_movement_percent:.1f} %",
                    "-" if found.against is None else found.against.verdict,
                )
            )
        if not cell.results:
            rows.append((cell.name, cell.state, "-", "-", "-", "-"))
    lines = [f"{result.name}: {result.status}", "", *table(rows, words=1, left={5})]
    changed = [f"  {wrapped(sentence)}" for sentence in changed_sentences(result)]
    lines += ["", *changed] if changed else []
    beside = [f"  {wrapped(sentence)}" for sentence in runtime_sentences(result)]
    lines += ["", *beside] if beside else []
    return "\n".join([*lines, "", ""]) + ending(home / PAGE if page else None, ["history", "list", "--root", home])
