"""The command line: finds the subcommand, runs it, and turns every failure into two lines and an exit code."""

import argparse
import contextlib
import errno
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from model_profiling import __version__
from model_profiling.api.calling import call_with
from model_profiling.api.parameter import Parameter
from model_profiling.base.directories import remedy
from model_profiling.base.errors import InterruptionError, KitError, OutputError, UnreadError
from model_profiling.base.installation import install_command
from model_profiling.base.on_progress import listen_to_notes
from model_profiling.base.printing import documents, say_json, warn
from model_profiling.base.visible import not_utf8
from model_profiling.cli.answer import command_line, note
from model_profiling.cli.arguments import Parser, UsageError, WideHelp, add_help, prepare
from model_profiling.cli.interrupts import interruption_code, was_interrupted

# Each name is a module of this package, whose docstring begins with its help.
GROUPS = {
    "start here": ("profile", "check", "tune", "models", "doctor"),
    "SME2": ("kernels", "forecast", "targets", "validate-forecast"),
    "results": ("report", "graph", "compare", "history"),
    "deeper": ("numerics", "roofs", "sweep"),
    "parts": (
        *("export", "run", "analyze", "validate", "build", "new-model", "schema", "mcp", "skills"),
        *("completions", "clean"),
    ),
}
# What is a part of another command by now: these work, and are not listed.
_EARLIER = {"runs": ("history", "runs"), "quicktest": ("profile", "--demo"), "validate-skill": ("skills", "validate")}
_LISTED = tuple(name for names in GROUPS.values() for name in names)
COMMANDS = (*_LISTED, *_EARLIER)

_OBJECTS_BETWEEN_COLLECTIONS = 100_000
_CACHED = "export: reused the existing export, nothing has changed (use --force to export again)\n"


class Command(Protocol):
    """A module of this package: what it takes, and how it shows the answer of its verb."""

    TAKES: list[Parameter]
    EXAMPLE: str

    def run(self, args: argparse.Namespace) -> int | None: ...


class _Help(WideHelp):
    def _format_action(self, action: argparse.Action) -> str:
        """Return the commands in their groups; all else as argparse has it."""
        listed = {choice.dest: choice for choice in self._iter_indented_subactions(action)}
        if action.dest != "command" or not listed:
            return super()._format_action(action)
        parts = []
        for title, names in GROUPS.items():
            parts.append(f"\n{title}:\n")
            parts += [super(_Help, self)._format_action(listed[name]) for name in names if name in listed]
        return self._join_parts(parts)


def _nearest(word: str, known: Iterable[str], cutoff: float) -> str:
    """Return what was meant by a word that is not known; '' if nothing is near to it."""
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), "")


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    # Loading modules and reading large dumps makes many objects and hardly any garbage: looking for it every 700
    # objects takes a twentieth of a short command and more of a long one.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    words = sys.argv[1:] if argv is None else argv
    return guarded(lambda: _run(words), words)


def _run(words: list[str]) -> int | None:
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        meant = _nearest(words[0], COMMANDS, 0.5)
        hint = f"Did you mean `sme2-kit {meant}`?" if meant else "`sme2-kit --help` lists them."
        raise UsageError(f"there is no command {words[0]!r}", hint)
    words = [*_EARLIER.get(words[0], words[:1]), *words[1:]] if words else []
    # Only the command that was asked for is prepared: the others take time and are not needed.
    parser = make_parser(words[:1] if words and words[0] in _LISTED else _LISTED)
    if not words:
        parser.print_help()
        return 2
    args, unknown = parser.parse_known_args(words)
    if unknown:
        (commands,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
        known = [each for each in commands.choices[args.command]._actions if each.help != argparse.SUPPRESS]
        flags = [flag for each in known for flag in each.option_strings]
        meant = _nearest(unknown[0].partition("=")[0], flags, 0.7)
        hint = f"{f'Did you mean {meant}? ' if meant else ''}See `sme2-kit {args.command} --help`."
        raise UsageError(f"unknown arguments: {' '.join(unknown)}", hint)
    args.words = words
    args.debug = getattr(args, "debug", False)
    command = cast(Command, importlib.import_module(_module(args.command)))
    listen_to_notes(note)
    written = {each.name: each.spelled for each in getattr(command, "TAKES", ())}
    with call_with(
        on_note=note,
        on_cached=lambda: warn(_CACHED),
        command=lambda: command_line(args),
        of_commands=True,
        loud=bool(args.debug or getattr(args, "verbose", False)),
        spelled=lambda name: written.get(name, f"--{name.replace('_', '-')}"),
    ):
        return command.run(args)


def _module(command: str) -> str:
    return f"model_profiling.cli.{command.replace('-', '_')}"


def guarded(run: Callable[[], int | None], words: list[str]) -> int:
    """Run a command; whatever goes wrong becomes two lines and an exit code, and JSON for who asked for that."""
    debug = "--debug" in words or bool(os.environ.get("SME2_KIT_DEBUG"))
    before = documents()
    try:
        return run() or 0
    except UnreadError as error:
        return error.exit_code  # what they did not read is nobody's loss
    except (Exception, KeyboardInterrupt) as error:  # the last door: a user never sees a traceback unasked
        if debug and not isinstance(error, (KeyboardInterrupt, MemoryError, UsageError)):
            raise
        # What was printed before the failure is a result, and a second document would make it unreadable.
        return _fail(*_explained(error), _asks_json(words) and documents() == before)


def _explained(error: BaseException) -> tuple[str, str, int]:
    """Return what happened, what to do, and the exit code."""
    # Tasks that run side by side fail as a group.
    while within := getattr(error, "exceptions", ()):
        error = within[0]
    if isinstance(error, InterruptionError):
        return error.message, error.hint, interruption_code()
    if was_interrupted() and not _can_start_a_thread():
        # OpenBLAS interrupts the process that it cannot start its threads in.
        return "a library cannot start a thread", remedy(OSError(errno.EAGAIN, "")), 3
    # Inside a library, what an interruption ends fails in its own way.
    if isinstance(error, KeyboardInterrupt) or was_interrupted():
        return "interrupted", "Finished work is kept; run the same command to continue.", interruption_code()
    if isinstance(error, KitError):
        return error.message, error.hint, error.exit_code
    if isinstance(error, MemoryError):
        return "out of memory", "Close other programs, or use a smaller model.", 3
    if isinstance(error, ModuleNotFoundError):
        return f"the Python package {error.name} is missing", f"Run `{install_command('export')}`.", 3
    # What cannot be imported of the kit itself is a bug in it.
    if isinstance(error, ImportError) and not (error.name or "").startswith("model_profiling"):
        return f"a library cannot be loaded: {_cause(error)}", "Check free memory and `ulimit -v`; install it again.", 3
    if isinstance(error, OSError):
        # The number of a descriptor, at times.
        path = error.filename if isinstance(error.filename, str) else ""
        return f"{error.strerror or error}: {path}".rstrip(": "), remedy(error, path), 3
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return f"{error}", remedy(OSError(errno.EAGAIN, "")), 3
    if isinstance(error, UnicodeEncodeError):
        return not_utf8(error), "Rename that file or folder, or use a UTF-8 locale (LC_ALL=C.UTF-8).", 2
    hint = "This is a bug in the kit. Please report it with the output of the same command and --debug."
    return f"unexpected {type(error).__name__}: {error}", hint, 1


def _can_start_a_thread() -> bool:
    import threading

    try:
        threading.Thread(target=lambda: None).start()
    except RuntimeError:
        return False
    return True


def _cause(error: BaseException) -> str:
    """Return what the system said: numpy explains at length around it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _asks_json(words: Iterable[str]) -> bool:
    """Return whether --json, or what argparse takes for it, is among the words of a command that could not be read."""
    return any(len(word) > len("--j") and "--json".startswith(word) for word in words)


def _fail(message: str, hint: str, code: int, as_json: bool = False) -> int:
    """Say what is wrong: two lines on standard error and, for who asked for JSON, an object instead of the result."""
    if as_json:
        with contextlib.suppress(OutputError):
            say_json({"error": {"message": message, "hint": hint, "exit_code": code}})
        if sys.stdout.isatty():
            return code
    warn(f"error: {message}\n" + (f"  fix: {hint}\n" if hint else ""))
    return code


def make_parser(names: Iterable[str] = _LISTED) -> argparse.ArgumentParser:
    """Return the command line with these subcommands in it."""
    parser = Parser(
        prog="sme2-kit",
        description="Where does a model spend its time, what does SME2 change, and what is worth fixing next?",
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"sme2-kit {__version__}")
    # Named, or argparse lays out a usage line to find the name in it.
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", prog=parser.prog, title="commands"
    )
    for name in names:
        module = cast(Command, importlib.import_module(_module(name)))
        said = " ".join((module.__doc__ or "").partition("\n\n")[0].split()).removesuffix(".")
        subparser = _subparser(commands, name, said[:1].lower() + said[1:])
        subparser.epilog = getattr(module, "EPILOG", None)
        if actions := getattr(module, "ACTIONS", None):
            inner = subparser.add_subparsers(dest="action", metavar="ACTION")
            for action, (text, parameters) in actions.items():
                _filled(_subparser(inner, action, text), parameters)
        _filled(subparser, getattr(module, "TAKES", ()), getattr(module, "COMMON", ""), getattr(module, "EXAMPLE", ""))
    return parser


def _subparser(commands: Any, name: str, text: str) -> Parser:
    made: Parser = commands.add_parser(name, help=text, description=text, add_help=False)
    return made


def _filled(parser: Parser, parameters: Iterable[Parameter], common: str = "", example: str = "") -> None:
    add_help(parser)
    prepare(parser, parameters, common, example)
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
