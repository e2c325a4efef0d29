"""Every kind of JSON file that the kit promises to others: its type, its version, and which files are of it.

docs/contracts.md says when a version rises. A type says its kind in its tag and its version in its field `schema`.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from model_profiling.analysis.accuracy.numerics import Numerics
from model_profiling.analysis.advice.finding import FindingKind as Rule
from model_profiling.analysis.compare.comparison import AutoComparison, PairComparison
from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison
from model_profiling.analysis.roofs.roof_rates import Roofs
from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.analysis.run.operator_graph import OperatorGraph
from model_profiling.analysis.sme2.forecast_validation import ForecastValidation
from model_profiling.analysis.sme2.target import Target
from model_profiling.base import files
from model_profiling.fleet.history.trends import ProgramComparison, Trend
from model_profiling.fleet.sweep.result import RESULT as SWEEP
from model_profiling.fleet.sweep.result import SweepResult
from model_profiling.fleet.sweep.sweep_file import json_schema as sweep_file_schema
from model_profiling.pipeline.config import json_schema as config_schema
from model_profiling.report.files.artifact_files import PipelineSummary, RobustStats
from model_profiling.report.kernel_view import Kernels
from model_profiling.store import artifacts
from model_profiling.store.artifacts import ExportMeta
from model_profiling.store.derived import DerivedIndex
from model_profiling.store.run_directory import Manifest, Samples
from model_profiling.tune.bench import RESULT
from model_profiling.tune.tune_result import TuneResult

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
    Contract(ForecastValidation, (artifacts.FORECAST_VALIDATION,)),
    Contract(Target, ()),
    Contract(PairComparison, ()),
    Contract(RuntimeComparison, (artifacts.RUNTIMES,)),
    Contract(AutoComparison, (artifacts.AUTO_COMPARISON,)),
    Contract(OperatorGraph, ()),
    Contract(ProgramComparison, (f"{artifacts.COMPARED}*",)),
    Contract(Trend, ("*trend.json",)),
)
# Files that a person writes, whose schemas editors read.
_WRITTEN_BY_HAND = {"config": config_schema, "sweep-file": sweep_file_schema}


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


def schema_names() -> dict[str, str]:
    """Return the name of every schema, and which files are of it."""
    named = {"config": "what `run --config` reads", "sweep-file": "what `sweep` reads"}
    return named | {each.kind: ", ".join(each.names) or "printed with --json" for each in CONTRACTS}


def schema_named(name: str) -> dict[str, Any]:
    """Return the schema of a file that is written by hand, or of a contract by its kind."""
    if name in _WRITTEN_BY_HAND:
        return _WRITTEN_BY_HAND[name]()
    return json_schema(next(each for each in CONTRACTS if each.kind == name))


def shipped_schemas() -> dict[str, dict[str, Any]]:
    """Return every schema by its path in the package, where a wheel has it."""
    written = {f"configs/{name.removesuffix('-file')}.schema.json": make() for name, make in _WRITTEN_BY_HAND.items()}
    # Each version has its own file.
    return written | {f"schemas/{each.kind}-{each.version}.schema.json": json_schema(each) for each in CONTRACTS}


def text_of(schema: dict[str, Any]) -> str:
    """Return a schema as the text of a file."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def _anything(type_: type[Any]) -> dict[str, Any]:
    """Return what the kit only passes on (a config, what a machine says of itself) may hold any JSON."""
    if type_ is object:
        return {"description": "any JSON"}
    raise NotImplementedError
