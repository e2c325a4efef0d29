"""What each tool answers: the part of a result that an assistant acts on, as types that become the output schema."""

from typing import Literal

import msgspec

from model_profiling.analysis.accuracy.agreement import Agreement
from model_profiling.analysis.advice.finding import Advice
from model_profiling.analysis.compare.comparison import Change, Shift
from model_profiling.analysis.compare.kernel_changes import KernelComparison
from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.analysis.compare.operator_scaling import CurveOperators
from model_profiling.analysis.compare.program_changes import PartChange
from model_profiling.analysis.movement.layout_reasons import MoveGroup
from model_profiling.analysis.process.memory import MemoryComparison
from model_profiling.analysis.process.startup import StartupComparison
from model_profiling.analysis.roofs.roof_table import KindRow, RoofRow
from model_profiling.analysis.sme2.coverage import Coverage
from model_profiling.analysis.sme2.forecast_record import Forecast
from model_profiling.analysis.sme2.sme2_answer import Sme2Answer
from model_profiling.analysis.sme2.whatif import Prediction
from model_profiling.analysis.timing.breakdown import CategoryTime, OperatorTime
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.fleet.history.history_records import HistoryRun, ModelCoverage, Point, TopOperator
from model_profiling.fleet.history.trends import Regression, Step
from model_profiling.platforms.doctor import Check
from model_profiling.report.kernel_view import EvidenceTiming
from model_profiling.skills.checks import CheckResult
from model_profiling.store.artifacts import Delegation, RewriteChoice
from model_profiling.store.run_directory import Timing


class Readiness(msgspec.Struct, frozen=True):
    """`ready`: this machine can export and run. Each check has the command that fixes it."""

    ready: bool
    checks: list[Check]


class KnownModel(msgspec.Struct, frozen=True):
    """A model that can be exported by `name`; `missing` are the packages it lacks here."""

    name: str
    source: Literal["kit", "here", "executorch"]
    description: str
    missing: list[str]
    parameters: str = ""
    dtypes: list[str] = []


class KnownModels(msgspec.Struct, frozen=True):
    models: list[KnownModel]


class Signature(msgspec.Struct, frozen=True):
    """A tensor that the program takes or gives; `layout` is `contiguous` or `channels_last`."""

    shape: list[int]
    dtype: str
    layout: str


class ExportAnswer(msgspec.Struct, frozen=True):
    """Where the .pte is, what XNNPACK takes of it, and what it does not and why.

    `applicable_rewrites`: for each rewrite that would change this graph, the lines of the model (`path:line`); None: no
    one looked. `rewrites` are those that were applied. `verified`: whether the program was executed once with the kit's
    runner, and how its outputs compare with eager PyTorch's.
    """

    pte: str
    etrecord: str
    model: str
    dtype: str
    rewrites: list[str]
    memory_format: str
    io_layout: str
    inputs: list[Signature]
    outputs: list[Signature]
    weights: str
    delegation: Delegation
    applicable_rewrites: dict[str, list[str]] | None
    warnings: list[str]
    seconds: float
    verified: str = ""
    # What `rewrites: ["auto"]` chose and left out, each with its reason.
    auto: list[RewriteChoice] = []


class LeftPortable(msgspec.Struct, frozen=True):
    """An operator that stays outside XNNPACK, how often, why, and the lines of the model that call it."""

    op: str
    count: int
    reason: str
    lines: list[str]


class CheckAnswer(msgspec.Struct, frozen=True):
    """What an export would delegate, and which transposes and copies would be left in it, by why they are there.

    `removable_by_layout` is how many of the transposes the rewrite `layout` is predicted to remove (null: it was asked
    for, or the program branches, which `note` says). `missing_operators` are those that the kit's runner does not have,
    so that an export would fail (null: there is no runner to ask).
    """

    model: str
    dtype: str
    delegated_nodes: int
    portable_nodes: int
    delegate_calls: int
    not_delegated: list[LeftPortable]
    transposes: list[MoveGroup]
    copies: list[MoveGroup]
    removable_by_layout: int | None
    warnings: list[str]
    note: str = ""
    missing_operators: list[LeftPortable] | None = None


class RunAnswer(Metrics, frozen=True, kw_only=True):
    """metrics.json of a run: latency, start-up and memory of each experiment, comparisons with 95 % intervals, and
    whether outputs agree.

    `program` is what the .pte says of memory by itself (null: the file is gone); `scaling` compares numbers of threads,
    if several were measured.
    """

    run_dir: str
    timing: Timing
    notes: list[str]


class HotLine(msgspec.Struct, frozen=True):
    """A line of the model and the time of the operators that come from it."""

    file: str
    line: int
    code: str
    module: str
    ms: float
    share: float
    operators: list[str]


class KnownRoofs(msgspec.Struct, frozen=True):
    """What a CPU reaches at its best, each dtype and feature set: rates in G(FL)OP/s, bandwidths in GB/s.

    `kinds` are all other kinds of operator, with all features on.
    """

    cpu: str
    measured: str
    executorch: str
    rows: list[RoofRow]
    kinds: list[KindRow]


class AnalysedExperiment(msgspec.Struct, frozen=True):
    """Where one experiment's time goes; categories add up to `execute_ms`. `advice` is sorted, largest gain first.

    `headroom_ms` is what all operators could save if each reached the best rate of this CPU, and `of_roof` how near to
    that categories are; None and empty where nobody has measured it (`sme2-kit roofs`).
    """

    execute_ms: float
    categories: list[CategoryTime]
    operators: list[OperatorTime]
    operators_left_out: int
    lines: list[HotLine]
    lines_left_out: int
    advice: list[Advice]
    notes: list[str]
    headroom_ms: float | None = None
    of_roof: dict[str, float] = {}


class NamedShift(Shift, frozen=True, kw_only=True):
    """How the bottleneck moved between two experiments."""

    before_experiment: str
    after_experiment: str


class AnalysisAnswer(msgspec.Struct, frozen=True):
    """Where the time goes in each experiment, how the bottleneck moved, and what to do next.

    With `timing` "emulated", times tell nothing. `summary_file` has the whole analysis, if one was written.
    `operator_scaling` has the operators that lose most where several numbers of threads were measured. `sme2` says what
    SME2 does for the model, or would do: which operators have a kernel, and a prediction, which is no measurement.
    """

    model: str
    platform: str
    timing: Timing
    experiments: dict[str, AnalysedExperiment]
    shifts: list[NamedShift]
    comparisons: list[Comparison]
    notes: list[str]
    summary_file: str = ""
    operator_scaling: list[CurveOperators] = []
    sme2: list[Sme2Answer] = []


class ProfileAnswer(msgspec.Struct, frozen=True):
    """Export, run and analysis of one model. `export` is None if a .pte was given."""

    export: ExportAnswer | None
    run: RunAnswer
    analysis: AnalysisAnswer
    files: list[str]


class Predictions(msgspec.Struct, frozen=True):
    """By experiment."""

    predictions: dict[str, Prediction]


class Forecasts(msgspec.Struct, frozen=True):
    forecasts: list[Forecast]


class ComparedPair(Comparison, frozen=True, kw_only=True):
    """`after` against `before`; `ratio` above 1 means that `after` is faster, `low` and `high` bound it.

    `high` None, or `contended`: the verdict cannot be relied on. `startup` (time to the first result) and `memory`
    (peak) are null where a side was not measured for it. `outputs` and `kernels` are compared of one program under two
    versions of ExecuTorch. `changes` are the lines of PyTorch whose traced time changed most, with what changed about
    them; where `low_ms` to `high_ms` holds 0, the difference in time cannot be told from noise.
    """

    categories: list[Change]
    shift: str
    startup: StartupComparison | None = None
    memory: MemoryComparison | None = None
    outputs: Agreement | None = None
    kernels: KernelComparison | None = None
    changes: list[PartChange] = msgspec.field(default_factory=list)
    change_notes: list[str] = msgspec.field(default_factory=list)


class CompareAnswer(msgspec.Struct, frozen=True):
    """`gate` is "none" if no limit was given."""

    gate: Literal["none", "passed", "failed"]
    comparisons: list[ComparedPair]


class KernelsAnswer(msgspec.Struct, frozen=True):
    """SME2 coverage of each experiment. `unknown` is the reason why operators have no kernels, if they have none.

    `timing` is "emulated", or "traced" where a real CPU ran it: no time of either is latency.
    """

    run_dir: str
    model: str
    timing: EvidenceTiming
    unknown: str
    experiments: dict[str, Coverage]


class ListedRun(msgspec.Struct, frozen=True):
    """One run of a directory; `path` is None of an interrupted one, `median_ms` of one that is not analysed."""

    directory: str
    label: str
    kind: str
    created: str
    model: str
    dtype: str
    threads: list[int]
    experiments: list[str]
    status: str
    path: str | None
    median_ms: dict[str, float] | None


class ListedRuns(msgspec.Struct, frozen=True):
    runs: list[ListedRun]


class SeriesTrend(msgspec.Struct, frozen=True):
    """A series, how it went, and its steps. `last` are its newest runs, from old to new."""

    series: str
    device: str
    runs: int
    first_ms: float
    latest_ms: float
    last: list[Point]
    steps: list[Step]


class HistoryAnswer(msgspec.Struct, frozen=True):
    """What was asked for; the other lists are empty. A step is a regression only if its state is "confirmed"."""

    total: int
    runs: list[HistoryRun] = []
    series: list[SeriesTrend] = []
    steps: list[Regression] = []
    operators: list[TopOperator] = []
    coverage: list[ModelCoverage] = []


class LayerError(msgspec.Struct, frozen=True):
    """A layer: where it is, what is wrong with it ('' for nothing), and in decibel of signal to noise the outputs if
    only this layer were not exact (`alone_db`), what it adds (`added_db`), and its error with what it inherits."""

    layer: str
    operator: str
    source: str
    alarm: str
    alone_db: float | None
    added_db: float | None
    error_db: float | None
    # What keeps its error out, by itself; what that gives was tried for `remedies` only.
    keep: list[str]


class RemedyTrial(msgspec.Struct, frozen=True):
    """An export that was made and run once: `keep` is all to give to `export` as `keep_fp32`, if it `helps`."""

    keep: list[str]
    helps: bool
    # Signal to noise of its outputs, by experiment; None for NaN.
    outputs_db: dict[str, float | None]
    # Why there are none.
    failure: str


class LayerErrors(msgspec.Struct, frozen=True):
    """`outputs_db` is the outputs' signal to noise against eager fp32, by experiment; `worst` has up to ten layers.

    `remedies` are None if nobody tried, and empty if nothing is wrong.
    """

    model: str
    dtype: str
    layers: int
    outputs_db: dict[str, float | None]
    alarms: list[LayerError]
    worst: list[LayerError]
    left_out: dict[str, int]
    remedies: list[RemedyTrial] | None


class ValidationAnswer(msgspec.Struct, frozen=True):
    valid: bool
    problems: list[str]
    notes: list[str]


class PlaybookState(msgspec.Struct, frozen=True):
    """Whether a playbook left what it promises, and each thing that was looked at."""

    skill: str
    ok: bool
    findings: list[CheckResult]


class WrittenFiles(msgspec.Struct, frozen=True):
    """The files written, relative to the workspace."""

    files: list[str]
