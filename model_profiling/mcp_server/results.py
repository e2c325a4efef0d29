"""The part of each result that an assistant acts on; the rest stays in files it can ask for."""

from typing import Any

from model_profiling.mcp_server.boundary import Workspace

_TOP_OPERATORS = 10
Data = dict[str, Any]


def export(workspace: Workspace, data: Data) -> Data:
    record = data["record"]
    return {
        "pte": workspace.relative(data["paths"]["pte"]),
        "etrecord": workspace.relative(data["paths"]["etrecord"]),
        "dtype": record["dtype"],
        "weights": record["weights"],
        "delegation": record["delegation"],
        "warnings": record.get("warnings", []),
        "seconds": round(sum(record["stage_seconds"].values()), 1),
    }


def measured(summary: Data) -> Data:
    """Latency of each experiment, comparisons with intervals, agreement of outputs."""
    metrics = summary["metrics"]
    return {
        "model": summary["model"],
        "platform": summary["platform"],
        "timing": summary["timing"],
        "experiments": metrics["experiments"],
        "comparisons": metrics["comparisons"],
        "agreements": metrics["agreements"],
        "notes": summary["notes"],
    }


def analysis(summary: Data) -> Data:
    """Categories, the operators that take most, advice, and how the bottleneck moved."""
    return {
        "model": summary["model"],
        "platform": summary["platform"],
        "timing": summary["timing"],
        "experiments": {
            name: {
                "execute_ms": experiment["breakdown"]["execute_ms"],
                "categories": experiment["breakdown"]["categories"],
                "top_operators": experiment["breakdown"]["operators"][:_TOP_OPERATORS],
                "advice": experiment["advice"],
                "notes": experiment["notes"],
            }
            for name, experiment in summary["experiments"].items()
        },
        "shifts": [
            {"before": entry["before"], "after": entry["after"], **entry["shift"]} for entry in summary["comparisons"]
        ],
        "comparisons": (summary["metrics"] or {}).get("comparisons", []),
        "notes": summary["notes"],
    }


def comparison(entry: Data) -> Data:
    profile = entry["profile"]
    return {**entry["latency"], "categories": profile["categories"], "shift": profile["shift"]["sentence"]}


def forecast(entry: Data) -> Data:
    return {**entry, "left": entry["left"][:_TOP_OPERATORS]}


def kernels(data: Data) -> Data:
    coverage = {name: experiment["coverage"] for name, experiment in data["experiments"].items()}
    return {
        "model": data["model"],
        "timing": "emulated",
        "unknown": next((entry["unknown"] for entry in coverage.values() if entry["unknown"]), ""),
        "experiments": coverage,
    }
