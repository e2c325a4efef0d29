"""Advice: a short ranked list of findings, each with its evidence, what it would gain, and what to do next.

A rule looks for evidence in the run and says nothing without it. Rules stand in the order in which they may claim
operators, the particular before the general: what one finding is about, no later one counts again. Only findings of
kinds whose predictions were held against measurement have a gain; docs/advice.md has the record.
"""

from model_profiling.analysis import (
    advice_compute,
    advice_layout,
    advice_llm,
    advice_portable,
    advice_rewrites,
    advice_roof,
    advice_startup,
    advice_threads,
)
from model_profiling.analysis.finding import LEAST_GAIN, Rule, by_flag
from model_profiling.analysis.finding import Evidence as Evidence
from model_profiling.analysis.finding import Finding as Finding

# Below this share of the time a finding is not worth a reader's attention.
LEAST_SHARE = 0.01
_MOST_FINDINGS = 8

_RULES: tuple[Rule, ...] = (
    advice_portable.no_delegate,
    advice_llm.head_of_all_tokens,
    advice_llm.plain_attention,
    advice_rewrites.rewrites,
    advice_portable.conversions,
    advice_portable.portable_operators,
    advice_layout.undone_transposes,
    advice_layout.border_layout,
    advice_compute.fp16_in_fp32,
    advice_layout.layout_changes,
    advice_compute.not_accelerated,
    advice_compute.compute_in_fp32,
    advice_roof.below_roof,
    advice_llm.decode_runtime,
    advice_compute.runtime_overhead,
    advice_threads.thread_count,
    advice_threads.slower_with_threads,
)


# What costs no time of an inference: growth will end the process one day and comes first, the rest comes last.
FIRST: tuple[Rule, ...] = (advice_startup.memory_growth,)
LAST: tuple[Rule, ...] = (
    advice_llm.weights_without_sme2,
    advice_llm.decode_is_memory_bound,
    advice_llm.attention_grows,
    advice_startup.first_inference_memory,
    advice_startup.peak_memory,
    advice_startup.packing,
    advice_startup.slow_first_inference,
)


def advise(evidence: Evidence) -> list[Finding]:
    """Apply all rules and keep the findings that matter most; without times there is nothing to gain."""
    whole = evidence.breakdown.execute_ms
    if not whole:
        return []
    found = []
    for rule in _RULES:
        for finding in rule(evidence):
            # A rule goes on only after its last finding has claimed what it is about.
            worth = finding.gain is None or finding.gain >= LEAST_GAIN
            least_ms = finding.ms - evidence.error_ms(finding.instances)
            if worth and least_ms >= LEAST_SHARE * whole and not evidence.claimed & set(finding.instances):
                evidence.claimed.update(finding.instances)
                found.append(finding)
    gains = sorted(found, key=_rank)[:_MOST_FINDINGS]
    first, last = ([finding for rule in rules for finding in rule(evidence)] for rules in (FIRST, LAST))
    return [*first, *gains, *last]


def _rank(finding: Finding) -> tuple[bool, float, float]:
    """What a flag can do before what only a redesign can, then by gain; without a number by the time it is about."""
    return not by_flag(finding), -(finding.gain or 1.0), -finding.share
