"""Makes run directories by the thousand out of the files of a real one: other times, programs and latencies."""

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from model_profiling.base import files

FIRST = datetime.datetime(2026, 1, 1, 9, 30, tzinfo=datetime.timezone.utc)


class Forge:
    """Writes runs like `source`; what it does not change is the same file under a second name."""

    def __init__(self, source: Path) -> None:
        self._summary = source / "analysis_summary.json"
        self._manifest: dict[str, Any] = json.loads((source / "manifest.json").read_text())
        self._metrics: dict[str, Any] = json.loads((source / "metrics.json").read_text())
        self.sha256 = str(self._manifest["model"]["sha256"])

    def take_times(self, other: "Forge", factor: float) -> None:
        """Have the latencies of another one times `factor`, whatever was measured."""
        for name, measured in self._metrics["experiments"].items():
            median = other._metrics["experiments"][name]["latency"]["median_ms"]
            measured["latency"] = {**measured["latency"], "median_ms": factor * median}

    def run(
        self, home: Path, number: int, factor: float = 1.0, sha256: str = "", model: str = "", **changed: Any
    ) -> Path:
        """The run of day `number`, with all latencies times `factor`; `changed` are fields of the manifest."""
        home.mkdir(parents=True, exist_ok=True)
        made = {"created": (FIRST + datetime.timedelta(days=number)).isoformat(), "label": f"r{number}", **changed}
        manifest = {**self._manifest, **made, "model": {**self._manifest["model"]}}
        manifest["model"]["sha256"] = sha256 or self.sha256
        if model:
            manifest["model"]["export"] = {**manifest["model"]["export"], "model": model}
        manifest["experiments"] = {
            name: {**record, "session": f"{home.parent}{number}"} for name, record in manifest["experiments"].items()
        }
        metrics = {**self._metrics, "experiments": {}}
        for name, measured in self._metrics["experiments"].items():
            latency = measured["latency"] and {**measured["latency"]}
            if latency:
                latency["median_ms"] *= factor
            metrics["experiments"][name] = {**measured, "latency": latency}
        (home / "manifest.json").write_text(json.dumps(manifest))
        (home / "metrics.json").write_text(json.dumps(metrics))
        if not (home / "analysis_summary.json").exists():
            files.copy_file(self._summary, home / "analysis_summary.json", link=True)
        return home

    def series(self, root: Path, factors: Sequence[float], programs: Sequence[str] = (), **changed: Any) -> Path:
        """A run directory with a run for each factor, the last of which is its latest one."""
        for number, factor in enumerate(factors):
            last = number == len(factors) - 1
            home = root if last else root / "earlier" / f"r{number}"
            self.run(home, number, factor, programs[number] if programs else "", **changed)
        return root
