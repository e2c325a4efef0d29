"""Every kind of JSON file that the kit promises to others: its type, its version, and which files are of it.

docs/contracts.md says when a version rises. A type says its kind in its tag and its version in its field `schema`.
"""

import fnmatch
from dataclasses import dataclass
from typing import Any

import msgspec

from model_profiling.analysis.accuracy.numerics import Numerics
from model_profiling.analysis.advice.finding import Kind as Rule
from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.analysis.roofs.roofs import Roofs
from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.analysis.run.operator_graph import OperatorGraph
from model_profiling.analysis.sme2.target import Target
from model_profiling.base import files
from model_profiling.fleet.history.trends import ProgramComparison, Trend
from model_profiling.fleet.sweep.result import RESULT as SWEEP
from model_profiling.fleet.sweep.result import SweepResult
from model_profiling.report.artifact_files import PipelineSummary, RobustStats
from model_profiling.report.kernel_view import Kernels
from model_profiling.store import artifacts
from model_profiling.store.artifacts import ExportMeta
from model_profiling.store.derived import DerivedIndex
from model_profiling.store.run_directory import Manifest, Samples
from model_profiling.tune.tuning import RESULT, TuneResult

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class Contract:
    """`names` are patterns of the files that hold it; none: it is only printed."""

    type: type[msgspec.Struct]
    names: tuple[str, ...]

    @property
    def kind(self) -> str:
        return str(self.type.__struct_config__.tag)

    @property
    def version(self) -> int:
        fields = msgspec.structs.fields(self.type)
        return next(int(field.default) for field in fields if field.name == "schema")

    @property
    def file_name(self) -> str:
        """Each version has its own file, and those of earlier versions stay."""
        return f"{self.kind}-{self.version}.schema.json"


CONTRACTS = (
    Contract(Manifest, (artifacts.MANIFEST,)),
    Contract(Samples, ("*_samples.json",)),
    Contract(Metrics, (artifacts.METRICS,)),
    Contract(AnalysisSummary, (artifacts.ANALYSIS_SUMMARY, "operator_analysis.json")),
    Contract(RobustStats, ("*_robust_stats.json",)),
    Contract(PipelineSummary, ("*_pipeline_summary.json",)),
    Contract(Kernels, (artifacts.KERNELS,)),
    Contract(DerivedIndex, (artifacts.DERIVED,)),
    Contract(ExportMeta, (artifacts.EXPORT_META,)),
    Contract(Numerics, (f"*{artifacts.NUMERICS}", artifacts.RUN_NUMERICS)),
    Contract(TuneResult, (RESULT,)),
    Contract(SweepResult, (SWEEP,)),
    Contract(Roofs, (artifacts.ROOFS,)),
    Contract(Target, ()),
    Contract(PairComparison, ()),
    Contract(OperatorGraph, ()),
    Contract(ProgramComparison, (f"{artifacts.COMPARED}*",)),
    Contract(Trend, ("*trend.json",)),
)
# JSON files that are no contract: formats of others (Perfetto, Model Explorer, the user's own category table), a
# debugging aid, and what the kit keeps for itself. Hidden files and folders (.partial, stamps) are for itself, too.
_OTHERS = (artifacts.TRACE, artifacts.CATEGORIES, artifacts.GRAPH)
_EXPLORER = (f"*{artifacts.EXPLORER_GRAPH}", f"*{artifacts.OVERLAY}")
NO_CONTRACT = (*_OTHERS, *_EXPLORER, "round-*.json", ".*")


def contract_of(name: str) -> Contract | None:
    """The contract that a file of this name is held to."""
    return next((c for c in CONTRACTS if any(fnmatch.fnmatchcase(name, pattern) for pattern in c.names)), None)


def json_schema(contract: Contract) -> dict[str, Any]:
    """Return the schema for readers: fields that they do not know may be there, kind and version are."""
    schema = files.json_schema(contract.type, _anything)
    for other in CONTRACTS:
        # Also where one is part of another: metrics lie in three files.
        if (part := schema["$defs"].get(other.type.__name__)) is not None:
            part["required"].append("schema")
            part["properties"] |= {"kind": {"const": other.kind}, "schema": {"const": other.version}}
    for name, definition in schema["$defs"].items():
        # Neither a new field nor a new rule of advice raises the version: a schema of today accepts files of tomorrow.
        if name == Rule.__name__:
            definition.update(type="string", examples=definition.pop("enum"))
        if definition.get("additionalProperties") is False:
            del definition["additionalProperties"]
    return {
        "$schema": _DIALECT,
        "$id": f"urn:executorch-sme2-kit:{contract.kind}:{contract.version}",
        "title": f"{contract.kind}, version {contract.version}",
        **schema,
    }


def _anything(type_: type[Any]) -> dict[str, Any]:
    """What the kit only passes on (a config, what a machine says of itself) may hold any JSON."""
    if type_ is object:
        return {"description": "any JSON"}
    raise NotImplementedError
