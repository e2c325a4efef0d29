"""What commands print with --json and tools answer, where that is more than a result that other modules have."""

from typing import Any, Literal

import msgspec

from model_profiling.analysis.compare.comparison import AutoComparison, MetricChange
from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison
from model_profiling.analysis.movement.layout_reasons import LayoutReasons
from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.skills.checks import CheckResult
from model_profiling.store.artifacts import Delegation, ExportRecord, UndelegatedOperator
from model_profiling.store.runs import RunListing
from model_profiling.tune.tune_result import TuneResult


class KnownModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model that can be exported by `name`; `missing` are the packages it lacks here."""

    name: str
    source: Literal["kit", "here", "executorch"]
    description: str
    missing: list[str]
    parameters: str = ""
    extra: str = ""
    dtypes: list[str] = []


class ListedRun(RunListing, frozen=True):
    """One run of a `directory`; `median_ms` is None of one that is not analysed."""

    directory: str
    median_ms: dict[str, float] | None


class Validity(msgspec.Struct, frozen=True):
    valid: bool
    problems: list[str]
    notes: list[str]


class PlaybookState(msgspec.Struct, frozen=True):
    """Whether a playbook left what it promises, and each thing that was looked at."""

    skill: str
    ok: bool
    findings: list[CheckResult]


class Exported(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an export is, and its record: what XNNPACK takes of the model, what it does not, and why; with `metric`
    what that says of the program.

    `record.rewrites`: for each rewrite that would change this graph, the lines of the model; None: no one looked.
    """

    paths: dict[str, str]
    record: ExportRecord
    metric: MetricChange | None = None


class Checked(msgspec.Struct, frozen=True):
    """What an export would delegate, and which transposes and copies would be left in it, by why they are there.

    `missing_operators` are those that the kit's runner does not have, so that an export would fail (None: there is no
    runner to ask).
    """

    delegation: Delegation
    nodes: list[Any]
    reasons: dict[str, str]
    layout: LayoutReasons
    warnings: list[str]
    missing_operators: list[UndelegatedOperator] | None = None


class ProfilePaths(msgspec.Struct, frozen=True):
    pte: str
    run: str
    report: list[str]


class Profiled(msgspec.Struct, frozen=True, omit_defaults=True):
    """Export, run and analysis of one model, and the command to go on with. `export` is None if a .pte was given."""

    paths: ProfilePaths
    export: ExportRecord | None
    summary: AnalysisSummary
    next: list[str]
    tune: TuneResult | None = None
    auto: AutoComparison | None = None
    runtimes: RuntimeComparison | None = None
