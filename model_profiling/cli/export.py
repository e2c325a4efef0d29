"""Turn a PyTorch model into a .pte that can be profiled."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.api.definition import find, takes
from model_profiling.api.verbs import export
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.errors import InputError
from model_profiling.base.installation import relative_to_here
from model_profiling.base.printing import tell
from model_profiling.base.units import counted
from model_profiling.cli.answer import answer, ending
from model_profiling.cli.arguments import flags_said, keywords
from model_profiling.cli.progress import call
from model_profiling.export.options import OPTIONS, Verb
from model_profiling.store.artifacts import CANNOT_RUN, Delegation, RewriteChoice

if TYPE_CHECKING:
    from model_profiling.export.request import ExportRequest, ExportResult

TAKES = takes(export, "json verbose")
COMMON = "model dtype input_shapes settings checkpoint rewrites calibration keep_fp32 out force json"
EXAMPLE = "sme2-kit export toy_cnn --dtype int8"
# What says which model is meant beside its name, and how it is exported.
_OF_EXPORT = {"input_shapes", "settings", "checkpoint", *(row.name for row in OPTIONS)}


def model_text(args: argparse.Namespace) -> str:
    """Return the model as the user named it."""
    if args.model is None:
        raise InputError(
            "name one model",
            f"For example: sme2-kit {getattr(args, 'command', 'export')} toy_cnn, or path/to/net.py:MyNet.",
        )
    return str(args.model)


def model_words(args: argparse.Namespace) -> list[str]:
    """Return what was said of the model, for another command that takes the same."""
    words = [word for given in args.input_shapes or () for word in ("--input", given)]
    words += [word for pair in args.settings or () for word in ("--set", pair)]
    return words + (["--checkpoint", str(args.checkpoint)] if args.checkpoint else [])


def flags_given(args: argparse.Namespace) -> list[str]:
    """Return every flag that was used of those that say which model is meant or how it is exported."""
    return flags_said(args, [each for each in TAKES if each.name in _OF_EXPORT])


def export_request(args: argparse.Namespace, verb: Verb = "export") -> ExportRequest:
    """Return what the words on the command line ask for; refuses a model that is not there, without torch."""
    from model_profiling.api import exporting

    given, out = keywords(args, [*find(f"@{verb}")]), getattr(args, "out", None)
    return exporting.export_request(verb, model_text(args), (None, "", None), out, given)


def run(args: argparse.Namespace) -> int:
    model_text(args)
    result = call(args, export)
    runs = not any(warning.startswith(CANNOT_RUN) for warning in result.record.warnings)
    following = ["numerics" if result.record.wrong else "run", result.paths.pte] if runs else []
    from model_profiling.api.answers import Exported

    names = ("pte", "etrecord", "meta", "inputs", "expected")
    paths = {name: str(getattr(result.paths, name)) for name in names}
    return answer(
        args, Exported(paths, result.record, result.metric), lambda: tell(as_text(result) + ending(following=following))
    )


def as_text(result: ExportResult) -> str:
    """Say where the .pte is, what is delegated in it, and what is not, why and where."""
    record = result.record
    on_noise = dtype_of(record.dtype).calibrated and record.calibration is None
    seconds, metric = sum(record.stage_seconds.values()), []
    if result.metric is not None:
        from model_profiling.report.words import metric_sentence

        metric.append(f"  metric:    {metric_sentence(result.metric, 'in eager PyTorch')}")
    lines = [
        *(["WRONG: its outputs are not those of the model; `numerics` finds the layer"] if record.wrong else []),
        *([f"WRONG as asked for: {record.remedy}"] if record.remedy else []),
        f"{result.paths.pte}  ({record.dtype}, {record.backend}, {seconds:.1f} s)",
        *delegation_lines(record.delegation),
        *([f"  channels-last: {', '.join(record.channels_last)}"] if record.channels_last else []),
        f"  weights:   {record.weights}",
        *auto_lines(record.auto),
        *(["  calibrated: on random data, for timing only (--calibration DIR)"] if on_noise else []),
        *([f"  verified:  {record.verification}"] if record.verification else []),
        *metric,
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
    return lines + [f"    {e.count} x {e.op}: {e.reason}{at_places(e.sources)}" for e in delegation.not_delegated]


def at_places(sources: Sequence[str], most: int = 2, noun: str = "place") -> str:
    """Return ` (at path:line, …)`, paths relative to the working directory if they lie below, of `most` of them."""
    parts = [source.rpartition(":") for source in sources[:most]]
    named = ", ".join(f"{relative_to_here(Path(path))}{colon}{line}" for path, colon, line in parts)
    more = f" and {counted(len(sources) - most, f'more {noun}')}" if len(sources) > most else ""
    return f" (at {named}{more})" if sources else ""
