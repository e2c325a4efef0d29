"""The tools: which verb each is, what of it an assistant is offered, and the type that its command answers with."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import msgspec
from mcp.types import ToolAnnotations

from model_profiling import api
from model_profiling.analysis.accuracy.numerics import Numerics
from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison
from model_profiling.analysis.graph.cost_tree import CostNode, cost_tree
from model_profiling.analysis.roofs.roof_rates import Roofs
from model_profiling.analysis.roofs.roof_table import kind_rows, roof_rows
from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.analysis.run.run_forecasts import TargetForecast
from model_profiling.analysis.sme2.forecast_record import Forecast
from model_profiling.analysis.sme2.whatif import Prediction
from model_profiling.api.answers import Checked, Exported, KnownModel, ListedRun, PlaybookState, Profiled, Validity
from model_profiling.api.definition import takes
from model_profiling.api.parameter import Parameter
from model_profiling.fleet.history.history_records import HistoryRun, ModelCoverage, TopOperator
from model_profiling.fleet.history.trends import Regression, Trend
from model_profiling.platforms.doctor import Check
from model_profiling.report.kernel_view import Kernels
from model_profiling.tune.tune_result import TuneResult


def _effect(reads: bool = False, destroys: bool = False, again: bool = True, anywhere: bool = False) -> ToolAnnotations:
    return ToolAnnotations(
        read_only_hint=reads, destructive_hint=destroys, idempotent_hint=again, open_world_hint=anywhere
    )


# What a tool may change: nothing; what derives from measurements; files of an earlier call; by measuring again; on a
# device over the network, whose settings change while it is measured.
READS, ADDS, REPLACES = _effect(reads=True), _effect(), _effect(destroys=True)
MEASURES, MEASURES_ANYWHERE = _effect(destroys=True, again=False), _effect(destroys=True, again=False, anywhere=True)


@dataclass(frozen=True)
class ToolRow:
    """One tool. `function` is its verb, `more` names what only commands have; the first `about` else is the verb's."""

    name: str
    words: str
    change: ToolAnnotations
    # What the command prints; a list, or files that a command names, have a key.
    printed: Any
    function: Callable[..., Any] | None = None
    more: str = ""
    without: str = ""
    about: str = ""
    key: str = ""
    # Of an answer with several lists, which of them has what is printed, by what was given.
    field_of: Callable[[dict[str, Any]], str] | None = None
    # What is answered beside it: properties and functions of what is printed.
    beside: dict[str, Any] = field(default_factory=dict)
    # A plain argument before those that are given.
    action: str = ""
    # Fields that are left out wherever they are.
    cut: tuple[str, ...] = ()
    # Exit codes of a command that has an answer all the same.
    codes: tuple[int, ...] = (0,)
    # What the place that results go to is called in the answer, and what is below a model's own folder there.
    place: str = ""
    below: str = ""

    @functools.cached_property
    def parameters(self) -> list[Parameter]:
        return takes(self.function, self.more, f"lock verbose {self.without}")

    @functools.cached_property
    def made(self) -> dict[str, Callable[[Any], Any]]:
        return {name: getattr(each, "fget", each) for name, each in self.beside.items()}

    @functools.cached_property
    def answers(self) -> type[msgspec.Struct]:
        """The type of the answer: what is printed and what is answered beside it, and how much of it was left out."""
        fields: dict[str, Any] = {self.key: list[str] if self.printed is None else self.printed} if self.key else {}
        fields |= {name: get_type_hints(make)["return"] for name, make in self.made.items()}
        fields |= {"left_out": dict[str, int]} if self.printed is not None else {}
        fields |= {"exit_code": int} if len(self.codes) > 1 else {}
        place, bases = [(self.place, str, "")] if self.place else [], () if self.key else (self.printed,)
        return msgspec.defstruct(self.name, [*fields.items(), *place], bases=bases, frozen=True, kw_only=True)

    @property
    def description(self) -> str:
        text = self.about or (self.function.__doc__ if self.function is not None else "") or ""
        return " ".join(text.split())


class ForecastAnswer(msgspec.Struct, frozen=True):
    """What SME2 would change; with `target` "all", what it would on each target, or why nobody can say."""

    total: int
    forecasts: list[Forecast] = []
    targets: list[TargetForecast] = []


class HistoryAnswer(msgspec.Struct, frozen=True):
    """What was asked for; the other lists are empty. A step is a regression only if its state is "confirmed"."""

    total: int
    runs: list[HistoryRun] = []
    trend: list[Trend] = []
    steps: list[Regression] = []
    operators: list[TopOperator] = []
    coverage: list[ModelCoverage] = []


# The field of the answer of each question.
_HISTORY = {"list": "runs", "trend": "trend", "regressions": "steps", "top": "operators", "coverage": "coverage"}


def costliest_lines(found: AnalysisSummary) -> dict[str, list[CostNode]]:
    """Return the lines of the model with their operators, by experiment; without times there are none."""
    parts = {name: each.breakdown for name, each in found.experiments.items()}
    return {name: cost_tree(each, found.model).lines if each.execute_ms else [] for name, each in parts.items()}


_RUN = "run_dir=RunOrDump!"
# What a command shows of an operator or a line, and not of each place where it stands.
_CUT = ("instances", "kernel_comparisons", "sources", "etdump")
TOOLS = (
    ToolRow(
        *("doctor", "doctor --json", READS, list[Check]),
        more="essentials",
        about="Return what this machine can do, what is missing, and the command that fixes it.",
        key="checks",
        codes=(0, 3),
    ),
    ToolRow(
        *("models", "models --json", READS, list[KnownModel]),
        about="Return the models that can be exported by name, those in files of the workspace too, and what "
        "packages they lack.",
        key="models",
    ),
    ToolRow(
        *("runs", "history --json", READS, list[ListedRun]),
        action="runs",
        more="run_dir=RunDir!",
        about="Return the runs of a run directory: the latest, earlier ones by label, and interrupted ones, with "
        "their medians.",
        key="runs",
    ),
    ToolRow(
        *("history", "history --json", READS, HistoryAnswer),
        field_of=lambda given: _HISTORY[given["question"]],
        more="question=HistoryQuestion! model=OfModel platform=OfPlatform dtype=OfDtype labels=OfLabels since below",
        about="Return all runs in the workspace over time. A step in a series is a candidate: call it a regression "
        'only if its state is "confirmed", which takes `sme2-kit history bisect` at a terminal. Nothing is '
        "measured or written.",
    ),
    ToolRow(
        *("roofs", "roofs --json", READS, Roofs),
        action="show",
        more="file=RoofsFile?",
        about="Return what a CPU reaches at its best with this backend, as `sme2-kit roofs` measured it. `rows` are "
        "the best rates in G(FL)OP/s and bandwidths in GB/s by dtype, features and threads; `kinds` are all other "
        "kinds of operator, with all features on. Analyses compare every operator with it.",
        beside={"rows": roof_rows, "kinds": kind_rows},
        cut=("measurements",),
    ),
    ToolRow(
        *("what_if", "analyze --json", READS, dict[str, Prediction]),
        more=f"{_RUN} speedups=WhatIf!",
        about="Predict latency and next bottleneck if categories or operators became faster. This is no measurement.",
        key="predictions",
    ),
    ToolRow(
        *("forecast", "forecast --json", READS, ForecastAnswer),
        more="run_dir=RunDir! emulated_dir=Emulated? target speedups",
        about="Predict what SME2 would change in a run measured without it. This is no measurement.",
        field_of=lambda given: "targets" if given.get("target") == "all" else "forecasts",
    ),
    ToolRow(
        *("validate", "validate --json", READS, Validity),
        more="run_dir=RunDir! files=CheckedFiles?",
        about="Check that a run directory is complete and consistent, and that no report in it is older than its data.",
        codes=(0, 1),
    ),
    ToolRow(
        # Code of the user's is run by it: a metric, and a build of ExecuTorch.
        *("compare", "compare --json", ADDS, list[PairComparison], api.compare),
        more="fail_if_slower fail_if_startup_slower fail_if_memory_above strict any_baseline",
        without="categories",
        about="Compare two .pte (measured now, interleaved), two run directories (experiments of equal name), two "
        "experiments (DIR:EXPERIMENT), or two .etdump: latency, start-up and peak memory; or one .pte under "
        "two versions of ExecuTorch: outputs and kernels, too. `latency.ratio` above 1 means that `after` is "
        "faster; a verdict with `high` null or `contended` cannot be relied on. `exit_code` is 1 if a limit "
        "was broken. Counts, executorch and platform are for .pte. Nothing is written.",
        key="comparisons",
        cut=("before_metrics", "after_metrics"),
        codes=(0, 1),
    ),
    ToolRow(
        *("check", "check --json", ADDS, Checked),
        more="model! @check",
        about="Say which operators of a PyTorch model XNNPACK will take and which not, which transposes and copies "
        "would be left, why, and on which lines of the model. Lowers the model as an export does, and writes "
        "nothing.",
        cut=("nodes",),
    ),
    ToolRow(
        *("analyze", "analyze --json", ADDS, AnalysisSummary),
        more=_RUN,
        about="Return where the time goes in a run directory or an .etdump: categories, operators, lines of the "
        "model, how the bottleneck moved, and advice: what to change, where, and the gain to expect. Writes "
        "the analysis into the run directory again.",
        beside={"lines": costliest_lines},
        cut=_CUT,
    ),
    ToolRow(
        *("validate_skill", "skills validate --json", ADDS, PlaybookState),
        more="name=SkillName! model=SkillModel dtype=SkillDtype run_dir=RunDir? out=SkillOut",
        about="Check that the results of a playbook are there and valid: the last step of each.",
        codes=(0, 1),
    ),
    ToolRow(
        *("export", "export --json", REPLACES, Exported, api.export),
        without="force",
        about="Export a PyTorch model to a .pte. Nothing is done again while nothing has changed. To try a rewrite,"
        " give it an `out` of its own and compare the two .pte.",
        below="artifacts",
    ),
    ToolRow(
        *("profile", "profile --json", REPLACES, Profiled, api.profile),
        more="html=NoHtml",
        without="force platform inputs label labels keep_program runtimes",
        about="Go from a model to what to fix next, in one call: export it, run it with its accelerator on and off,"
        " analyse the run and write its report. Same files as `export`, `run` and `report` with their "
        "defaults.",
        cut=_CUT,
        below=".",
    ),
    ToolRow(
        *("kernels", "kernels --json", REPLACES, Kernels, api.kernels),
        about="Return which SME2 kernels a .pte uses, operator by operator, under emulation or on another machine, "
        "without times. Where `unknown` has a reason, only the kernels are known, not which operators use "
        "them.",
        codes=(0, 4),
        place="run_dir",
    ),
    ToolRow(
        *("report", "report", REPLACES, None),
        more="run_dir=RunDir! html forecast title",
        about="Write the report of a run directory: report.md with pictures and, with `html`, report.html. Replaces"
        " earlier ones there.",
        key="files",
    ),
    ToolRow(
        *("graph", "graph", REPLACES, None),
        more="run_dir=RunDir! forecast",
        about="Write graph.html into a run directory: the operators as an interactive graph for people, with times,"
        " shapes, kernels and source lines. `analyze` has the same numbers for you.",
        key="files",
    ),
    ToolRow(
        *("numerics", "numerics --json", REPLACES, Numerics, api.numerics),
        without="force",
        about="Find the layer that loses the accuracy: every layer of the exported program against eager PyTorch in"
        " fp32. `alarms` are layers that something is wrong with, `worst` those that lose most; `trials` are exports "
        "that were tried: give `kept` and the `keep` of the last one that `helps` to `export` as `keep_fp32`. Takes "
        "minutes for a large model.",
        beside={"alarms": Numerics.alarms, "worst": Numerics.worst},
        cut=("layers",),
        below="artifacts",
    ),
    ToolRow(
        *("compare_runtimes", "compare --json", REPLACES, RuntimeComparison, api.compare_runtimes),
        without="force platform inputs",
        about="Measure one model in ExecuTorch and in other runtimes on this machine, interleaved: latency and its "
        "ratio to ExecuTorch with intervals, start-up, peak memory, outputs against eager PyTorch. What "
        "differs is not `ranked`; what could not be measured has a `reason`.",
        below=".",
    ),
    ToolRow(
        *("tune", "tune --json", MEASURES, TuneResult, api.tune),
        about="Export the variants of a model that the advice recommends (data types, rewrites, layouts), measure "
        "them interleaved, and rank them. This takes minutes. The winner is faster with its whole 95 % "
        "interval, and its outputs match; it is empty if no variant is. `program` is the .pte to keep, "
        "`steps` say what each change gained. To make a variant elsewhere, give its dtype, memory_format, "
        "io_layout, rewrites and delegation to `export`.",
        below="tune",
    ),
    ToolRow(
        *("run", "run --json --no-html", MEASURES_ANYWHERE, AnalysisSummary, api.run),
        more="device remote_device host power_mode cool_down",
        without="runtimes keep_program tokens",
        about="Measure a .pte with its accelerator on and off, interleaved. What is finished is not measured again."
        " A run with other settings replaces the latest one of its directory, which is kept under its label "
        "(tool `runs`). On Android and over ssh, files are pushed to the device. `metrics` has latencies, "
        "start-up, memory, the comparison with its 95 % interval, and whether the outputs agree; the rest is as in "
        "`analyze`, without operators. A language model is run by phase, prefill and decode: `phase` of each "
        "experiment has time to the first token and tokens per second.",
        cut=(*_CUT, "operators", "parts", "modules"),
        place="run_dir",
    ),
)
