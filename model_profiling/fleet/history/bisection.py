"""Finds out by measuring whether a later program is slower: two kept ones side by side, as their series ran them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_profiling import __version__
from model_profiling.analysis.compare.metrics import layout_caveats
from model_profiling.analysis.compare.program_changes import ProgramChanges, largest
from model_profiling.analysis.run.selection import changes_between, measured_side
from model_profiling.analysis.timing.latency import compare
from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.on_progress import OnProgress, say_note
from model_profiling.fleet.history.trends import KeptPrograms, ProgramComparison, Series
from model_profiling.pipeline.group_state import ExperimentOutcome
from model_profiling.pipeline.manifest_records import now
from model_profiling.pipeline.phase_experiments import Lengths
from model_profiling.pipeline.schedule import CHOSEN, Counts
from model_profiling.pipeline.side_by_side import maker_of, measure, programs_of
from model_profiling.platforms.base import Platform
from model_profiling.store.labels import device_name
from model_profiling.store.run_directory import Phase, RunDirectory

_PHASE = re.compile(r"(pp|tg)([0-9]{1,9})(?:@d([0-9]{1,9}))?")


class Bisection(msgspec.Struct, frozen=True):
    """Between which two programs of a series it became slower; '' if no one step did it. `comparisons` are all that
    were made or found."""

    series: str
    programs: int
    before_sha256: str
    after_sha256: str
    before_commit: str
    after_commit: str
    before_path: str
    after_path: str
    sentence: str
    comparisons: list[ProgramComparison]


@dataclass
class Measurer:
    """Compares kept programs on one platform, and writes down what it finds."""

    kept: KeptPrograms
    platform: Platform
    on_progress: OnProgress
    counts: Counts = CHOSEN
    # Whether what was compared before is measured once more.
    again: bool = False

    def compare(self, series: Series, before: str, after: str) -> ProgramComparison:
        """Return two programs of a series, by their hashes."""
        known = self.kept.comparison(series, before, after)
        usable = known if known is not None and known.latency.reliable and not self.again else None
        if usable is not None and not self._is_device_of(series):
            return usable  # what is known of that device, which this is not
        environment = self._refuse_other_device(series)
        models = {"A": self._program(before), "B": self._program(after)}
        maker = maker_of(self.platform, *models.values())
        if usable is not None:
            if not (why := maker.difference(usable.maker)):
                return usable
            say_note(f"the comparison of {usable.created} is not reused: {why}")
        programs, phases = programs_of(models, _lengths(series.phase))
        phase = next((each for each in phases if each.label == series.phase), None)
        if phase is None and (phases or series.phase):
            hint = f"Compare them yourself: sme2-kit compare {models['A']} {models['B']}"
            raise InputError(f"{series.title} ran in another way than its programs can be compared now", hint)
        with files.scratch_directory() as home:
            outcomes = measure(
                self.platform,
                programs,
                home,
                series.threads,
                self.on_progress,
                traced=True,
                counts=self.counts,
                phase=phase,
                disable_features=series.off,
            )
            changes = _changes(series, (before, after), [outcomes["A"], outcomes["B"]], phase)
        latency = compare((before[:12], outcomes["A"].timed), (after[:12], outcomes["B"].timed), paired=True)
        latency = msgspec.structs.replace(latency, caveats=layout_caveats(environment))
        how = (series.platform, series.device, series.threads, list(series.off), series.phase)
        record = ProgramComparison(before, after, *how, now(), __version__, latency, maker=maker, changes=changes)
        # <run directory>/programs/<hash>/<name>.pte
        self.kept.add(models["B"].parents[2], record)
        return record

    def _program(self, sha256: str) -> Path:
        found = self.kept.program(sha256)
        if found is None:
            hint = "Runs keep their program unless --no-history says otherwise; prune removes them."
            raise InputError(f"the program {sha256[:16]} was not kept, or its file has changed", hint)
        return found

    def _is_device_of(self, series: Series) -> bool:
        here = device_name(self.platform.probe().environment, self.platform.identity)
        same = series.device == here or series.device.startswith(f"{here} (")
        return self.platform.name == series.platform and same

    def _refuse_other_device(self, series: Series) -> dict[str, object]:
        environment = self.platform.probe().environment
        if not self._is_device_of(series):
            here = device_name(environment, self.platform.identity)
            raise InputError(
                f"{series.title} is of {series.device} ({series.platform}); this is {here} ({self.platform.name})",
                "Compare on the device of the series: run this there, or choose it with --platform and its flags.",
            )
        return environment


def _changes(
    series: Series, programs: tuple[str, str], outcomes: Sequence[ExperimentOutcome], phase: Phase | None
) -> ProgramChanges | None:
    sides = []
    for sha256, outcome in zip(programs, outcomes, strict=True):
        # The newest run of the program: nobody keeps its ETRecord beside it.
        run = next((point.path for point in reversed(series.points) if point.sha256 == sha256), None)
        remembered = (RunDirectory(Path(run)).analysis_path, series.experiment) if run is not None else None
        sides.append(measured_side(outcome, sha256[:12], phase, remembered=remembered))
    try:
        return largest(changes_between(sides[0], sides[1]))
    except KitError as error:
        say_note(f"what changed is not known: {error.message}")
        return None


def _lengths(phase: str) -> Lengths:
    found = _PHASE.fullmatch(phase)
    if found is None:
        return Lengths()
    tokens = int(found[2])
    return Lengths(tokens, 0) if found[1] == "pp" else Lengths(0, tokens, (int(found[3] or 0),))


def kept_points(series: Series, kept: KeptPrograms) -> list[int]:
    """Return the first point of every program of a series that is kept, each program once, in order."""
    first: dict[str, int] = {}
    for place, point in enumerate(series.points):
        first.setdefault(point.sha256, place)
    return [place for sha256, place in first.items() if kept.is_kept(sha256)]


def bisect(
    series: Series, places: Sequence[int], compare_two: Callable[[Series, str, str], ProgramComparison]
) -> Bisection:
    """Find the program since which a series is slower: the first against the last, then halves, then the two found."""
    programs = [series.points[place].sha256 for place in places]
    if len(programs) < 2:
        what = f"{series.title} has {len(programs)} kept program{'s' if len(programs) != 1 else ''}: nothing to compare"
        raise InputError(what, "Programs are kept from now on; measure another export of the model.")
    made = [compare_two(series, programs[0], programs[-1])]
    if not made[0].slower:
        return _result(series, places, None, made)
    good, bad = 0, len(programs) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        made.append(compare_two(series, programs[0], programs[middle]))
        # Nearer to the last program than to the first.
        if made[-1].percent > made[0].percent / 2:
            bad = middle
        else:
            good = middle
    if len(programs) > 2:
        made.append(compare_two(series, programs[good], programs[bad]))
    return _result(series, places, (good, bad), made)


def _result(
    series: Series, places: Sequence[int], pair: tuple[int, int] | None, made: list[ProgramComparison]
) -> Bisection:
    points = [series.points[place] for place in places]
    if pair is None or not made[-1].slower:
        first = f"the last of {len(points)} kept programs against the first: {format_change(made[0])}"
        if not made[-1].latency.reliable:
            why = f"the machine was too busy to tell; {first}"
        elif pair is None:
            why = f"not slower; {first}"
        else:
            why = f"slower, but no single program made it so; {first}"
        return Bisection(series.title, len(points), "", "", "", "", "", "", why, made)
    before, after = points[pair[0]], points[pair[1]]
    commits = before.revision.commit, after.revision.commit
    since = f" ({after.revision.commit[:12]})" if after.revision.commit else ""
    sentence = f"slower since {after.created}{since}, label {after.label}: {format_change(made[-1])}"
    sides = (before.sha256, after.sha256, *commits, before.path, after.path)
    return Bisection(series.title, len(points), *sides, sentence, made)


def format_change(record: ProgramComparison) -> str:
    """Return `+5.1 % (95 % interval +4.6 to +5.5 %)`; how much longer the later program takes."""
    latency = record.latency
    if latency.high is None:
        return f"{record.percent:+.1f} %"
    low, high = ((1 / value - 1) * 100 for value in (latency.high, latency.low))
    return f"{record.percent:+.1f} % ({latency.confidence:.0%} interval {low:+.1f} to {high:+.1f} %)"
