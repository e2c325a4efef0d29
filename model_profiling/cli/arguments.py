"""What a command takes, from the definition of its verb: the parser, its help, and what was said, for Python."""

import argparse
import contextlib
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from model_profiling.api.calling import caller
from model_profiling.api.definition import parameters_of
from model_profiling.api.parameter import Parameter, looked_up
from model_profiling.base import files
from model_profiling.base.dtypes import why_refused
from model_profiling.base.errors import InputError
from model_profiling.base.printing import columns, fitted
from model_profiling.store.labels import split_labels

if TYPE_CHECKING:
    from model_profiling.platforms.base import Platform
    from model_profiling.platforms.platform_table import Choice

_FLAGGED = "_flagged_"
# Of the short help: where what flags do begins.
_INDENT = 26
# A terminal of fewer columns has no room for two of text.
_NARROW = 60


class UsageError(InputError):
    """The words of a command cannot be read."""


class Parser(argparse.ArgumentParser):
    """A parser of a verb's parameters. `--help` shows the `common` ones, `--help-all` every one."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{"formatter_class": WideHelp, **settings})
        self.color = False  # Python 3.14 paints help, and lines would be broken as if its codes had a width
        self.words: list[str] = []
        self.example = ""
        self.common: list[str] = []
        # Plain arguments that an earlier flag may say instead; a command itself says that it needs a model.
        self.needed: dict[str, str] = {}

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.words = sys.argv[1:] if args is None else list(args)
        found, unknown = super().parse_known_args(args, namespace)
        for action in self._actions:
            if action.dest.startswith(_FLAGGED):
                _merge(found, action.dest)
        missing = [metavar for name, metavar in self.needed.items() if getattr(found, name) is None]
        if missing:
            self.error(f"the following arguments are required: {', '.join(missing)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        why = ""
        if "expected one argument" in message and any(re.match(r"-\d", word) for word in self.words):
            why = " A value that begins with - is written behind an equals sign: --flag=-1."
        dtype = re.search(r"--dtypes?: invalid choice: '([\w.]+)'", message)
        raise UsageError(message, f"See `{self.prog} --help`.{why}{why_refused(dtype[1]) if dtype else ''}")

    def format_short_help(self) -> str:
        """Return a sentence, an example and the common flags."""
        width = (columns() or 80) - 2
        listed = [each for each in self._actions if each.help != argparse.SUPPRESS and each.dest not in _HELPS]
        plain, flags = ([each for each in listed if bool(each.option_strings) is of] for of in (False, True))
        first = {each.dest: each for each in reversed(flags)}  # of several that say one thing, as settings have
        common = [first[name] for name in self.common if name in first]
        shown = [*plain, *common] if self.common else listed
        parts = [
            " ".join([self.prog, *map(_plain, plain), *(["[flags]"] if flags else [])]),
            f"{self.description}.",
            f"  {self.example}" if self.example else "",
            "\n".join(line for each in shown for line in _row(each, width)),
            f"All {len(listed)} arguments: {self.prog} --help-all" if len(shown) < len(listed) else "",
            self.epilog or "",
        ]
        return "\n\n".join(fitted(part, width) for part in parts if part) + "\n"


class WideHelp(argparse.HelpFormatter):
    """Help as wide as the terminal; argparse loads every archiver there is to find that out, for every command."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=max((columns() or 80) - 2, 20))

    def format_help(self) -> str:
        # argparse does not break what is between brackets: a flag and its choices.
        return fitted(super().format_help(), columns())


class _ShortHelp(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        parser._print_message(parser.format_short_help(), sys.stdout)
        parser.exit()


_HELPS = ("help", "help_all")


def prepare(
    parser: argparse.ArgumentParser, parameters: Iterable[Parameter], common: str = "", example: str = ""
) -> None:
    """Add a verb's parameters, those that are `common` by name in the order of the short help."""
    if isinstance(parser, Parser):
        parser.common, parser.example = common.split(), example
    groups: dict[str, Any] = {"": parser}
    for each in parameters:
        if each.group not in groups:
            groups[each.group] = parser.add_argument_group(each.group)
        _add(parser, groups[each.group], each)
        if each.name == "inputs":  # `--inputs A B` goes on meaning files
            parser.add_argument("--inputs", nargs="+", action="extend", type=Path, default=None, help=argparse.SUPPRESS)


def add_help(parser: argparse.ArgumentParser) -> None:
    """Add the two helps, the short one under the flags that everyone knows."""
    parser.add_argument(
        "-h", "--help", action=_ShortHelp, nargs=0, dest="help", default=argparse.SUPPRESS, help="the common flags"
    )
    parser.add_argument("--help-all", action="help", dest="help_all", default=argparse.SUPPRESS, help="all flags")


def _add(parser: argparse.ArgumentParser, group: Any, each: Parameter) -> None:
    known = parser._option_string_actions
    if not each.plain and (shared := known.get(each.spelled)) is not None:
        # One flag says two things, which its values tell apart: a shape or a file, NAME or KEY=VALUE.
        if isinstance(shared, _Input):
            shared.takes.add(each.name)
            shared.metavar = "SHAPE|FILE"
            shared.help = f"{shared.help}; or {each.help}".replace("; once for each input; or", "; or")
        parser.set_defaults(**{each.name: None})
        return
    names = [each.name] if each.plain else [each.spelled, *(["-o"] if "-o" in each.earlier else [])]
    how = _how(each) if each.plain else {**_how(each), "dest": each.name}
    action = group.add_argument(*names, **how)
    if each.flag == "--input":
        action.takes = {each.name}
    earlier = [spelling for spelling in each.earlier if spelling.startswith("-")]
    for spelling in earlier if not each.plain else ():
        known.setdefault(spelling, action)
    if each.plain and earlier:
        flagged: dict[str, Any] = {"dest": f"{_FLAGGED}{each.name}", "action": "append", "type": how.get("type")}
        parser.add_argument(*earlier, **flagged, help=argparse.SUPPRESS)
        if each.required and each.kind != "model" and isinstance(parser, Parser):
            parser.needed[each.name] = each.spelled
    if each.name == "settings":
        for flag, (metavar, more, text) in _SETTINGS.items():
            group.add_argument(flag, dest="settings", metavar=metavar, default=None, help=text, **more)
    if each.name == "html" and each.default:
        group.add_argument("--html", dest="html", action="store_true", default=None, help=argparse.SUPPRESS)


# Flags that say a setting.
_SETTINGS: dict[str, tuple[str | None, dict[str, Any], str]] = {
    "--pretrained": (
        None,
        {"action": "append_const", "const": "pretrained=True"},
        "of timm:NAME, torchvision:NAME or hf:NAME: with its weights, which are fetched",
    ),
    "--until": (
        "MODULE",
        {"action": "append", "type": "until=".__add__},
        "the model up to this module of it, without what comes after: a detector's head",
    ),
    "--outputs": (
        "NAME,...",
        {"action": "append", "type": "only_outputs=".__add__},
        "only these outputs of the model, by name or number, from 0",
    ),
}


def _how(each: Parameter) -> dict[str, Any]:
    """Return what argparse is told of a parameter; what was not said is None."""
    how: dict[str, Any] = {"help": each.help.replace("%", "%%") or argparse.SUPPRESS, "default": None}
    if each.type is bool:
        return how | {"action": "store_const", "const": each.default is not True}
    of_path = each.kind in ("path", "run", "config") and each.type is str
    how |= {
        "type": new_file if each.written else Path if of_path else str if each.pairs else each.type,
        "metavar": each.metavar,
        "choices": looked_up(each.choices) or None,
    }
    if each.flag == "--input":
        return {**how, "action": _Input, "type": str}
    if each.commas:
        how["type"] = several(each.type)
    elif each.words is not None:
        how["nargs"] = each.words
    elif each.plain:
        how["nargs"] = "*" if each.many else None if each.required and not each.earlier else "?"
    elif each.bare is not None:
        how |= {"nargs": "?", "const": each.bare}
    elif each.many or each.name in ("label", "executorch"):
        how["action"] = "append"
    return how


def new_file(text: str) -> Path:
    """Return where a result is to be put; that it cannot be is said now, and not when it is there."""
    files.refuse_unwritable(Path(text))
    return Path(text)


def several(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Return what reads several values from one word."""

    def read(text: str) -> list[Any]:
        try:
            return [kind(part) for part in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} are no numbers, such as 1,2,4") from None

    return read


class _Input(argparse.Action):
    """Puts a value where inputs of its form belong; `takes` says which of them the command has."""

    takes: set[str]

    def __call__(self, parser: Any, namespace: Any, value: Any, option_string: str | None = None) -> None:
        of_file = _is_file(value, "input_shapes" in self.takes, "inputs" in self.takes)
        dest = "inputs" if of_file else "input_shapes"
        setattr(namespace, dest, [*(getattr(namespace, dest, None) or []), Path(value) if of_file else value])


def _is_file(text: str, takes_specs: bool, takes_files: bool) -> bool:
    """Return whether a value names a file; refuses what the command does not take, and what could be either."""
    from model_profiling.models.options import INPUT_FORMS, input_spec

    there, why = files.is_file(Path(text)), None
    try:
        input_spec(text)
    except InputError as error:
        why = error
    if there and why is None and takes_specs and takes_files:
        raise InputError(
            f"--input {text} is a shape, and a file here has that name", f"Write float32:{text}, or ./{text}."
        )
    if takes_files and (there or (why is not None and Path(text).suffix in (".npy", ".bin"))):
        return True  # one that is not there is refused with the others
    if not takes_specs:
        raise InputError(f"--input {text} is not a file", f"A .pte has its shapes: give it files. {INPUT_FORMS}")
    if there and why is not None:
        raise InputError(f"--input {text}: this command runs nothing, and takes no file", INPUT_FORMS)
    if why is not None:
        raise why
    return False


def _merge(found: argparse.Namespace, dest: str) -> None:
    """Put what was said by an earlier flag where the plain argument is."""
    name, flagged = dest.removeprefix(_FLAGGED), getattr(found, dest, None)
    given = getattr(found, name, None)
    delattr(found, dest)
    if isinstance(given, list):
        setattr(found, name, [*(flagged or []), *given])
    elif flagged:
        if given is not None or len(flagged) > 1:
            raise InputError(f"{' and '.join(map(str, [*flagged, *filter(None, [given])]))} are two", "Name one.")
        setattr(found, name, flagged[0])


def _plain(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    return {"*": f"[{name} ...]", "?": f"[{name}]"}.get(str(action.nargs), name)


def _row(action: argparse.Action, width: int) -> list[str]:
    """Return a flag and the first thing that is said of it."""
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    name = " ".join(filter(None, [*action.option_strings[:1], value]))
    said = str(action.help).replace("%%", "%")
    default = re.search(r" \(default: [^()]*\)", said)
    first = re.split(r"; | \(", said)[0]
    said = first + (default[0] if default and len(first) + len(default[0]) < width - _INDENT else "")
    # Where there is little room, what a flag does stands below it.
    wide = width >= _NARROW
    indent = _INDENT if wide else 6
    how: dict[str, Any] = {"max_lines": 2, "placeholder": " ..."} if wide else {"break_on_hyphens": False}
    lines = textwrap.wrap(said, max(width - indent, 1), break_long_words=False, **how)
    beside = len(name) + 3 < indent and bool(lines)
    head = f"  {name:<{indent - 2}}{lines.pop(0)}" if beside else f"  {name}"
    return [*fitted(head, width).split("\n"), *(" " * indent + line for line in lines)]


def said(args: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Return those of these parameters that were given."""
    return [name for name in names if getattr(args, name, None) not in (None, [])]


def flags_said(args: argparse.Namespace, parameters: Iterable[Parameter]) -> list[str]:
    """Return, as the user wrote them, those of these parameters that were given."""
    return [each.spelled for each in parameters if said(args, [each.name])]


def keywords(args: argparse.Namespace, of: Callable[..., Any] | list[Parameter]) -> dict[str, Any]:
    """Return what was said for a verb, or of some parameters, as Python takes it; what was not said is left out."""
    parameters = of if isinstance(of, list) else parameters_of(of)
    found = {name: getattr(args, name) for name in said(args, [each.name for each in parameters])}
    if any(each.name == "platform" for each in parameters):
        found["platform"] = choice_of(args)
    if "runtimes" in found:
        found["runtimes"] = [name for text in found["runtimes"] for name in text.split(",") if name]
    if "settings" in found:
        from model_profiling.models.options import settings_of

        found["settings"] = settings_of(found["settings"])
    if "label" in found:
        found["label"], found["labels"] = split_labels(found["label"])
    return found


def choice_of(args: argparse.Namespace) -> "Choice":
    """Return which platform the flags mean, checked: this machine, the emulator, or another machine."""
    from model_profiling.platforms.platform_table import Choice, checked

    given: dict[str, Any] = {part.name: getattr(args, part.name, None) or part.default for part in fields(Choice)}
    return checked(Choice(**given | {"no_lock": args.lock is False}), caller().spelled)


def chosen_platform(args: argparse.Namespace, *programs: Path) -> "contextlib.AbstractContextManager[Platform]":
    """Open the platform the flags name; when the command ends, however it ends, the machine is as it was."""
    from model_profiling.api.measuring import open_platform

    choice, config = choice_of(args), getattr(args, "config", None)
    return open_platform(choice, caller().on_note, *programs, lock=not choice.no_lock, config=config)
