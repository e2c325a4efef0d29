"""A failed export in one line: what failed, at which operator and at which line of the model."""

import re
import traceback
from pathlib import Path

from model_profiling import files
from model_profiling.errors import RunError
from model_profiling.export.delegation import short_path, source_line

# Frames in these places are machinery; the innermost frame elsewhere is the model's.
MACHINERY = re.compile(
    r"/site-packages/(torch|torchao|functorch)/|/site-packages/executorch/(?!examples/)|/model_profiling/(export|cli)/"
    r"|/lib/python3[.\d]*/(?!site-packages)|^<"
)


def export_failed(stage: str, error: Exception, log: Path, said: str) -> RunError:
    """Write the traceback and all that torch said to `log`, and return the line for the user."""
    trace = "".join(traceback.format_exception(error))
    files.write_text(log, f"{trace}\n{said}" if said else trace)
    root = _root_cause(error)
    details = [part for part in (_operator(str(root)), _model_line(root) or _model_line(error)) if part]
    where = f" ({', '.join(details)})" if details else ""
    return RunError(
        f"export failed while trying to {stage}{where}: {type(root).__name__}: {_first_line(str(root))}",
        f"The full traceback is in {log}.",
    )


def _root_cause(error: BaseException) -> BaseException:
    """Follow `raise … from …` down: ExecuTorch's pass manager wraps what went wrong in where it went wrong."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _model_line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not MACHINERY.search(frame.filename)]
    if own:
        return f"at {short_path(own[-1].filename)}:{own[-1].lineno}"
    # torch puts the model's line into the text of its own errors when the frame itself is gone.
    written = source_line(str(error))
    return f"at {written}" if written and not MACHINERY.search(written) else ""


def _operator(text: str) -> str:
    found = re.search(r"\b((?:aten|quantized_decomposed|torchvision|prims)[.:]+\w+(?:\.\w+)?)", text)
    return f"operator {found.group(1)}" if found else ""


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else "no message"
