"""The numbers that people know of language models, by phase: time to the first token, tokens per second."""

import msgspec

from model_profiling.analysis.timing.latency import Latency
from model_profiling.store.run_directory import Phase, PhaseKind

# What the numbers leave out, said wherever they are shown.
LEFT_OUT = "of a warm process, without tokenizer and sampling"


class PhaseMetrics(msgspec.Struct, frozen=True):
    """One phase of a language model; what it does not measure is None.

    `ttft_ms` is how long a prompt of `tokens` tokens takes until the first token can be sampled. `tpot_ms` is the time
    for each token after it, with its 95th percentile. Tokens per second are from medians.
    """

    label: str
    kind: PhaseKind
    tokens: int
    depth: int
    ttft_ms: float | None = None
    prefill_token_per_sec: float | None = None
    tpot_ms: float | None = None
    tpot_p95_ms: float | None = None
    decode_token_per_sec: float | None = None

    @property
    def token_per_sec(self) -> float | None:
        return self.prefill_token_per_sec if self.kind == "prefill" else self.decode_token_per_sec


def phase_metrics(phase: Phase | None, latency: Latency | None) -> PhaseMetrics | None:
    if phase is None:
        return None
    known = PhaseMetrics(phase.label, phase.kind, phase.tokens, phase.depth)
    if latency is None:
        return known
    rate = phase.tokens_read * 1000 / latency.median_ms
    if phase.kind == "prefill":
        # After tokens that were read before, it is not the first token that is waited for.
        first = latency.median_ms if not phase.depth else None
        return msgspec.structs.replace(known, ttft_ms=first, prefill_token_per_sec=rate)
    return msgspec.structs.replace(
        known, tpot_ms=latency.median_ms, tpot_p95_ms=latency.p95_ms, decode_token_per_sec=rate
    )


class DepthCost(msgspec.Struct, frozen=True):
    """What one token costs after `depth` others: attention with its cache, and the whole."""

    depth: int
    attention_ms: float
    execute_ms: float
