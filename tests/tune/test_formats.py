"""Weight formats of a language model, held against each other: stored programs stand for formats here."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.analysis.llm.phases import PhaseMetrics
from model_profiling.base.files import sha256
from model_profiling.base.files import write_json as write
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.pipeline.schedule import Counts
from model_profiling.platforms.process_platform import LocalPlatform
from model_profiling.store.artifacts import (
    Delegation,
    ExportMeta,
    ExportPaths,
    ExportRecord,
    RequestRecord,
    SequenceRecord,
)
from model_profiling.tune.bench import Bench, TuneRequest
from model_profiling.tune.formats import kl_divergence, pareto, results
from model_profiling.tune.tune_report import document
from model_profiling.tune.tune_result import FormatResult, TriedPhase, TriedVariant, TuneResult
from tests.helpers.llm_programs import CONTEXT, eager, stored, tokens
from tests.helpers.screens import flat, shown


def made(form: str, home: Path) -> ExportResult:
    """A stored program as if it had been exported: with its tokens, and what eager answers to some of them."""
    home.mkdir(parents=True)
    paths = ExportPaths(home / "tiny_xnnpack_fp32.pte")
    shutil.copy(stored(form), paths.pte)
    np.save(home / "tokens.npy", tokens())
    # What a program of this context is asked for: prefill of 95 tokens, and decode up to the last one.
    places = {index: f"logits_{index}.npy" for index in (CONTEXT - 2,)}
    for index, file in places.items():
        np.save(home / file, eager(index))
    record = ExportRecord(
        model="tiny",
        source="kit",
        dtype="fp32",
        backend="xnnpack",
        memory_format="contiguous",
        seed=0,
        weights="random",
        inputs=[],
        outputs=[],
        delegation=Delegation(0, 0, 0, []),
        versions={},
        files={paths.pte.name: sha256(paths.pte)},
        stage_seconds={},
        created="",
        request=RequestRecord("registry", "tiny", "", ""),
        sequence=SequenceRecord("tokens.npy", {str(index): file for index, file in places.items()}),
    )
    write(paths.meta, ExportMeta(exports={paths.stem: record}))
    return ExportResult(paths, record)


def bench(home: Path) -> Bench:
    """Attention in an operator of its own, which is the baseline, and from parts, to be measured."""
    np.save(home / "text.npy", tokens())
    counts = Counts(runs=12, launches=6)
    asked = TuneRequest(ExportRequest("tiny", home / "home", "fp32"), counts=counts, text=home / "text.npy")
    made_before = {name: made(form, home / form) for name, form in (("fp32", "custom"), ("plain", "plain"))}
    return Bench(asked, LocalPlatform(), lambda _: made_before["fp32"], lambda *_: None, str, made_before)


def test_formats_are_measured_by_phase_and_held_against_eager(tmp_path: Path) -> None:
    asked = bench(tmp_path)
    found = results(asked)
    for result in found.values():
        assert [phase.metrics.kind for phase in result.phases] == ["prefill", "decode"]
        prefill = result.phases[0]
        assert prefill.agreement is not None and prefill.agreement.verdict == "agrees"
        assert prefill.kl_divergence is not None and prefill.kl_divergence < 1e-6
        assert result.peak_bytes and result.sme2_share == 1.0
    assert found["fp32"].perplexity == pytest.approx(found["plain"].perplexity, rel=1e-3)
    assert found["plain"].phases[1].comparison is not None
    # What is measured is not measured again.
    again = results(asked)
    assert [r.phases[0].metrics for r in again.values()] == [r.phases[0].metrics for r in found.values()]


def test_what_changed_between_two_formats_is_traced_once(tmp_path: Path) -> None:
    told: list[str] = []
    asked = replace(bench(tmp_path), report=lambda done, *_: told.append(done))
    found = asked.changes("plain")
    assert found is not None and (found.before, found.after) == ("fp32", "plain") and found.low_ms is not None
    assert sum(part.difference_ms for part in found.parts) == pytest.approx(found.difference_ms)
    assert len(found.parts) <= 6 and found.different and [cost.step for cost in asked.costs] == ["trace"]
    told.clear()
    assert asked.changes("plain") == found and not told


@given(st.dictionaries(st.text(max_size=3), st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_what_is_kept_is_beaten_by_none(qualities: dict[str, tuple[float, ...]]) -> None:
    kept = pareto(qualities)
    assert kept
    for name, mine in qualities.items():
        beaten = any(
            other != mine and all(a >= b for a, b in zip(other, mine, strict=True)) for other in qualities.values()
        )
        assert (name in kept) != beaten


def test_divergence_is_zero_of_itself_and_unknown_of_no_numbers() -> None:
    logits = np.array([1.0, 2.0, -300.0], np.float32)
    assert kl_divergence(logits, logits) == 0.0
    assert kl_divergence(logits, logits + 5) == pytest.approx(0.0, abs=1e-12)
    assert (kl_divergence(logits, logits[::-1]) or 0) > 1
    assert kl_divergence(logits, np.array([np.nan, 1, 2], np.float32)) is None


def test_the_table_names_every_format_with_what_it_is_good_at() -> None:
    def tried(name: str, rate: float, divergence: float, share: float, pareto: bool) -> TriedVariant:
        phase = PhaseMetrics("tg32@d128", "decode", 32, 128, tpot_ms=1000 / rate, decode_token_per_sec=rate)
        found = FormatResult([TriedPhase(phase, kl_divergence=divergence)], 1 << 20, 2 << 20, share, 17.25, pareto)
        return TriedVariant(name, "", f"sme2-kit export m --dtype {name}", 1000 / rate, dtype=name, format=found)

    formats = [tried("int4", 90.0, 0.5, 0.0, True), tried("fp32", 30.0, 0.0, 1.0, True)]
    failed = TriedVariant("fp16", "", "", failure="no such thing")
    text = flat(shown(document(TuneResult("m", "fp32", "linux", [*formats, failed], "int4"))))
    assert "90.0" in text and "17.25" in text and "100%" in text and "0%" in text
    assert "fp16: no such thing" in text
    assert "Keep int4 sme2-kit export m --dtype int4" in text
