"""From a row of the table to a tool: its schema, the words of its command, and the answer, made in the same way for
every one of them."""

import codecs
import contextlib
import inspect
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import anyio
import msgspec
from mcp.server.mcpserver import Context
from pydantic import AliasChoices, Field

from model_profiling.api.parameter import Parameter, looked_up
from model_profiling.base.child_watcher import GRACE_S
from model_profiling.base.code_path import python_command
from model_profiling.base.errors import RunError
from model_profiling.base.programs import ChildProcess, start
from model_profiling.fleet.sweep.executor import failure_of
from model_profiling.mcp_server.boundary import Workspace
from model_profiling.mcp_server.tool_table import ToolRow
from model_profiling.models.options import input_spec, setting
from model_profiling.platforms.platform_table import EXAMPLES, MACHINES, NAMES, checked, folder_of, local_name, named
from model_profiling.skills.catalogue import find_skill
from model_profiling.skills.checks import skill_place

# Runs one `sme2-kit` command in a process of its own: its progress as it comes, its JSON at the end.
#
# A process of its own, because what torch and runners print must not get into the protocol, and because a call that is
# cancelled has to end, with all that it started.
Progress = Callable[[float, float | None, str], Awaitable[None]]
_COUNTED = re.compile(r"\((\d+)/(\d+)(?: runs)?\)\s*$")
_LOOK_S = 0.02
# How many entries of a list are answered, and how long an answer may be: what clients take without a file.
_SHOWN, LONGEST_ANSWER = 10, 100_000
# What of a parameter's value is code, by the parameter's kind.
_RUN = dict.fromkeys(("model", "code"), "A Python file is")
_RUN |= {"config": "A program that it names is", "release": "A build of your own is"}
_Setting = bool | int | float | str | list[int | float | str]
_ABOUT_MOST = f"How many entries of each list to answer with; fewer if that is over {LONGEST_ANSWER} characters."
_MOST = Annotated[int, Field(description=_ABOUT_MOST, ge=1, le=1000)]


class ProgressCounter:
    """Numbers for progress that only rise, as the protocol wants, over all commands of one call.

    A line that says `(done/total)` counts on from where the lines before it ended, and its total with it.
    """

    def __init__(self, tell: Progress) -> None:
        self._tell = tell
        self._last = 0.0
        self._start = 0.0
        self._total = 0.0

    async def say(self, line: str) -> None:
        if not line.strip():
            return
        counted = _COUNTED.search(line)
        if counted is None:
            self._total = 0.0
            await self._report(self._last + 1, None, line)
            return
        done, total = float(counted[1]), float(counted[2])
        if total != self._total or self._start + done < self._last:
            self._start, self._total = self._last, total
        await self._report(self._start + done, self._start + total, line)

    async def _report(self, value: float, total: float | None, line: str) -> None:
        if value > self._last:
            self._last = value
            await self._tell(value, total, line.strip())


async def run_kit(
    arguments: list[str], workspace: Path, steps: ProgressCounter, accept: tuple[int, ...] = (0,)
) -> tuple[int, str]:
    """Run to the end; return the exit code, one of those accepted, and what was printed. Another one becomes the error
    the command itself gave."""
    command, said = python_command("model_profiling", *arguments), list[str]()
    with tempfile.TemporaryFile() as printed:
        # Not in another thread: a call that is cancelled meanwhile would not know what was started.
        process = start(command, workspace, signal.SIGTERM, stdout=printed, stderr=subprocess.PIPE)
        try:
            code = await _follow(process, said, steps)
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
        printed.seek(0)
        output = printed.read().decode(errors="replace")
    # A command that failed before it had a result printed an error or nothing, whatever its exit code means elsewhere.
    found = None
    with contextlib.suppress(msgspec.DecodeError):
        found = msgspec.json.decode(output)
    printed_error = found.get("error") if isinstance(found, dict) else None
    if code not in accept or (code != 0 and (found is None or printed_error)):
        if isinstance(printed_error, dict):
            error = RunError(printed_error["message"], printed_error["hint"])
        else:
            error = RunError(*failure_of("\n".join(said), code))
        error.exit_code = code
        raise error
    return code, output


async def _end(process: ChildProcess) -> None:
    """Ask a command that still runs to end, as Ctrl-C does: it ends its runners, which have groups of their own."""
    if process.poll() is None:
        process.terminate()
        with anyio.move_on_after(GRACE_S):
            # A full pipe would keep it from ending.
            await _follow(process, [], None)
    process.end_all()
    with process:
        pass  # what is left of it ends now, and its pipe is closed


async def _follow(process: ChildProcess, into: list[str], steps: ProgressCounter | None) -> int:
    """Turn the lines that a command says into progress, until it ends."""
    assert process.stderr is not None
    text, rest, data = codecs.getincrementaldecoder("utf-8")(errors="replace"), "", b"-"
    while data:
        await anyio.wait_readable(process.stderr)
        data = os.read(process.stderr.fileno(), 1 << 16)
        *lines, rest = (rest + text.decode(data, final=not data)).split("\n")
        for line in lines:
            into.append(line)
            if steps is not None:
                await steps.say(line)
    while (code := process.poll()) is None:
        await anyio.sleep(_LOOK_S)
    return code


def signature_of(row: ToolRow) -> inspect.Signature:
    """Return what a tool takes: the parameters of its row, with their types, limits and descriptions."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    found = [inspect.Parameter("context", keyword, annotation=Context)]
    for each in row.parameters:
        kind, default = _type_of(each), cast(Any, inspect.Parameter.empty)
        if not each.required:
            kind, default = (kind, bool(each.default)) if each.type is bool else (kind | None, None)
        aliases = [name.removeprefix("--").replace("-", "_") for name in each.earlier if not name.startswith("-o")]
        more: dict[str, Any] = {"validation_alias": AliasChoices(each.name, *aliases)} if aliases else {}
        about: Any = Annotated[kind, Field(description=_described(each), **more)]
        found.append(inspect.Parameter(each.name, keyword, default=default, annotation=about))
    if row.printed is not None:
        found.append(inspect.Parameter("most", keyword, default=_SHOWN, annotation=_MOST))
    return inspect.Signature(found)


def _described(each: Parameter) -> str:
    text = each.help
    if each.type is bool and each.default is True:
        text = text.removeprefix("do not ") + " (default)"
    if each.kind == "machine":
        text += f"; another machine as {', '.join(EXAMPLES)}, a host by its name in the user's ssh_config"
    if each.kind in _RUN:
        text += f". {_RUN[each.kind]} run: it must be code you trust"
    return f"{text[:1].upper()}{text[1:]}."


def _type_of(each: Parameter) -> Any:
    if each.name == "settings":
        return dict[str, _Setting]
    limits: dict[str, Any] = {"ge": looked_up(each.least), "le": looked_up(each.most)}
    kind: Any = each.type if each.type in (bool, int, float) else str
    choices = _choices(each)
    if choices:
        kind = cast(Any, Literal)[choices]
    elif kind in (int, float) and set(limits.values()) != {None}:
        kind = Annotated[kind, Field(**{name: limit for name, limit in limits.items() if limit is not None})]
    elif each.required and kind is str:
        kind = Annotated[kind, Field(min_length=1)]
    if each.pairs:
        return Annotated[dict[str, kind], Field(min_length=1)] if each.required else dict[str, kind]
    if each.commas and each.name == "threads":
        return kind | list[kind]
    return list[kind] if each.many or each.kind == "release" else kind


def _choices(each: Parameter) -> tuple[str, ...]:
    if each.kind == "target":
        from model_profiling.analysis.sme2.target import kit_targets

        return (*(target.name for target in kit_targets()), "all")
    return () if each.kind == "machine" else tuple(looked_up(each.choices) or ())


class Tools:
    """The tools of one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    async def call(self, row: ToolRow, context: Context, given: dict[str, Any]) -> Any:
        """Run the command of a tool and return what it answers, as plain data."""
        most = given.pop("most", _SHOWN)
        place = self.place(row, given)
        out = [f"--out={place}"] if place is not None and given.get("config") is None else []
        words = [*row.words.split(), *out, *self.words(row, given)]
        code, printed = await run_kit(
            words, self.workspace.root, ProgressCounter(context.report_progress), accept=row.codes
        )
        if row.printed is None:
            # What begins with a space is for people.
            lines = [line for line in printed.splitlines() if line and line[0] != " "]
            return {row.key: [self.workspace.relative(line) for line in lines]}
        if row.field_of is not None:
            found = msgspec.json.decode(printed)
            entries = found if isinstance(found, list) else [found]
            return limited(self._inside({"total": len(entries), row.field_of(given): entries}), most, row.cut)
        try:
            found = msgspec.json.decode(printed, type=row.printed)
        except msgspec.DecodeError as error:
            raise RunError(f"the command's output cannot be read: {error}", "Report this with the call.") from None
        data = msgspec.to_builtins(found, str_keys=True)
        data = {row.key: data} if row.key else data
        data |= {name: msgspec.to_builtins(make(found), str_keys=True) for name, make in row.made.items()}
        answer = limited(self._inside(data), most, row.cut)
        if row.place and place is not None:
            answer[row.place] = self.workspace.relative(place)
        return answer if len(row.codes) == 1 else {**answer, "exit_code": code}

    def words(self, row: ToolRow, given: dict[str, Any]) -> list[str]:
        """Return the words that say what was given; plain arguments last, where none is taken for a flag."""
        flags, plain = list[str](), [row.action] if row.action else []
        for each in row.parameters:
            value = given.get(each.name)
            if value is None or value == [] or each.name == "out":
                continue
            if each.kind == "machine":
                flags += _machine_words(str(value))
            elif each.name == "settings":
                flags += settings_words(value)
            elif each.name == "question":
                plain.insert(0, value)
            else:
                (plain if each.plain else flags).extend(each.word_list(self._checked(each, value)))
        return [*flags, *(["--", *plain] if plain else [])]

    def _checked(self, each: Parameter, value: Any) -> Any:
        """Return a value with every path in it inside the workspace, as a command is to read it."""
        if isinstance(value, list):
            return [self._checked(each, one) for one in value]
        if each.name == "input_shapes":
            input_spec(value)  # a command that measures would take the name of a file, too
        return self.workspace.word(each.kind, value) if isinstance(value, str) else value

    def place(self, row: ToolRow, given: dict[str, Any]) -> Path | None:
        """Return where results go: the given or the usual place, which must be inside as well."""
        from model_profiling.api.exporting import artifact_name, load_options
        from model_profiling.pipeline.defaults import output_root_of

        if not any(each.name == "out" for each in row.parameters):
            return None
        if row.name == "validate_skill":
            _, usual = skill_place(find_skill(given["name"]).name, given.get("model"), self.workspace.root)
            home = given.get("out") or usual
            for below in ("artifacts", f"runs/{local_name()}"):
                self.workspace.inside(f"{home}/{below}")
            return self.workspace.inside(str(home))
        if given.get("out") is not None:
            return self.workspace.inside(given["out"])
        if (config := given.get("config")) is not None:
            return self.workspace.config(config)[1] or self.workspace.root
        model = given.get("model")
        if row.function is None or model is None:
            return None
        if row.below and not model.endswith((".pte", ".onnx", ".tflite")):
            target = self.workspace.model(model)
            # The server may have been started elsewhere.
            known = str(self.workspace.root / target) if ":" in target else target
            home = f"out_{artifact_name(known, load_options((), given.get('settings')))}"
            for below in ("artifacts", row.below):
                place = self.workspace.inside(f"{home}/{below}")
            return place
        if row.below:
            return None
        folder = folder_of(named(given.get("platform")))
        if row.name == "kernels":
            folder = f"{folder}_kernels" if given.get("platform") else "emulator"
        return self.workspace.inside(str(output_root_of(self.workspace.inside(model), folder)))

    def _inside(self, value: Any) -> Any:
        """Return data with every path of the workspace in it, `path:line` too, relative to that."""
        root = f"{self.workspace.root}/"
        if isinstance(value, str):
            return value.replace(root, "") if root in value else value
        if isinstance(value, list):
            return [self._inside(each) for each in value]
        return {k: self._inside(v) for k, v in value.items()} if isinstance(value, dict) else value


def limited(value: Any, most: int, cut: Iterable[str]) -> dict[str, Any]:
    """Return an answer whose lists have at most so many entries, fewer where it were too long, and how many were left
    out of each."""
    left: dict[str, int] = {}

    def within(each: Any, at: str) -> Any:
        if isinstance(each, dict):
            # A field that is cut is empty, as its type allows.
            return {k: [] if k in cut and isinstance(v, list) else within(v, f"{at}.{k}") for k, v in each.items()}
        if not isinstance(each, list):
            return each
        if len(each) > most and any(isinstance(one, dict | list) for one in each):
            left[at[1:]] = len(each) - most
            each = each[:most]
        return [within(one, at) for one in each]

    answer = {**within(value, ""), "left_out": left}
    too_long = most > 1 and len(msgspec.json.encode(answer)) > LONGEST_ANSWER
    return limited(value, most // 2, cut) if too_long else answer


def settings_words(settings: dict[str, object]) -> list[str]:
    """Return values as `--set` reads them: Python literals; text that cannot be taken for one has no quotes."""
    plain = {key for key, value in settings.items() if isinstance(value, str) and setting(value) == value}
    return [f"--set={key}={value if key in plain else repr(value)}" for key, value in settings.items()]


def _machine_words(text: str) -> list[str]:
    """Return the flags that name a platform, and a machine of it."""
    choice = named(text)
    if choice.platform not in NAMES:
        checked(choice)
    machines = {name: getattr(choice, name) for name in ("platform", *MACHINES) if getattr(choice, name) is not None}
    return [f"--{name.replace('_', '-')}={value}" for name, value in machines.items()]
