"""From a row of the table to a tool: its schema, the words of its command, and the answer, made in the same way for
every one of them."""

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
from mcp.server.mcpserver import Context
from pydantic import AliasChoices, Field

from model_profiling.api.parameter import Parameter, looked_up
from model_profiling.mcp_server.boundary import Workspace
from model_profiling.mcp_server.child import CommandResult, ProgressCounter, run_kit
from model_profiling.mcp_server.tool_table import HistoryAnswer, ToolRow
from model_profiling.models.options import setting

# How many entries of a list are answered, and how long an answer may be: what clients take without a file.
_SHOWN, LONGEST_ANSWER = 10, 100_000
_Setting = bool | int | float | str | list[int | float | str]
_ABOUT_MOST = f"How many entries of each list to answer with; fewer if that is over {LONGEST_ANSWER} characters."
_MOST = Annotated[int, Field(description=_ABOUT_MOST, ge=1, le=1000)]
# The field of the answer of each question.
_HISTORY = {"list": "runs", "trend": "trend", "regressions": "steps", "top": "operators", "coverage": "coverage"}


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
        from model_profiling.platforms.platform_table import EXAMPLES

        text += f"; another machine as {', '.join(EXAMPLES)}, a host by its name in the user's ssh_config"
    if each.kind in ("model", "code"):
        text += ". A Python file is run: it must be code you trust"
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

    async def kit(self, steps: ProgressCounter, *words: str, accept: tuple[int, ...] = (0,)) -> CommandResult:
        return await run_kit(list(words), self.workspace.root, steps, accept)

    async def call(self, row: ToolRow, context: Context, given: dict[str, Any]) -> Any:
        """Run the command of a tool and return what it answers, as plain data."""
        most = given.pop("most", _SHOWN)
        place = self.place(row, given)
        out = [f"--out={place}"] if place is not None and given.get("config") is None else []
        words = [*row.words.split(), *out, *self.words(row, given)]
        ended = await self.kit(ProgressCounter(context.report_progress), *words, accept=row.codes)
        if row.printed is None:
            # What begins with a space is for people.
            lines = [line for line in ended.stdout.splitlines() if line and line[0] != " "]
            return {row.key: [self.workspace.relative(line) for line in lines]}
        if row.printed is HistoryAnswer:
            name = _HISTORY[given["question"]]
            found = msgspec.json.decode(ended.stdout)
            entries = found if isinstance(found, list) else [found]
            return limited(self._inside({"total": len(entries), name: entries}), most, ())
        printed = ended.read(row.printed)
        data = msgspec.to_builtins(printed, str_keys=True)
        data = {row.key: data} if row.key else data
        data |= {name: msgspec.to_builtins(make(printed), str_keys=True) for name, make in row.made.items()}
        answer = limited(self._inside(data), most, row.cut)
        if row.place and place is not None:
            answer[row.place] = self.workspace.relative(place)
        return answer if len(row.codes) == 1 else {**answer, "exit_code": ended.code}

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
            from model_profiling.models.options import input_spec

            input_spec(value)  # a command that measures would take the name of a file, too
        return self.workspace.word(each.kind, value) if isinstance(value, str) else value

    def place(self, row: ToolRow, given: dict[str, Any]) -> Path | None:
        """Return where results go: the given or the usual place, which must be inside as well."""
        from model_profiling.api.exporting import artifact_name, load_options
        from model_profiling.pipeline.defaults import output_root_of
        from model_profiling.platforms.platform_table import folder_of, local_name, named
        from model_profiling.skills.catalogue import find_skill
        from model_profiling.skills.checks import skill_place

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
    from model_profiling.platforms.platform_table import MACHINES, NAMES, checked, named

    choice = named(text)
    if choice.platform not in NAMES:
        checked(choice)
    machines = {name: getattr(choice, name) for name in ("platform", *MACHINES) if getattr(choice, name) is not None}
    return [f"--{name.replace('_', '-')}={value}" for name, value in machines.items()]
