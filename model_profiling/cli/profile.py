"""Export a model, run it with acceleration on and off, and write a report: all in one command."""

import argparse
from typing import Any

from model_profiling import api
from model_profiling.api.definition import takes
from model_profiling.api.verbs import profile
from model_profiling.base.dtypes import DEFAULT_DTYPE
from model_profiling.base.errors import InputError, RunError
from model_profiling.base.installation import default_output
from model_profiling.base.printing import flush, say_json, tell
from model_profiling.cli import export as export_command
from model_profiling.cli import tune as tune_command
from model_profiling.cli.answer import after_run, as_stage, command_line, ending, show_result, tell_outdated
from model_profiling.cli.arguments import flags_said
from model_profiling.cli.progress import call

TAKES = takes(profile, "demo tune min_sqnr_db html=NoHtml json quiet verbose")
COMMON = "model dtype input_shapes settings rewrites out platform threads runs budget_s label tune force json"
EXAMPLE = "sme2-kit profile path/to/net.py:Net --input 1,3,224,224 --dtype fp16"
_OF_DEMO = ("demo", "dtype", "out", "label")
# Exit codes above it are those of commands that a signal ended.
_SIGNALS = 128


def run(args: argparse.Namespace) -> int:
    if args.demo:
        return _demo(args)
    target, parts = export_command.model_text(args), list[Any]()
    if args.tune and target.endswith(".pte"):
        raise InputError(
            f"{target} is exported already: --tune cannot change it", "Leave it out, or give the model itself."
        )
    found = call(args, profile, parts)
    exported = next((part for part in parts if isinstance(part, api.ExportResult)), None)
    tuned = None
    if args.tune and exported is not None:
        tuned = tune_command.tuned(args, (args.out or exported.paths.directory.parent) / "tune")
    outdated = found.save()
    written = found.report(html=args.html is not False)
    *_, page = (path for path in written if path.suffix in (".md", ".html"))
    following = _next(args, target, found, exported) if tuned is None else tune_command.following(tuned)
    if args.json:
        from model_profiling.api.answers import Profiled, ProfilePaths

        paths = ProfilePaths(found.manifest.model.path, str(found.path), [*map(str, written)])
        record, words = exported.record if exported else None, ["sme2-kit", *map(str, following)]
        say_json(Profiled(paths, record, found.full_summary, words, tuned, found.auto, found.runtimes))
    elif args.quiet:
        tell(ending(page, following))
    elif tuned is not None:
        # What was looked for comes last; the page has where the time of the model goes.
        tune_command.show_tuned(tuned, page=page)
    else:
        show_result(found.document if args.verbose else found.first_screen, page, following, args.verbose)
    tell_outdated(outdated)
    found.check()
    return 0


def _next(args: argparse.Namespace, target: str, run: "api.Run", exported: "api.ExportResult | None") -> list[object]:
    """Return the next command: try what may make it faster, else see which kernels SME2 would use."""
    rewrites = any(f.rewrite for e in run.summary.experiments.values() for f in e.advice)
    if exported is not None and rewrites and args.rewrites is None:
        return ["tune", target, "--dtype", exported.record.dtype, *export_command.model_words(args)]
    return after_run(run)


def _demo(args: argparse.Namespace) -> int:
    """Does everything work here? Run each stage with a small model as its own command, so that what fails is named."""
    from model_profiling.cli.main import main
    from model_profiling.platforms.platform_table import local_name

    if wrong := flags_said(args, [each for each in TAKES if each.name not in _OF_DEMO]):
        raise InputError(f"--demo takes no {wrong[0]}", "Leave it out, or leave out --demo.")
    dtype, out = args.dtype or DEFAULT_DTYPE, args.out or default_output("toy_cnn")
    runs, typed = out / "runs" / local_name(), command_line(args) or "sme2-kit profile --demo"
    label = [word for value in args.label or () for word in ("--label", value)]
    stages = {
        "set-up": ["doctor", "--essentials"],
        "export": ["export", "--model", "toy_cnn", "--dtype", dtype, "--out", str(out / "artifacts")],
        # What is exported already is not exported again.
        "pipeline": ["profile", "toy_cnn", "--dtype", dtype, "--out", str(out), "--quiet", "--no-html", *label],
        "validate": ["validate", str(runs)],
        "report": ["report", str(runs), "--html"],
    }
    for stage, words in stages.items():
        with as_stage(typed):
            code = main(words)
        if code > _SIGNALS:
            return code  # not a fault of the stage, and said already
        if code != 0:
            again = f"Correct what `sme2-kit {' '.join(words)}` says, then run it again."
            raise RunError(f"the demo stopped at {stage}", again)
        tell(f"{stage} ok\n")
        flush()
    show_result(api.Run.open(runs).first_screen, runs / "report.html", ["tune", "toy_cnn", "--dtype", dtype])
    return 0
