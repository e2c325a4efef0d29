"""The stages of an export: each is timed, announced, and its failure turned into one error, which says what failed, at
which operator and line of the model, and what usually helps."""

import contextlib
import io
import re
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from model_profiling.base import files
from model_profiling.base.directories import LIMITS
from model_profiling.base.errors import KitError, RunError, SetupError, shortly
from model_profiling.export.lower.delegation import short_path, source_line
from model_profiling.models.remedies import find_remedy
from model_profiling.models.user_file import contained

Announce = Callable[[str], None]


@dataclass
class Stages:
    """Times the stages, tells the listener which one runs, and turns a stage's failure into the one error."""

    # None where nothing is written: a check.
    log: Path | None = None
    said: io.StringIO = field(default_factory=io.StringIO)
    announce: Announce = lambda stage: None
    seconds: dict[str, float] = field(default_factory=dict)
    captured: torch.export.ExportedProgram | None = None

    @contextlib.contextmanager
    def stage(self, name: str, writes: bool = False) -> Iterator[None]:
        self.announce(name)
        started = time.perf_counter()
        try:
            with contained():
                yield
        except KitError:
            raise
        except (Exception, SystemExit) as error:
            if writes and isinstance(error, OSError):
                raise  # the directory's fault, not the model's
            if isinstance(error, OSError) and error.errno in LIMITS:  # nor when ExecuTorch may start no program
                raise SetupError(f"the export cannot {name}: {error.strerror}", LIMITS[error.errno]) from error
            raise stage_failed(name, error, self.log, self.said.getvalue(), self.captured) from error
        self.seconds[name] = round(time.perf_counter() - started, 3)


# Frames in these places are machinery; the innermost frame elsewhere is the model's.
MACHINERY = re.compile(
    r"/site-packages/(torch|torchao|functorch|torchvision/(ops|extension|_meta)\w*)[/.]|/model_profiling/(export|cli|upstream)/"
    r"|/site-packages/executorch/(?!examples/)|/lib/python3[.\d]*/(?!site-packages)|^<"
)


def stage_failed(stage: str, error: BaseException, log: Path | None, said: str, captured: Any = None) -> RunError:
    """Write the traceback and all that torch said to `log`, and return the lines for the user.

    Without a log this was a check, which writes nothing. `captured` is the graph of torch.export, if it got that far:
    it knows the line of an operator that fails later.
    """
    trace = "".join(traceback.format_exception(error))
    if log is not None:
        files.write_text(log, f"{trace}\n{said}" if said else trace)
    root = root_cause(error)
    found = re.search(r"\b((?:aten|quantized_decomposed|torchvision|prims)[.:]+\w+(?:\.\w+)?|\w+::\w+)", str(root))
    operator = found.group(1) if found else ""
    remedy = find_remedy(type(root).__name__, str(root))
    line = _model_line(root) or _model_line(error) or _line_in_graph(captured, operator)
    details = [part for part in (f"operator {operator}" if operator else "", line) if part]
    where = f" ({', '.join(details)})" if details else ""
    what = shortly(root)
    failed = "check failed while trying to" if log is None else "export failed while trying to"
    more = "--debug shows the full traceback." if log is None else f"The full traceback is in {log}."
    return RunError(
        f"{failed} {stage}{where}: {f'{remedy.kind} ({what})' if remedy else what}",
        f"{remedy.advice if remedy else ''} {more}".strip(),
    )


def _line_in_graph(captured: Any, operator: str) -> str:
    """Return the line of the first node that calls `operator` or, without one, that makes a shape out of data."""
    # Lowering may have turned `linalg_svd` into `_linalg_svd`.
    base = re.split(r"[.:]+", operator)[1].strip("_") if operator else ""

    def calls(node: torch.fx.Node) -> bool:
        wanted = base in str(node.target) if base else bool(node.meta.get("unbacked_bindings"))
        return node.op == "call_function" and wanted

    found = next(filter(calls, captured.graph.nodes), None) if captured is not None else None
    if found is None and captured is not None and base:
        # A part of what the model calls: `_trilinear` of nn.Bilinear.
        with contextlib.suppress(Exception):
            found = next(filter(calls, captured.run_decompositions().graph.nodes), None)
    line = source_line(found.meta.get("stack_trace") or "") if found is not None else ""
    return f"at {line}" if line else ""


def root_cause(error: BaseException) -> BaseException:
    """Follow `raise … from …` down: ExecuTorch's pass manager wraps what went wrong in where it went wrong."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _model_line(error: BaseException) -> str:
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not MACHINERY.search(frame.filename)]
    if own:
        return f"at {short_path(own[-1].filename)}:{own[-1].lineno}"
    # torch puts the model's line into the text of its own errors when the frame itself is gone.
    written = source_line(str(error))
    return f"at {written}" if written and not MACHINERY.search(written) else ""
