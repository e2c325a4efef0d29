"""The user's own metric: what it says of a program that the kit's runner executes, and how sure that is."""

import contextlib
import functools
import hashlib
import io
import itertools
import math
import pickle
import reprlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np

from model_profiling.analysis.compare.comparison import DropVerdict, MetricChange, MetricValue
from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError, shortly
from model_profiling.base.file_memo import program_sha256
from model_profiling.base.on_progress import OnProgress, say_note
from model_profiling.base.units import counted
from model_profiling.export.check.prediction import Forward, predicting, predicting_eagerly
from model_profiling.export.prepare.samples import npy_bytes
from model_profiling.export.quiet import kept_off_terminal
from model_profiling.export.request import ExportResult
from model_profiling.models.failures import own_line
from model_profiling.models.loading import LoadedModel
from model_profiling.models.lookup import file_target
from model_profiling.models.user_file import contained, import_file
from model_profiling.pipeline.manifest_records import clear_directory
from model_profiling.platforms.base import Platform
from model_profiling.platforms.process_platform import LocalPlatform, ProcessPlatform
from model_profiling.tune.bench import Bench
from model_profiling.tune.tune_result import MetricSummary
from model_profiling.upstream.captured_graphs import leaves

MOST_SAMPLES = 10_000
# Samples are drawn anew so often for an interval, as far as the seconds last; the least has more of them, since without
# an interval a drop may be luck.
_RESAMPLES, _LEAST_RESAMPLES, _RESAMPLING_S, _LEAST_RESAMPLING_S = 200, 20, 5.0, 30.0
# How many samples set the ranges of int8, at most a quarter of all; and from how many on the others alone judge.
_CALIBRATING, _ENOUGH = 32, 40
_AGAIN = "Correct it, and start again: what is finished is kept."


class Metric:
    """`score(predict, samples)`, both in memory or in files. Failures of the user's code become errors of the kit, and
    what it prints goes to `log`, if there is one."""

    def __init__(self, score: Any, data: Any, log: Path | None, max_drop: float, lower_is_better: bool) -> None:
        self.max_drop, self.lower_is_better = max_drop, lower_is_better
        self._log, self._printed = log, ""
        # Both may be of one file, which is run once.
        imported = functools.cache(import_file)
        self._file = Path(str(score).rpartition(":")[0]).expanduser() if isinstance(score, (str, Path)) else None
        self.name = str(score) if self._file else getattr(score, "__name__", type(score).__name__)
        with self._running(self.name):
            self._score = _named(score, imported)
        with self._running(f"reading {data}" if isinstance(data, (str, Path)) else "reading the data"):
            self.samples = _samples(data, imported)
        if not callable(self._score):
            raise InputError(f"{self.name} is not a function", "Name one that takes both: score(predict, data).")
        if len(self.samples) > MOST_SAMPLES:
            say_note(f"there are more than {MOST_SAMPLES:,} samples: the first of them judge")
        self.samples = self.samples[:MOST_SAMPLES]
        if len(self.samples) < 2:
            raise InputError(f"there are {len(self.samples)} samples to judge by", "Give at least a few dozen.")

    def __call__(self, predict: Callable[..., Any], samples: list[Any]) -> float:
        with self._running(self.name):
            # A copy, since some take samples from the list.
            value, number = self._score(predict, [*samples]), math.nan
            with contextlib.suppress(TypeError, ValueError, OverflowError, RuntimeError):
                number = float(value)
            said = reprlib.repr(value)[:100]
        if not math.isfinite(number):
            raise InputError(f"{self.name} returned {said}, which is not a finite number", _AGAIN)
        return number

    @contextlib.contextmanager
    def _running(self, what: str) -> Iterator[None]:
        told = bool(self._printed)
        try:
            with contained(), kept_off_terminal(False) as said:
                yield
        except KitError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"{what} failed{own_line(error)}: {shortly(error)}", _AGAIN) from error
        finally:
            self._printed += said.getvalue()
            if self._printed and not told:
                where = ""
                if self._log is not None:
                    files.write_text(self._log, self._printed)
                    where = f"; see {self._log}"
                say_note(f"{what} prints: {self._printed.strip().splitlines()[0][:100]}{where}")

    def identity(self) -> str:
        """Return a hash of the metric's file and of the samples; '' where nobody can tell whether they changed."""
        if self._file is None:
            return ""
        digest = hashlib.sha256(files.sha256(self._file).encode())
        try:
            for leaf in leaves(self.samples):
                # Of a tensor the pickle would hold all that it is a part of.
                array = np.ascontiguousarray(leaf) if hasattr(leaf, "__array__") else None
                digest.update(pickle.dumps(leaf if array is None else array))
        except (pickle.PicklingError, TypeError, AttributeError, ValueError, RuntimeError):
            return ""
        return digest.hexdigest()


def _named(given: Any, imported: Callable[[Path], ModuleType]) -> Any:
    """Return what `path/to/eval.py:NAME` means, or what is in memory already."""
    if not isinstance(given, (str, Path)):
        return given
    if (target := file_target(str(given))) is None:
        raise InputError(f"{given} is not a name in a Python file", "Write path/to/eval.py:NAME.")
    return getattr(imported(target.path.resolve()), target.attribute)


def _samples(data: Any, imported: Callable[[Path], ModuleType]) -> list[Any]:
    """Return the samples of an iterable, a function that returns one, a name of such in a file, or a folder of .npz."""
    if isinstance(data, (str, Path)) and Path(data).is_dir():
        paths = sorted(Path(data).glob("*.npz"))[: MOST_SAMPLES + 1]
        return [dict(np.load(io.BytesIO(files.read_bytes(path, "sample")), allow_pickle=False)) for path in paths]
    found = _named(data, imported)
    return list(itertools.islice(found() if callable(found) else found, MOST_SAMPLES + 1))


class Scores(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the metric says of one program: of all samples, and of samples drawn anew (None: it fails there)."""

    value: float | None
    resampled: list[float | None] = []
    failure: str = ""


class Scorer:
    """Says what a metric is of programs, each in one process of the runner on this machine."""

    def __init__(
        self,
        metric: Metric,
        load: Callable[[], LoadedModel],
        threads: int,
        platform: Platform,
        home: Path,
        report: OnProgress,
    ) -> None:
        self.metric, self._threads, self._home, self._report = metric, threads, home, report
        self._platform = platform if isinstance(platform, ProcessPlatform) else LocalPlatform()
        with kept_off_terminal(False):
            self.forward = Forward(load())

    def scores(self, made: ExportResult | None, name: str, samples: list[Any], draws: int | None = None) -> Scores:
        """Score a program, or eager PyTorch; samples are drawn anew as often as there is time for, if `draws` does not
        say how often."""
        with self.predicting(made, f"metric of {name}", len(samples)) as predict:
            value = self.metric(predict, samples)
            count = self._affordable(predict, value, samples) if draws is None else draws
            resampled: list[float | None] = []
            for number in range(count):
                self._report(f"interval of {name}", number, count)
                # With replacement, and the same ones for all programs.
                drawn = np.random.default_rng(number).integers(len(samples), size=len(samples))
                try:
                    resampled.append(self.metric(predict, [samples[index] for index in drawn]))
                except InputError:
                    resampled.append(None)  # of a class there may be no sample
            return Scores(value, resampled)

    def change(self, before: Scores, own: Scores) -> MetricValue:
        """Hold a program against another on the same samples."""
        if before.value is None or own.value is None:
            return MetricValue(None, verdict="beyond", failure=own.failure)
        sign, most = -1 if self.metric.lower_is_better else 1, self.metric.max_drop + 1e-12
        drop = sign * (before.value - own.value) + 0.0  # not -0
        pairs = zip(before.resampled, own.resampled, strict=False)
        drops = [sign * (a - b) for a, b in pairs if a is not None and b is not None]
        if len(drops) < _LEAST_RESAMPLES:
            return MetricValue(own.value, drop, verdict="within" if drop <= most else "beyond")
        low, high = np.percentile(drops, [2.5, 97.5]).tolist()
        verdict: DropVerdict = "within" if high <= most else "beyond" if low > most else "not told"
        return MetricValue(own.value, drop, low, high, verdict)

    def compared(self, before: ExportResult | None, after: ExportResult) -> MetricChange:
        """Score two programs, or one beside eager PyTorch, on all samples."""
        samples, metric = self.metric.samples, self.metric
        first = self.scores(before, before.paths.stem if before is not None else "eager PyTorch", samples)
        assert first.value is not None
        second = self.scores(after, after.paths.stem, samples, len(first.resampled))
        found = self.change(first, second)
        if before is None:  # nobody said by how much it may be worse than eager
            found = msgspec.structs.replace(found, verdict="")
        return MetricChange(metric.name, len(samples), metric.lower_is_better, first.value, found)

    def _affordable(self, predict: Callable[..., Any], value: float, samples: list[Any]) -> int:
        """Return how often samples can be drawn anew; a metric that says something else the second time is refused."""
        started = time.monotonic()
        if (again := self.metric(predict, samples)) != value:
            raise InputError(
                f"{self.metric.name} is not deterministic: {value:g}, then {again:g} of the same program and samples",
                "Let it draw no random numbers, or seed them anew in each call (torch.manual_seed).",
            )
        took = time.monotonic() - started
        if took * _LEAST_RESAMPLES <= _LEAST_RESAMPLING_S:
            return min(_RESAMPLES, max(_LEAST_RESAMPLES, int(_RESAMPLING_S / max(took, 1e-6))))
        say_note(f"{self.metric.name} takes {took:.1f} s without the program: its values have no interval")
        return 0

    def predicting(
        self, made: ExportResult | None, label: str, total: int
    ) -> contextlib.AbstractContextManager[Callable[..., Any]]:
        if made is None:
            return predicting_eagerly(self.forward)
        how = made, self._platform, self._threads, self._home / "metric.log"
        return predicting(self.forward, *how, lambda count: self._report(label, min(count, total), total))


class Judge:
    """Says of exports what the metric is, and keeps what is known."""

    def __init__(self, metric: Metric, bench: Bench, load: Callable[[], LoadedModel]) -> None:
        self.bench, self._metric, self._base = bench, metric, bench.base.name
        self._scorer = Scorer(metric, load, bench.request.threads, bench.platform, bench.home, bench.report)
        given, count = bench.request.base.calibration is not None, len(metric.samples)
        self._apart = given or count >= _ENOUGH
        order = np.random.default_rng(0).permutation(count).tolist()
        self._calibrating = [] if given else order[: min(_CALIBRATING, count // 4 if self._apart else count)]
        others = self._calibrating if self._apart else []
        self._samples = [sample for index, sample in enumerate(metric.samples) if index not in others]
        # By the hash of the metric and its samples, and that of the .pte.
        self._path, self._identity = bench.home / "metric.json", metric.identity()
        self._scores: dict[str, Scores] = {}
        with contextlib.suppress(InputError):
            if self._identity and not bench.request.force:
                self._scores = files.read_json(self._path, dict[str, Scores], "scores")

    def begin(self) -> None:
        """Judge the baseline, and have programs calibrated on samples that do not judge, if there are enough."""
        self.scores(self._base)
        if not self._apart:
            say_note(f"only {counted(len(self._samples), 'sample')}: int8 is calibrated on those that judge it")
        if not self._calibrating:
            return
        folder, asked = self.bench.home / "calibration", list[Any]()
        base = self.bench.made[self._base]
        with self._scorer.predicting(base, "calibration", len(self._samples)) as predict:

            def noted(*inputs: Any, **keywords: Any) -> Any:
                asked.append(self._scorer.forward.tensors(inputs, keywords))
                return predict(*inputs, **keywords)

            self._metric(noted, [self._metric.samples[index] for index in self._calibrating])
        clear_directory(folder)
        for number, tensors in enumerate(asked):
            for index, tensor in enumerate(tensors):
                files.write_bytes(folder / f"{number:04}" / f"input_{index}.npy", npy_bytes(tensor), durable=False)
        request = self.bench.request
        self.bench.request = replace(request, base=replace(request.base, calibration=folder))

    def summary(self) -> MetricSummary:
        metric, used = self._metric, len(self.scores(self._base).resampled)
        drop = metric.max_drop, metric.lower_is_better
        return MetricSummary(metric.name, len(self._samples), *drop, len(self._calibrating), self._apart, used)

    def value(self, name: str) -> MetricValue:
        """Return what the metric says of an export, held against the baseline on the same samples."""
        if name in self.bench.failures:
            return MetricValue(None, verdict="beyond", failure=self.bench.failures[name])
        return self._scorer.change(self.scores(self._base), self.scores(name))

    def scores(self, name: str) -> Scores:
        name = self.bench.same_as.get(name, name)
        key = f"{self._identity} {len(self._samples)} {program_sha256(self.bench.made[name].paths.pte)}"
        if key not in self._scores:
            draws = None if name == self._base else len(self.scores(self._base).resampled)
            try:
                self._scores[key] = self._scorer.scores(self.bench.made[name], name, self._samples, draws)
            except KitError as error:
                if name == self._base:
                    raise
                self._scores[key] = Scores(None, failure=error.message)
            # What failed once, for want of memory or space, may do another time.
            files.write_json(self._path, {key: each for key, each in self._scores.items() if each.value is not None})
        return self._scores[key]
