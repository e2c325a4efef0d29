"""A run as everything that comes after it sees it: opened once, read and analysed when first asked, and only once."""

import contextlib
import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from model_profiling.analysis.accuracy.agreement import Agreement, wrong_outputs
from model_profiling.analysis.accuracy.numerics import Numerics, read_numerics, side
from model_profiling.analysis.compare.comparison import AutoComparison
from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison, read_runtimes
from model_profiling.analysis.graph.sources import read_sources
from model_profiling.analysis.process.scaling import Scaling, ThreadCurve
from model_profiling.analysis.roofs.roof_rates import roofs_bytes
from model_profiling.analysis.roofs.run_roofs import RunRoofs, run_roofs
from model_profiling.analysis.run.dumps import AnalysisSummary, DumpAnalysis, analyse_dumps
from model_profiling.analysis.run.experiment_labels import curve_label, labels_of, replace_names, switched_features
from model_profiling.analysis.run.summary import analyse_run, has_times
from model_profiling.analysis.sme2.kernel_table import user_table_identity
from model_profiling.analysis.timing.categories import CategoryTable, load_table
from model_profiling.analysis.timing.latency import latency_turns
from model_profiling.analysis.timing.profile import Profile
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.file_memo import FileMemo
from model_profiling.base.units import counted
from model_profiling.formats.etdump.flatbuffer import IDENTIFIER
from model_profiling.runner.features import feature_label
from model_profiling.store import artifacts
from model_profiling.store.derived import ROOFS_INPUT, TABLE_INPUT, fingerprint
from model_profiling.store.run_directory import Manifest, RunDirectory, Turn, without_threads, without_version

# `--categories builtin`: forget the table that the run remembers.
BUILT_IN = "builtin"
# Of the inputs that are not kept with a run the one that only the machine has that exported its program.
ETRECORD_INPUT = "ETRecord"
_View = TypeVar("_View", bound="RunData")
_Kept = TypeVar("_Kept", Numerics, RuntimeComparison, AutoComparison)
_etrecord_identity = FileMemo(files.identity)


class RunData:
    """One run directory, or one bare ETDump, of which less is known: it has no manifest, no latency and no turns.

    `path` is as the user wrote it. With `emulated`, a run of the same model under an emulator, there are forecasts, for
    `target` or the one that is usual. With `only`, it knows of no other experiments than these.
    """

    def __init__(
        self,
        path: Path,
        table: CategoryTable,
        emulated: "RunData | None" = None,
        target: str | Path | None = None,
        only: Sequence[str] = (),
    ) -> None:
        self.path = path
        self.only = tuple(only)
        # What a user named of these.
        self.asked = self.only
        self.table = table
        self.emulated = emulated
        self.target = target
        self.roofs, self.inputs, self.sources = RunRoofs(), dict[str, str](), ""
        if not path.is_file():
            self.take_inputs()

    def take_inputs(self) -> None:
        """Take what it is made from, as it is now: before times are read, so that a change in between is noticed."""
        # Those of the whole run, whatever is shown of it.
        manifest = self.run_directory.manifest() if self.only else self.manifest
        self.roofs = run_roofs(self.path, manifest)
        for name in ("numerics", "runtimes", "auto"):
            self.__dict__.pop(name, None)
        versions = sorted({record.runner.executorch_name for record in manifest.experiments.values()})
        found = {TABLE_INPUT: self.table.identity, ROOFS_INPUT: self.roofs.identity}
        found |= {"accuracy of layers": _identity(self.numerics), "comparison of runtimes": _identity(self.runtimes)}
        found["comparison with --rewrite auto"] = _identity(self.auto)
        program = manifest.model.file()
        found[ETRECORD_INPUT] = _etrecord_identity(artifacts.ExportPaths(program).etrecord) if program else ""
        found |= {f"kernel table of ExecuTorch {version}": user_table_identity(version) for version in versions}
        self.inputs = {name: identity for name, identity in found.items() if identity}
        self.sources = fingerprint(self.run_directory, self.inputs)

    @classmethod
    def open(
        cls: type[_View],
        path: str | Path,
        categories: str | Path | None = None,
        emulated: str | Path | None = None,
        target: str | Path | None = None,
        only: Sequence[str] = (),
    ) -> _View:
        """Open a run directory or an ETDump; `categories` extends the category table, now and in later commands.

        With `only`, it is as if there were only these experiments and those that they are compared with.
        """
        path, known = Path(path), list(only)
        if not path.exists():
            raise InputError(f"there is no run at {path}", "Check the path; `sme2-kit run` prints it.")
        if path.is_file():
            _check_dump(path)
        else:
            manifest = RunDirectory(path).manifest()  # says what is wrong with the directory, if anything is
            if unknown := next((name for name in only if name not in manifest.experiments), None):
                some = ", ".join(list(manifest.experiments)[:10])
                raise InputError(f"the run has no experiment '{unknown}'", f"It has: {some}.")
            pairs = [pair for pair in manifest.compare_pairs if not set(pair).isdisjoint(only)]
            known = list(dict.fromkeys([*only, *(name for pair in pairs for name in pair)]))
        other = cls.open(emulated, categories) if emulated is not None else None
        run = cls(path, _table(path, categories), other, target, known)
        run.asked = tuple(only)
        return run

    @property
    def directory(self) -> str:
        return str(self.path)

    @property
    def run_directory(self) -> RunDirectory:
        if self.path.is_file():
            raise self._bare()
        return RunDirectory(self.path)

    def _bare(self) -> InputError:
        return InputError(
            f"{self.path} is an ETDump without a run directory",
            "It has operators and categories only; for the rest, measure the model with sme2-kit run.",
        )

    @functools.cached_property
    def manifest(self) -> Manifest:
        manifest, wanted = self.run_directory.manifest(), set(self.only)
        if not wanted:
            return manifest
        records = {name: record for name, record in manifest.experiments.items() if name in wanted}
        pairs = [pair for pair in manifest.compare_pairs if wanted.issuperset(pair)]
        return msgspec.structs.replace(manifest, experiments=records, compare_pairs=pairs)

    @functools.cached_property
    def analysed(self) -> DumpAnalysis:
        if self.path.is_file():
            return analyse_dumps([self.path], self.table)
        return analyse_run(self.run_directory, self.manifest, self.table, self.roofs)

    @property
    def summary(self) -> AnalysisSummary:
        return self.analysed.summary

    @property
    def profiles(self) -> dict[str, Profile]:
        return self.analysed.profiles

    @property
    def metrics(self) -> Metrics:
        metrics = self.summary.metrics
        if metrics is None:
            raise self._bare()
        return metrics

    @functools.cached_property
    def turns(self) -> dict[str, list[Turn]]:
        """The turns of each finished experiment that may be called latency."""
        done = {name: record for name, record in self.manifest.experiments.items() if record.status == "ok"}
        return {n: latency_turns(r, self.run_directory.samples(self.manifest, n)) for n, r in done.items()}

    def sqnr(self, experiment: str) -> Mapping[int, float]:
        """Return what `sme2-kit numerics` knows of each operator's accuracy, in dB, by its row in the breakdown."""
        numerics, model = self.numerics, None if self.path.is_file() else self.manifest.model.file()
        record = read_sources(model).record if numerics is not None and model is not None else None
        if numerics is None or record is None:
            return {}
        errors = {node: side(numerics, layer).error.sqnr_db for layer in numerics.layers for node in layer.nodes}
        method = self.manifest.experiments[experiment].method or "forward"
        found: dict[int, float] = {}
        for row, entry in enumerate(self.summary.experiments[experiment].breakdown.instances):
            nodes = record.nodes(entry.source.debug_handle, method) if entry.source is not None else ()
            known = [error for node in nodes if (error := errors.get(node.origin_name)) is not None]
            if known and entry.name != "delegate call":
                found[row] = min(known)
        return found

    def _of_this_program(self, read: Callable[[Path], _Kept], *places: Path) -> _Kept | None:
        """Return the first record that is there and of this .pte. One that cannot be read is as good as none: a report
        is about the run."""
        for path in places if not self.path.is_file() else ():
            with contextlib.suppress(InputError):
                if files.is_file(path) and (found := read(path)).pte_sha256 == self.manifest.model.sha256:
                    return found
        return None

    @functools.cached_property
    def numerics(self) -> Numerics | None:
        """What `sme2-kit numerics` found of this .pte: beside it, or as it was when the run was last analysed."""
        if self.path.is_file():
            return None
        beside = artifacts.ExportPaths(Path(self.manifest.model.path)).numerics
        return self._of_this_program(read_numerics, beside, self.path / artifacts.RUN_NUMERICS)

    @functools.cached_property
    def runtimes(self) -> RuntimeComparison | None:
        """This .pte and the same model in other runtimes, as `profile --runtimes` measured them; None if it did not."""
        return self._of_this_program(read_runtimes, self.path / artifacts.RUNTIMES)

    @functools.cached_property
    def auto(self) -> AutoComparison | None:
        """This .pte and the same model with `--rewrite auto`, as `profile` measured them; None if it did not."""
        read = functools.partial(files.read_json, type_=AutoComparison, what="comparison with --rewrite auto")
        return self._of_this_program(read, self.path / artifacts.AUTO_COMPARISON)

    @functools.cached_property
    def wrong(self) -> list[Agreement]:
        """The experiments whose outputs are not those of the model: nothing is predicted or advised of them."""
        metrics = self.summary.metrics
        return wrong_outputs(self.manifest.model.export, metrics.agreements) if metrics is not None else []

    @property
    def busy(self) -> float:
        """The share of executions that other processes preempted, if so large that times mean little; else 0."""
        metrics = self.summary.metrics
        latencies = [each.latency for each in metrics.experiments.values()] if metrics is not None else []
        return max((latency.preempted for latency in latencies if latency is not None and latency.busy), default=0.0)

    @property
    def measured(self) -> bool:
        """Whether times mean anything: an emulator's do not, and are never shown."""
        return self.summary.timing == "measured"

    def sides(self, before: str, after: str, threads: bool = True) -> tuple[str, str]:
        """Return what to call two compared experiments: `sme2 off` and `sme2 on` if that is the difference; without
        their `threads`, what all are called that differ only in these."""
        switched = switched_features(self.manifest, before, after)
        if switched:
            words = " and ".join(map(feature_label, switched))
            return f"{words} off{self._details(before, threads)}", f"{words} on{self._details(after, threads)}"
        return self.label(before), self.label(after)

    def _details(self, experiment: str, threads: bool) -> str:
        """Return what to add where experiments have different phases, versions of ExecuTorch or numbers of threads."""
        records = self.manifest.experiments
        record = records[experiment]
        details = [record.phase.label] if record.phase is not None else []
        if len({each.runner.executorch_name for each in records.values()}) > 1:
            version = without_version(without_threads(experiment, record.threads)[0], record.runner)[1]
            details.append(f"ExecuTorch {version or record.runner.executorch_name}")
        if threads and len({each.threads for each in records.values()}) > 1:
            details.append(counted(record.threads, "thread"))
        return f" ({', '.join(details)})" if details else ""

    @property
    def threads_compared(self) -> Scaling | None:
        """What more threads bring; None if no experiments differ only in their threads."""
        return self.summary.metrics.scaling if self.summary.metrics is not None else None

    @functools.cached_property
    def thread_curves(self) -> list[tuple[str, ThreadCurve]]:
        """Experiments that differ only in their threads, each with what to call it: `sme2 off` before `sme2 on`."""
        found = self.threads_compared
        curves = sorted(found.curves, key=lambda curve: -len(curve.disabled)) if found is not None else []
        names = [self._curve_label(curve) for curve in curves]
        often = Counter(names)
        return [
            (name if often[name] == 1 else self.label(curve.points[0].experiment), curve)
            for name, curve in zip(names, curves, strict=True)
        ]

    def _curve_label(self, curve: ThreadCurve) -> str:
        first, found = curve.points[0], self.threads_compared
        for switch in found.switches if found is not None else []:
            if first.experiment in (switch.before, switch.after):
                return self.sides(switch.before, switch.after, threads=False)[first.experiment == switch.after]
        name = self.label(first.experiment)
        return name if name == first.experiment else curve_label(self.manifest, first.experiment)

    @functools.cached_property
    def of_other_threads(self) -> set[str]:
        """Experiments that differ from an earlier one only in their threads: what that one shows is much the same."""
        order = {name: place for place, name in enumerate(self.manifest.experiments)}
        curves = [[point.experiment for point in curve.points] for _, curve in self.thread_curves]
        return {name for names in curves for name in names if name != min(names, key=order.__getitem__)}

    def repeats(self, before: str, after: str) -> bool:
        """Return whether a comparison is one that was made with other threads, too, and is not the first of these."""
        return {before, after} <= self.of_other_threads

    @functools.cached_property
    def labels(self) -> dict[str, str]:
        """What to call each experiment where people read; its name is what files and commands go by."""
        return {} if self.path.is_file() else labels_of(self.manifest)

    def label(self, experiment: str) -> str:
        return self.labels.get(experiment, experiment)

    def labelled(self, text: str) -> str:
        """Return the text with every experiment called by its label."""
        return replace_names(text, self.labels)

    @functools.cached_property
    def shown(self) -> list[str]:
        """Experiments whose operators are shown: the timed ones; where nothing was, the one that uses SME2 most."""
        experiments = self.summary.experiments
        if self.measured:
            return [name for name in experiments if has_times(self.manifest, name)]
        covered = {name: e.coverage.on_sme2 or 0 for name, e in experiments.items() if e.coverage is not None}
        return [max(covered, key=lambda name: covered[name])] if covered else list(experiments)

    @functools.cached_property
    def phases(self) -> list[str]:
        """The labels of a language model's phases, in the order in which they were run."""
        names = [] if self.path.is_file() else list(self.manifest.experiments)
        return list(dict.fromkeys(filter(None, map(self.phase, names))))

    def phase(self, experiment: str) -> str:
        """Return the label of an experiment's phase; '' if it has none."""
        record = None if self.path.is_file() else self.manifest.experiments.get(experiment)
        return record.phase.label if record is not None and record.phase is not None else ""

    @property
    def first_of_phases(self) -> list[str]:
        """Of the experiments that a reader wants faster the first of each kind of phase: prefill, and decode."""
        return self.first_of_each_phase(self.of_interest)

    def first_of_each_phase(self, names: Iterable[str]) -> list[str]:
        """Return the first of some experiments of each kind of phase."""
        kinds: dict[str, str] = {}
        for name in names:
            kinds.setdefault(self.manifest.experiments[name].phase_kind, name)
        return list(kinds.values())

    @functools.cached_property
    def alone(self) -> list[str]:
        """Shown experiments that take part in no comparison."""
        compared = {name for c in self.summary.comparisons for name in (c.before, c.after)}
        return [name for name in self.shown if name not in compared]

    @functools.cached_property
    def of_interest(self) -> list[str]:
        """The experiments a reader wants faster: the later side of each comparison, else all; of several numbers of
        threads the one that is named first."""
        later = dict.fromkeys(c.after for c in self.summary.comparisons if not self.repeats(c.before, c.after))
        others = self.of_other_threads
        return [*later, *(name for name in self.alone if name not in others)] or self.shown

    def remembered(self) -> dict[str, bytes | None]:
        """Return what is kept with the run, so that it says the same later and elsewhere; None: no longer.

        The user's category table; the roofs that it was held against, and what is known of the layers' accuracy: the
        .pte may be elsewhere then, and other roofs may be measured.
        """
        kept: dict[str, bytes | None] = {artifacts.CATEGORIES: self.table.text or None}
        if self.roofs.used is not None:
            kept[artifacts.ROOFS] = roofs_bytes(self.roofs.used)
        if self.numerics is not None:
            kept[artifacts.RUN_NUMERICS] = files.json_bytes(self.numerics)
        return kept


def _identity(value: msgspec.Struct | None) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:16] if value is not None else ""


def _check_dump(path: Path) -> None:
    """Refuse a file that is no ETDump by its name and by its beginning; what is wrong with one, its reader says."""
    if path.suffix in (".etdump", ".etdp"):
        return
    try:
        with files.open_file(path) as file:
            if IDENTIFIER in file.read(12):
                return
    except OSError:
        return
    what = {".pte": f"sme2-kit run {path}", ".py": f"sme2-kit profile {path}:ClassName"}.get(path.suffix)
    raise InputError(
        f"{path} is neither a run directory nor an ETDump",
        f"Measure it first: {what}" if what else "Give the directory that `sme2-kit run` prints.",
    )


def _table(path: Path, categories: str | Path | None) -> CategoryTable:
    """Return the table that is asked for, else the one that the run remembers, else the built-in one."""
    if categories is not None:
        return load_table(None if str(categories) == BUILT_IN else Path(categories))
    kept = path / artifacts.CATEGORIES
    return load_table(kept) if path.is_dir() and kept.is_file() else load_table()
