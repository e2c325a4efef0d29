"""`sme2-kit export`: PyTorch model in, .pte and everything the other stages need out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_profiling.base.installation import relative_to_here
from model_profiling.base.printing import tell, warn
from model_profiling.base.units import counted
from model_profiling.cli import input_flags, shared_flags
from model_profiling.cli.answer import answer
from model_profiling.cli.next_step import ending
from model_profiling.cli.progress import progress
from model_profiling.export.options import OPTIONS, Option, Verb, options_of, settled

if TYPE_CHECKING:
    from model_profiling.export.request import ExportRequest, ExportResult
    from model_profiling.models.options import LoadOptions
    from model_profiling.store.artifacts import Delegation, RewriteChoice

HELP = "turn a PyTorch model into a .pte that can be profiled"


_MODEL = "a name that `sme2-kit models` lists, or path/to/file.py:ClassName"


def add_model(parser: argparse.ArgumentParser, what: str = _MODEL, files: bool = False) -> None:
    """Add the arguments that say which model is meant; with `files`, of a command that also runs it."""
    parser.add_argument("target", nargs="?", metavar="MODEL", help=what)
    parser.add_argument("--model", metavar="MODEL", help=argparse.SUPPRESS)  # the learning path's
    add_model_options(parser, files)


def add_model_options(parser: argparse._ActionsContainer, files: bool = False) -> None:
    """Add what is said of a model beside its name."""
    input_flags.add_inputs(parser, files=files)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of a registered model, or an argument of the class or function of a file: depth=12, "
        "bias=False, widths=[16,32], act=relu; may be repeated",
    )
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="weights: .safetensors, or a state dict saved by torch"
    )


def model_text(args: argparse.Namespace) -> str:
    """Return the model as the user named it."""
    from model_profiling.base.errors import InputError

    if (args.target is None) == (args.model is None):
        raise InputError(
            "name one model",
            f"For example: sme2-kit {getattr(args, 'command', 'export')} toy_cnn, or path/to/net.py:MyNet.",
        )
    return str(args.target or args.model)


def chosen_model(args: argparse.Namespace) -> tuple[str, str]:
    """Return what the user asked for, checked before torch is imported: the text itself and the name for artifacts."""
    from model_profiling.api.exporting import artifact_name

    text = model_text(args)
    return text, artifact_name(text, load_options(args))


def model_words(args: argparse.Namespace) -> list[str]:
    """Return what was said of the model, for another command that takes the same."""
    words = [word for given in args.inputs_asked for word in ("--input", given)]
    words += [word for pair in args.set for word in ("--set", pair)]
    return words + (["--checkpoint", str(args.checkpoint)] if args.checkpoint else [])


def load_options(args: argparse.Namespace) -> LoadOptions:
    """Return the rest of what the user said about the model."""
    from model_profiling.api import exporting
    from model_profiling.models.options import settings_of

    return exporting.load_options(args.inputs_asked, settings_of(args.set), args.checkpoint)


def add_options(parser: argparse._ActionsContainer, verb: Verb) -> None:
    """Add the options of an export; those that are not given have no value (see `options_given`)."""
    for row in options_of(verb):
        parser.add_argument(row.flag, dest=row.name, default=argparse.SUPPRESS, **_how_to_parse(row, verb))


def _how_to_parse(row: Option, verb: Verb) -> dict[str, Any]:
    usual = row.default
    if row.kind is bool:
        return {
            "action": "store_false" if usual else "store_true",
            "help": f"{'do not ' if usual else ''}{row.help_of(verb)}",
        }
    repeated = "; may be repeated" if row.repeated else ""
    text = row.help_of(verb) + (f" (default: {usual})" if usual not in (None, ()) else repeated)
    parsed = {"type": row.kind, "metavar": row.metavar, "help": text}
    return parsed | {"choices": row.choices or None, "action": "append" if row.repeated else "store"}


def options_given(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that were said on the command line."""
    return {row.name: getattr(args, row.name) for row in OPTIONS if hasattr(args, row.name)}


def flags_given(args: argparse.Namespace) -> list[str]:
    """Return every flag that was used of those that say which model is meant or how it is exported."""
    model = {"--input": args.inputs_asked, "--set": args.set, "--checkpoint": args.checkpoint}
    used = [flag for flag, value in model.items() if value]
    return used + [row.flag for row in OPTIONS if hasattr(args, row.name)]


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_options(parser, "export")
    shared_flags.add_out(parser, "default: out_<model>/artifacts")
    parser.add_argument("--force", action="store_true", help="export even if nothing changed since the last time")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--verbose", action="store_true", help="show what torch and ExecuTorch print and log")


def export_request(args: argparse.Namespace, verb: Verb = "export", outdir: Path | None = None) -> ExportRequest:
    """Return what the words on the command line ask for."""
    from model_profiling.export.request import ExportRequest

    target, name = chosen_model(args)
    return ExportRequest(
        name,
        outdir or args.out or Path(f"out_{name}") / "artifacts",
        loud=args.verbose or getattr(args, "debug", False),
        target=target,
        options=load_options(args),
        **settled(verb, options_given(args)),
    )


def run(args: argparse.Namespace) -> int:
    from model_profiling.api.exporting import from_target
    from model_profiling.store.artifacts import CANNOT_RUN

    request = export_request(args)
    with progress(plain=request.loud) as report:
        result = from_target(report, args.force, say_cached)(request, "export")
    runs = not any(warning.startswith(CANNOT_RUN) for warning in result.record.warnings)
    following = ["run", result.paths.pte] if runs else []
    return answer(args, as_data(result), lambda: tell(as_text(result) + ending(following=following)))


def say_cached() -> None:
    warn("export: reused the existing export, nothing has changed (use --force to export again)\n")


def as_data(result: ExportResult) -> dict[str, object]:
    """Return the result for programs: where its files are, and its record."""
    names = ("pte", "etrecord", "meta", "inputs", "expected")
    return {"paths": {name: str(getattr(result.paths, name)) for name in names}, "record": result.record}


def as_text(result: ExportResult) -> str:
    """Say where the .pte is, what is delegated in it, and what is not, why and where."""
    record = result.record
    seconds = sum(record.stage_seconds.values())
    lines = [
        f"{result.paths.pte}  ({record.dtype}, {record.backend}, {seconds:.1f} s)",
        *delegation_lines(record.delegation),
        *([f"  channels-last: {', '.join(record.channels_last)}"] if record.channels_last else []),
        f"  weights:   {record.weights}",
        *auto_lines(record.auto),
        *([f"  verified:  {record.verification}"] if record.verification else []),
        *(f"  warning:   {warning}" for warning in record.warnings),
    ]
    return "\n".join(lines) + "\n"


def auto_lines(choices: list[RewriteChoice]) -> list[str]:
    """Return what `--rewrite auto` chose and what it left out, each with its reason."""
    if not choices:
        return []
    chosen = ", ".join(choice.name for choice in choices if choice.applied) or "none"
    lines = [f"    {choice.name}{'' if choice.applied else ' left out'}: {choice.reason}" for choice in choices]
    return [f"  rewrites:  {chosen}", *lines]


def delegation_lines(delegation: Delegation) -> list[str]:
    """Return both sides of the cut; of what stays out, the operator, the reason and the model's lines."""
    delegated = counted(delegation.delegated_nodes, "operator")
    lines = [
        f"  delegated: {delegated} in {counted(delegation.delegate_calls, 'delegate call')}",
        f"  portable:  {counted(delegation.portable_nodes, 'operator')}",
    ]
    for left in delegation.not_delegated:
        more = f" and {counted(len(left.sources) - 2, 'more place')}" if len(left.sources) > 2 else ""
        where = f" (at {', '.join(map(relative_source, left.sources[:2]))}{more})" if left.sources else ""
        lines.append(f"    {left.count} x {left.op}: {left.reason}{where}")
    return lines


def relative_source(source: str) -> str:
    """Return `path:line` with the path relative to the working directory if it lies below."""
    path, colon, line = source.rpartition(":")
    return f"{relative_to_here(Path(path))}{colon}{line}"
