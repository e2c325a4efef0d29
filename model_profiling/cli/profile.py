"""`sme2-kit profile MODEL`: from a model to its report in one command: export, run on and off, analyse, report."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_profiling.base.printing import say_json, tell
from model_profiling.cli import count_flags, label_flags, platform_flags, runtime_flags, shared_flags, version_flags
from model_profiling.cli import export as export_command
from model_profiling.cli import tune as tune_command
from model_profiling.cli.command_line import command_line
from model_profiling.cli.next_step import after_run, ending
from model_profiling.cli.notes import note, tell_outdated
from model_profiling.cli.progress import progress

if TYPE_CHECKING:
    from model_profiling.api import Run
    from model_profiling.api.measuring import RunRequest
    from model_profiling.base.on_progress import OnProgress
    from model_profiling.export.request import ExportRequest, ExportResult
    from model_profiling.tune.tune_result import TuneResult

HELP = "export a model, run it with acceleration on and off, and write a report: all in one command"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    what = "a name that `sme2-kit models` lists, path/to/file.py:ClassName, or a .pte"
    export_command.add_model(parser, what, files=True)
    export_command.add_options(parser, "profile")
    shared_flags.add_out(parser, "place of all results (default: out_<model>)")
    platform_flags.prepare_parser(parser)
    count_flags.prepare_parser(parser, "per experiment", several=True)
    count_flags.prepare_startup(parser)
    version_flags.prepare_parser(parser, "several, as in 1.5.0,1.5.1, take turns and are compared")
    runtime_flags.add_runtimes(parser, "also measure the model in these, in turns with ExecuTorch on this machine")
    label_flags.prepare_parser(parser)
    text = (
        "instead of MODEL: toy_cnn, with a check of the set-up and of the results; takes only --dtype, --out, --label"
    )
    parser.add_argument("--demo", action="store_true", help=text)
    parser.add_argument("--force", action="store_true", help="export and measure again what is already there")
    parser.add_argument(
        "--tune", action="store_true", help="then look for a faster program, as `tune` does, and keep it"
    )
    tune_command.add_min_sqnr(parser)
    shared_flags.add_html(parser, "the HTML page (report.html)")
    parser.add_argument(
        "--json", action="store_true", help="print paths, export record, analysis and next command as JSON"
    )
    parser.add_argument("--quiet", action="store_true", help="print only where the results are")
    parser.add_argument("--verbose", action="store_true", help="show what torch and ExecuTorch print and log")


def run(args: argparse.Namespace) -> int:
    from model_profiling.api.auto_beside import measure_auto, shared_counts
    from model_profiling.api.exporting import from_target
    from model_profiling.api.measuring import measure

    if args.demo:
        return _demo(args)
    target = _checked(args)
    runtimes = runtime_flags.names(args)
    with platform_flags.chosen_platform(args) as platform, progress() as report:
        for choice in version_flags.choices(args):
            platform.runner(None, choice)  # one that cannot be used is refused before the export
        if runtimes:
            from model_profiling.api.run_runtimes import refuse_runtimes

            refuse_runtimes(runtimes, platform, version_flags.choices(args))
        exported = None if target.endswith(".pte") else _export(args, report)
        pte = Path(target) if exported is None else exported.paths.pte
        if runtimes:
            from model_profiling.api.runtime_comparing import program_source

            program_source(pte)  # one that other runtimes cannot take is refused before it is measured
        asked = _asked(args, pte, platform.folder)
        beside = exported is not None and not hasattr(args, "rewrites") and len(asked.executorch) < 2
        own, pair = shared_counts(asked.counts)
        measured = measure(replace(asked, counts=own) if beside else asked, platform, report, note)
        if beside and exported is not None:
            threads = args.threads[0] if isinstance(args.threads, list) else args.threads or 1
            again = _request(args), from_target(report, args.force)
            measure_auto(measured.run, exported, again, (pair, threads, platform, report), args.force)
        if said := runtime_flags.beside(args, measured.run, platform, report):
            note(said)
        tuned = None
        if args.tune and exported is not None:
            home = (args.out or exported.paths.directory.parent) / "tune"
            tuned = tune_command.tuned(args, home, platform, report)
    found = measured.run
    for remark in filter(None, (measured.remark, measured.reused)):
        note(remark)
    found.check_outputs()
    outdated = found.save()
    written = found.report(html=args.html is not False)
    _show(args, target, exported, found, written, tuned)
    tell_outdated(outdated)
    found.check()
    return 0


def _demo(args: argparse.Namespace) -> int:
    from model_profiling.base.errors import InputError
    from model_profiling.cli.demo import run_demo
    from model_profiling.cli.main import make_parser

    usual = vars(make_parser(["profile"]).parse_args(["profile"]))
    taken = ("demo", "dtype", "out", "label", "words", "debug")
    wrong = [name for name, value in vars(args).items() if name not in taken and value != usual.get(name)]
    if wrong:
        said = "MODEL" if wrong[0] == "target" else f"--{wrong[0].replace('_', '-')}"
        raise InputError(f"--demo takes no {said}", "Leave it out, or leave out --demo.")
    return run_demo(args)


def _checked(args: argparse.Namespace) -> str:
    """Return the model; refuses what cannot work before anything is exported or measured."""
    from model_profiling.base import files
    from model_profiling.base.errors import InputError
    from model_profiling.store.labels import split_labels
    from model_profiling.store.runs import checked_label

    target = export_command.model_text(args)
    count_flags.counts(args)
    label, _ = split_labels(args.label)
    if label is not None:
        checked_label(label)
    for path in args.inputs:
        if not files.is_file(path):
            raise InputError(f"input file {path} does not exist", "Correct --input, or leave it out.")
    if target.endswith(".pte"):
        given = [*export_command.flags_given(args), *(["--tune"] if args.tune else [])]
        if given:
            raise InputError(
                f"{target} is exported already: {', '.join(given)} cannot change it",
                "Leave them out, or give the model itself.",
            )
        if not files.is_file(Path(target)):
            raise InputError(f"there is no {target}", "Check the path; `sme2-kit export` prints it.")
    else:
        export_command.chosen_model(args)
    return target


def _export(args: argparse.Namespace, report: "OnProgress") -> "ExportResult":
    from model_profiling.api.exporting import from_target

    return from_target(report, args.force, export_command.say_cached)(_request(args), "export")


def _request(args: argparse.Namespace) -> "ExportRequest":
    return export_command.export_request(args, "profile", args.out / "artifacts" if args.out else None)


def _asked(args: argparse.Namespace, pte: Path, platform: str) -> "RunRequest":
    from model_profiling.api.measuring import RunRequest
    from model_profiling.pipeline.defaults import root_below

    return RunRequest(
        model=pte,
        inputs=args.inputs,
        out=root_below(args.out, platform, pte) if args.out else None,
        counts=count_flags.counts(args),
        threads=args.threads,
        executorch=version_flags.choices(args),
        **label_flags.chosen(args),
        force=args.force,
        command=command_line(args),
    )


def _show(
    args: argparse.Namespace,
    target: str,
    exported: "ExportResult | None",
    run: "Run",
    written: list[Path],
    tuned: "TuneResult | None",
) -> None:
    from model_profiling.report.terminal import run_text

    following = _next(args, target, run, exported) if tuned is None else tune_command.following(tuned)
    if args.json:
        data: dict[str, Any] = {
            "paths": {"pte": run.manifest.model.path, "run": str(run.path), "report": [str(path) for path in written]},
            "export": exported.record if exported else None,
            "summary": run.full_summary,
            "next": ["sme2-kit", *map(str, following)],
            **({"tune": tuned} if tuned is not None else {}),
            **({"auto": run.auto} if run.auto is not None else {}),
            **({"runtimes": run.runtimes} if run.runtimes is not None else {}),
        }
        say_json(data)
        return
    if not args.quiet:
        if exported is not None:
            tell("\n" + export_command.as_text(exported))
        run_text.show_run(run)
    if tuned is not None:
        tell("\n" + tune_command.as_text(tuned))
        tune_command.show_changes(tuned)
    *_, page = (path for path in written if path.suffix in (".md", ".html"))
    tell(ending(page, following))


def _next(args: argparse.Namespace, target: str, run: "Run", exported: "ExportResult | None") -> list[object]:
    """Return the next command: try what may make it faster, else see which kernels SME2 would use."""
    rewrites = any(f.rewrite for e in run.summary.experiments.values() for f in e.advice)
    if exported is not None and rewrites and "rewrites" not in args:
        return ["tune", target, "--dtype", exported.record.dtype, *export_command.model_words(args)]
    return after_run(run)
