"""`sme2-kit export`: PyTorch model in, .pte and everything the other stages need out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.installation import shown
from model_profiling.base.printing import say_json, tell, warn
from model_profiling.base.units import counted
from model_profiling.cli.next_step import next_command
from model_profiling.cli.progress import progress
from model_profiling.export.choices import (
    BACKENDS,
    DELEGATIONS,
    DTYPES,
    IO_LAYOUTS,
    MEMORY_FORMATS,
    REWRITES,
    rewrite_name,
)

if TYPE_CHECKING:
    from model_profiling.export.request import ExportRequest, ExportResult
    from model_profiling.models.options import LoadOptions
    from model_profiling.store.artifacts import Delegation

HELP = "turn a PyTorch model into a .pte that can be profiled"


_MODEL = "a name that `sme2-kit models` lists, or path/to/file.py:ClassName"


def add_model(parser: argparse.ArgumentParser, what: str = _MODEL) -> None:
    """The arguments that say which model is meant."""
    parser.add_argument("target", nargs="?", metavar="MODEL", help=what)
    parser.add_argument("--model", metavar="MODEL", help="the same as MODEL")
    # Both into one list: the order of the inputs is that of the flags.
    parser.add_argument(
        "--input-shape",
        dest="inputs_asked",
        action="append",
        default=[],
        metavar="N,C,H,W",
        help="random input of this shape, for a model from a file that brings no example inputs; once for each input",
    )
    parser.add_argument(
        "--input",
        dest="inputs_asked",
        action="append",
        metavar="DTYPE:SHAPE[:LOW..HIGH]",
        help="the same with a dtype and the range of its values (without HIGH itself): int64:1,128:0..30522 are token "
        "ids for an embedding of 30522 rows; integers without a range are 0 and 1; bool:1,128",
    )
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
    """The model as the user named it."""
    from model_profiling.base.errors import InputError

    if (args.target is None) == (args.model is None):
        raise InputError(
            "name one model",
            f"For example: sme2-kit {getattr(args, 'command', 'export')} toy_cnn, or path/to/net.py:MyNet.",
        )
    return str(args.target or args.model)


def chosen_model(args: argparse.Namespace) -> tuple[str, str]:
    """What the user asked for, checked before torch is imported: the text itself and the name for artifacts."""
    from model_profiling.api.exporting import named

    text = model_text(args)
    return text, named(text, load_options(args))


def model_words(args: argparse.Namespace) -> list[str]:
    """What was said of the model, for another command that takes the same."""
    words = [word for given in args.inputs_asked for word in ("--input", given)]
    words += [word for pair in args.set for word in ("--set", pair)]
    return words + (["--checkpoint", str(args.checkpoint)] if args.checkpoint else [])


def load_options(args: argparse.Namespace) -> LoadOptions:
    """The rest of what the user said about the model."""
    from model_profiling.api import exporting
    from model_profiling.models.options import settings_of

    return exporting.load_options(args.inputs_asked, settings_of(args.set), args.checkpoint)


def add_variant(parser: argparse.ArgumentParser, dtype: str | None, dtype_help: str) -> None:
    """The arguments that say how a model is exported."""
    parser.add_argument("--dtype", choices=DTYPES, default=dtype, help=dtype_help)
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="xnnpack",
        help="portable leaves every operator to ExecuTorch's reference kernels (default: %(default)s)",
    )
    parser.add_argument(
        "--memory-format",
        choices=MEMORY_FORMATS,
        default="contiguous",
        help="layout of the 4-D inputs; the layers follow it (default: %(default)s)",
    )
    add_rewrites(parser)
    parser.add_argument(
        "--keep-fp32",
        action="append",
        default=[],
        metavar="LAYER",
        help="leave a layer out of fp16 or quantization: a module's path (features.3, blocks.*.norm) or an operator's "
        "name, as `sme2-kit numerics` lists them; may be repeated",
    )
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="DIR",
        help="samples that set the ranges of int8: .npy files, or for several inputs a folder per sample with "
        "input_0.npy and so on (default: the example inputs with noise)",
    )
    parser.add_argument(
        "--delegation",
        choices=DELEGATIONS,
        default="whole",
        help="per-op makes a delegate of each operator, to see what fusing gains (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="for random weights and inputs (default: 0)")


def add_rewrites(parser: argparse.ArgumentParser) -> None:
    """The arguments that change what an export computes with, not what it computes."""
    parser.add_argument(
        "--io-layout",
        choices=IO_LAYOUTS,
        default="contiguous",
        help="channels_last: 4-D inputs and outputs in that layout wherever it saves a transpose; the export tells "
        "which (default: %(default)s)",
    )
    parser.add_argument(
        "--rewrite",
        action="append",
        default=[],
        type=rewrite_name,
        choices=REWRITES,
        help="change the graph, not its results; keepdim: mean and sum over pixels in a form XNNPACK delegates; "
        "layout: permutes, views and transposes that move values for nothing go; gelu-tanh: fp16 GELU by its "
        "tanh form; silu, hardsigmoid: these in fp16 without conversions to fp32; attention, copies (expand, select, "
        "split, repeat), cumsum, mean, norm, upsample: these from operators that XNNPACK delegates",
    )


def variant_flags(args: argparse.Namespace) -> list[tuple[str, bool]]:
    """Every flag that says which model is meant or how it is exported, and whether it was used."""
    return [
        ("--input", bool(args.inputs_asked)),
        ("--set", bool(args.set)),
        ("--checkpoint", args.checkpoint is not None),
        ("--dtype", args.dtype is not None),
        ("--backend", args.backend != "xnnpack"),
        ("--memory-format", args.memory_format != "contiguous"),
        ("--io-layout", args.io_layout != "contiguous"),
        ("--rewrite", bool(args.rewrite)),
        ("--delegation", args.delegation != "whole"),
        ("--keep-fp32", bool(args.keep_fp32)),
        ("--calibration", args.calibration is not None),
        ("--seed", args.seed != 0),
    ]


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_variant(
        parser,
        "fp32",
        "int8-dynamic, int4 (a scale for each group of weights) and int4-channel (one for each output channel) "
        "quantize linear layers only, as language models do (default: %(default)s)",
    )
    parser.add_argument("--outdir", type=Path, metavar="DIR", help="default: out_<model>/artifacts")
    parser.add_argument("--save-graph", action="store_true", help="also write graph.json, the lowered graph")
    parser.add_argument("--force", action="store_true", help="export even if nothing changed since the last time")
    parser.add_argument(
        "--no-verify",
        action="store_true",
        help="do not execute the program once with the kit's runner before it is written",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--verbose", action="store_true", help="show what torch and ExecuTorch print and log")


def requested(args: argparse.Namespace, outdir: Path | None = None) -> ExportRequest:
    """What the words on the command line ask for."""
    from model_profiling.export.request import ExportRequest

    target, name = chosen_model(args)
    outdir = outdir or args.outdir or Path(f"out_{name}") / "artifacts"
    loud = args.verbose or getattr(args, "debug", False)
    return ExportRequest(
        name,
        outdir,
        args.dtype,
        args.backend,
        args.memory_format,
        args.seed,
        save_graph=getattr(args, "save_graph", False),
        loud=loud,
        target=target,
        options=load_options(args),
        rewrites=tuple(args.rewrite),
        delegation=args.delegation,
        io_layout=args.io_layout,
        keep_fp32=tuple(args.keep_fp32),
        calibration=args.calibration,
        verify=not getattr(args, "no_verify", False),
        candidates=True,
    )


def run(args: argparse.Namespace) -> int:
    from model_profiling.api.exporting import from_target

    request = requested(args)
    with progress(plain=request.loud) as report:
        result = from_target(report, args.force, say_cached)(request, "export")
    if args.json:
        say_json(as_data(result))
    else:
        tell(as_text(result))
        tell(next_command("run", result.paths.pte, "--html"))
    return 0


def say_cached() -> None:
    warn("export: reused the existing export, nothing has changed (use --force to export again)\n")


def as_data(result: ExportResult) -> dict[str, object]:
    """The result for programs: where its files are, and its record."""
    paths = result.paths
    named = {"pte": paths.pte, "etrecord": paths.etrecord, "meta": paths.meta, "inputs": paths.inputs}
    named["expected"] = paths.expected
    return {"paths": {name: str(path) for name, path in named.items()}, "record": result.record}


def as_text(result: ExportResult) -> str:
    """Say where the .pte is, what is delegated in it, and what is not, why and where."""
    record = result.record
    seconds = sum(record.stage_seconds.values())
    lines = [
        f"{result.paths.pte}  ({record.dtype}, {record.backend}, {seconds:.1f} s)",
        *delegation_lines(record.delegation),
        *([f"  channels-last: {', '.join(record.channels_last)}"] if record.channels_last else []),
        f"  weights:   {record.weights}",
        *([f"  verified:  {record.verification}"] if record.verification else []),
        *(f"  warning:   {warning}" for warning in record.warnings),
    ]
    return "\n".join(lines) + "\n"


def delegation_lines(delegation: Delegation) -> list[str]:
    """Both sides of the cut; of what stays out, the operator, the reason and the model's lines."""
    delegated = counted(delegation.delegated_nodes, "operator")
    lines = [
        f"  delegated: {delegated} in {counted(delegation.delegate_calls, 'delegate call')}",
        f"  portable:  {counted(delegation.portable_nodes, 'operator')}",
    ]
    for left in delegation.not_delegated:
        more = f" and {counted(len(left.sources) - 2, 'more place')}" if len(left.sources) > 2 else ""
        where = f" (at {', '.join(map(seen_from_here, left.sources[:2]))}{more})" if left.sources else ""
        lines.append(f"    {left.count} x {left.op}: {left.reason}{where}")
    return lines


def seen_from_here(source: str) -> str:
    """`path:line` with the path relative to the working directory if it lies below."""
    path, colon, line = source.rpartition(":")
    return f"{shown(Path(path))}{colon}{line}"
