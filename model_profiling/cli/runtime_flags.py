"""`sme2-kit compare MODEL --runtimes executorch,onnxruntime,eager`: one model in several runtimes, in turns."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.printing import say_json, tell, warn
from model_profiling.cli import count_flags, platform_flags, shared_flags
from model_profiling.cli import export as export_command
from model_profiling.cli.next_step import ending
from model_profiling.cli.progress import progress

if TYPE_CHECKING:
    from model_profiling.api import Run
    from model_profiling.base.on_progress import OnProgress
    from model_profiling.platforms.base import Platform

# What a file of another runtime ends with; the table of runtimes is not imported for every command line.
_FILES = (".onnx", ".tflite")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("other runtimes")
    add_runtimes(group, "measure the model A in these, in turns; a B that is a file of one is one of them")
    group.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="give a runtime up that says nothing so long (default: 600)"
    )
    export_command.add_model_options(group, files=True)
    export_command.add_options(group, "profile")
    shared_flags.add_out(group, "place of the export (default: out_<model>)")
    group.add_argument("--force", action="store_true", help="export again what is already there")


def add_runtimes(parser: argparse._ActionsContainer, what: str) -> None:
    parser.add_argument(
        "--runtimes",
        action="append",
        metavar="NAME[,NAME...]",
        help=f"{what}: executorch, eager, compile (torch.compile), onnxruntime, litert, or files of your own "
        "(.onnx, .tflite)",
    )


def names(args: argparse.Namespace) -> list[str]:
    """Return the runtimes that are named; commas and several flags mean the same."""
    return [name for text in args.runtimes or [] for name in text.split(",") if name]


def beside(args: argparse.Namespace, run: "Run", platform: "Platform", report: "OnProgress") -> str:
    """Measure the program of a run in other runtimes, if some are named; returns a remark, if there is one."""
    from model_profiling.api.run_runtimes import OtherRuntimes, measure_beside

    if not names(args):
        return ""
    threads = args.threads[0] if isinstance(args.threads, list) else args.threads or 1
    others = OtherRuntimes(names(args), count_flags.counts(args), threads, args.inputs, force=args.force)
    return measure_beside(run, others, platform, report)


def asked(args: argparse.Namespace) -> bool:
    """Return whether other runtimes are meant; refuses what is for them alone."""
    from model_profiling.base.errors import InputError

    if args.runtimes or any(_is_file(side) for side in (args.before, args.after)):
        return True
    alone = [*export_command.flags_given(args), *(f"--{n}" for n in ("timeout", "out", "force") if getattr(args, n))]
    if args.inputs or alone:
        raise InputError(f"{alone[0] if alone else '--input'} is for --runtimes", "Leave it out, or name runtimes.")
    return False


def run(args: argparse.Namespace, page: str | None) -> int:
    """Measure and tell; `page` is where to write a page, None for nowhere."""
    from model_profiling import api
    from model_profiling.base.errors import InputError

    gates = ("fail_if_slower", "fail_if_startup_slower", "fail_if_memory_above", "junit", "summary", "categories")
    wrong = [f"--{name.replace('_', '-')}" for name in (*gates, "executorch") if getattr(args, name)]
    if wrong:
        raise InputError(f"{wrong[0]} is not for other runtimes", "Leave it out, or compare two .pte.")
    model, runtimes = args.before, names(args)
    if args.after is not None and not _is_file(args.after):
        raise InputError(f"with --runtimes there is one model, and {args.after} is a second", "Leave it out.")
    if not runtimes and not _is_file(model):
        runtimes = ["executorch"]
    runtimes += [args.after] if args.after is not None else []
    counts = count_flags.counts(args)
    options = export_command.load_options(args)
    with platform_flags.chosen_platform(args) as platform, progress() as report:
        found = api.compare_runtimes(
            model,
            runtimes=runtimes,
            threads=args.threads or 1,
            runs=counts.runs,
            launches=counts.launches,
            budget_s=counts.budget_s,
            startup_launches=counts.startup_launches,
            page_cache=counts.page_cache,
            timeout_s=args.timeout or 600.0,
            inputs=args.inputs,
            out=_home(args, model),
            platform=platform,
            force=args.force,
            on_progress=report,
            input_shapes=[str(spec) for spec in options.inputs],
            settings=dict(options.settings),
            checkpoint=options.checkpoint,
            **export_command.options_given(args),
        )
    if args.json:
        say_json(found)
    else:
        from model_profiling.report.terminal.runtimes_text import as_lines

        tell("\n".join([*as_lines(found), ""]))
    if page is not None:
        # With --json, standard output has that alone.
        (warn if args.json else tell)(ending(found.report(page)))
    return 0


def _is_file(side: object) -> bool:
    return str(side).lower().endswith(_FILES)


def _home(args: argparse.Namespace, model: str) -> Path | None:
    from model_profiling.api.exporting import artifact_name

    if str(model).endswith(".pte") or _is_file(model):
        return None
    home = args.out or Path(f"out_{artifact_name(model, export_command.load_options(args))}")
    return Path(home) / "artifacts"
