"""Results of sweeps that nobody carried out: many programs and targets, with all that can be missing."""

from collections.abc import Sequence

from model_profiling.fleet.sweep.result import (
    CellRecord,
    CellResult,
    JobRecord,
    JobState,
    PredictedSme2,
    PreviousComparison,
    Speedup,
    SweepResult,
    SweepStatus,
)
from model_profiling.store.run_directory import Timing

LONG = "efficientnet_with_a_very_long_name_that_somebody_chose_for_a_model_and_its_many_experiments"


def forged_sweep(
    programs: int, targets: Sequence[str] = ("local", "emulator"), long_names: bool = False, faults: bool = False
) -> SweepResult:
    """Programs in two dtypes, latencies from a tenth of a millisecond on; with `faults` some cells have no results or
    unknown numbers."""
    cells: list[CellRecord] = []
    for number in range(programs):
        model = f"{LONG}_{number}" if long_names else f"network_{number}"
        dtype = ("fp16", "int8")[number % 2]
        rewrites = ["layout", "per-pixel"] if long_names and number % 3 == 2 else []
        for target in targets:
            state: JobState = ("failed", "finished", "waiting")[number % 3] if faults and number % 2 else "finished"
            timing: Timing = "emulated" if target.startswith("emulator") else "measured"
            if faults and number % 5 == 4 and timing == "measured":
                continue
            results = [_emulated(number) if timing == "emulated" else _measured(number, faults)]
            name = f"{model}-{dtype}-t1-{target}"
            made = ("run", "run/report.html", results) if state == "finished" else ("", "", [])
            failure = "the runner ended with signal 9" if state == "failed" else ""
            cells.append(CellRecord(name, model, dtype, rewrites, 1, target, timing, state, *made, failure))
    jobs = [
        JobRecord(f"run {cell.name}", "run", cell.state, 1.0, cell.failure, "Measure it again." if cell.failure else "")
        for cell in cells
    ]
    status: SweepStatus = "failed" if any(job.state == "failed" for job in jobs) else "complete"
    when = "2026-01-02T03:04:05+00:00"
    return SweepResult("forged", "0", when, when, status, list(targets), jobs, cells, {"team": "vision"})


def _measured(number: int, faults: bool) -> CellResult:
    if faults and number % 4 == 2:
        return CellResult("linux_on", unknown={"median_ms": "no turns", "speedup": "no accelerator", "predicted": "no"})
    on = 0.1 * 1.7**number
    ratio = (1.99, 1.02)[number % 2]
    low, high = ratio * 0.97, ratio * 1.04
    verdict = "faster" if low > 1 else "no difference seen"
    speedup = Speedup("linux_off", ratio, low, high, verdict, contended=number % 7 == 6)  # type: ignore[arg-type]
    predicted = PredictedSme2(on / 2.4, 2.4, 1.8, 2.9, "apple-m4")
    against = PreviousComparison("worse", "run/earlier/a", "2026-01-01", 0.93, 0.9, 0.96) if number % 3 == 1 else None
    return CellResult(
        *("linux_on", "", on, 1.5 + number, None, speedup, 75.0, "6 of 8", 5.8, on * 20, on * 18, on * 22, 48 << 20),
        against,
        off_ms=on * ratio,
        off_mad_percent=0.8,
        predicted=predicted,
    )


def _emulated(number: int) -> CellResult:
    why = dict.fromkeys(("median_ms", "speedup", "startup_ms"), "the CPU was emulated, and emulated time is no latency")
    return CellResult("emulated_sme2", sme2_coverage_percent=50.0 + number, sme2_coverage="4 of 8", unknown=why)
