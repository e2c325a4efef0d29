"""A command in this process, where only its end and its words are judged: no interpreter starts for it."""

import contextlib
import io
import os
import subprocess
import traceback
from pathlib import Path
from unittest import mock

from model_profiling.cli.main import main


def kit_here(
    *words: object, cwd: Path | None = None, env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `sme2-kit` as `kit` of tests/conftest.py does, for what imports no torch."""
    argv, before = [str(word) for word in words], Path.cwd()
    out, err = io.StringIO(), io.StringIO()
    with mock.patch.dict(os.environ, env or {}), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        os.chdir(cwd or before)
        try:
            code: object = main(argv)
        except SystemExit as ended:
            code = ended.code
        except Exception:  # noqa: BLE001 - as a process does with --debug
            traceback.print_exc()
            code = 1
        finally:
            os.chdir(before)
    return subprocess.CompletedProcess(argv, code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())
