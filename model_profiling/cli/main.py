"""The command line: finds the subcommand, runs it, and turns every failure into two lines and an exit code."""

import argparse
import atexit
import contextlib
import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, NoReturn, Protocol, cast

from model_profiling import __version__
from model_profiling.installation import install_command
from model_profiling.saying import warn

# Each name is a module of this package with HELP, prepare_parser and run.
COMMANDS = (
    "check",
    "export",
    "run",
    "runs",
    "kernels",
    "analyze",
    "compare",
    "forecast",
    "tune",
    "report",
    "validate",
    "quicktest",
    "models",
    "new-model",
    "doctor",
    "build",
    "skills",
    "validate-skill",
    "mcp",
    "completions",
)


_OBJECTS_BETWEEN_COLLECTIONS = 100_000
# What Python ends with where its output could not be written.
_UNREAD = 120


class Command(Protocol):
    HELP: str

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace) -> int: ...


class _Help(argparse.HelpFormatter):
    """Help as wide as the terminal; argparse loads every archiver there is to find that out, for every command."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size().columns
        except (ValueError, OSError):  # a pipe, or no output at all
            columns = 80
        super().__init__(prog, width=max(columns - 2, 20))


class Parser(argparse.ArgumentParser):
    """A parser that fails as the rest of the kit does."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{"formatter_class": _Help, **settings})

    def error(self, message: str) -> NoReturn:
        sys.exit(_fail(message, f"See `{self.prog} --help`.", 2))


def enter() -> NoReturn:
    """The process `sme2-kit`: run the command and end, without taking apart what the system takes back anyway.

    Ending as Python does takes a tenth of a short command once numpy is loaded.
    """
    code = main()
    threads = sys.modules.get("threading")
    if threads is not None and threads.active_count() > 1:
        sys.exit(code)  # one of them may be in the middle of something
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or _UNREAD
    os._exit(code)


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    # Loading modules and reading large dumps makes many objects and hardly any garbage: looking for it every 700
    # objects takes a twentieth of a short command and more of a long one.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    argv = sys.argv[1:] if argv is None else argv
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        import difflib

        close = difflib.get_close_matches(argv[0], COMMANDS, n=1, cutoff=0.5)
        hint = f"Did you mean `sme2-kit {close[0]}`?" if close else "`sme2-kit --help` lists them."
        return _fail(f"there is no command {argv[0]!r}", hint, 2)
    try:
        # Only the command that was asked for is prepared: the others take time and are not needed.
        parser = make_parser(argv[:1] if argv and argv[0] in COMMANDS else COMMANDS)
        if not argv:
            parser.print_help()
            return 2
        args, unknown = parser.parse_known_args(argv)
        if unknown:
            return _fail(f"unknown arguments: {' '.join(unknown)}", f"See `sme2-kit {args.command} --help`.", 2)
        args.words = argv
        command = cast(Command, importlib.import_module(_module(args.command)))
    except ModuleNotFoundError as error:
        return _missing(error)
    return run_guarded(command.run, args)


def _module(command: str) -> str:
    return f"model_profiling.cli.{command.replace('-', '_')}"


def run_guarded(run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Run a command; whatever goes wrong becomes two lines and an exit code."""
    from model_profiling.errors import KitError

    debug = args.debug or bool(os.environ.get("SME2_KIT_DEBUG"))
    with contextlib.suppress(ValueError):  # not in the main thread, where nobody sends us signals
        signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run(args)
    except KitError as error:
        if debug:
            raise
        return _fail(error.message, error.hint, error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", "Finished work is kept; run the same command to continue.", 130)
    except BrokenPipeError:
        # Whoever read our output has left; what they did not read is nobody's loss.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        return _fail("out of memory", "Close other programs, or use a smaller model.", 3)
    except ModuleNotFoundError as error:
        if debug:
            raise
        return _missing(error)
    except OSError as error:
        if debug:
            raise
        return _fail(
            f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), "Check space and permissions there.", 3
        )
    except Exception as error:  # the last door: a user never sees a traceback unasked
        if debug:
            raise
        what = f"unexpected {type(error).__name__}: {error}"
        return _fail(
            what, "This is a bug in the kit. Please report it with the output of the same command and --debug.", 1
        )


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """End as Ctrl-C does: processes are ended, settings put back, and what is finished is kept."""
    raise KeyboardInterrupt


def _missing(error: ModuleNotFoundError) -> int:
    return _fail(f"the Python package {error.name} is missing", f"Run `{install_command('export')}`.", 3)


def _fail(message: str, hint: str, code: int) -> int:
    warn(f"error: {message}\n" + (f"  fix: {hint}\n" if hint else ""))
    return code


def make_parser(names: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """The command line with these subcommands in it."""
    parser = Parser(
        prog="sme2-kit",
        description="Where does a model spend its time, what does SME2 change, and what is worth fixing next?",
    )
    parser.add_argument("--version", action="version", version=f"sme2-kit {__version__}")
    # Named, or argparse lays out a usage line to find the name in it.
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", prog=parser.prog)
    for name in names:
        module = cast(Command, importlib.import_module(_module(name)))
        subparser = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.prepare_parser(subparser)
        subparser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser
