"""Advice: a short ranked list of findings, each with its line of the model, its share of the time, and what to do next.

A rule looks for evidence in the run and says nothing without it. Rules stand in the order in which they may claim
operators, the particular before the general: what one finding is about, no later one counts again. Nothing is
predicted: a gain is one that this run measured.
"""

from model_profiling.analysis.advice import compute, layout, llm, portable, startup, threads
from model_profiling.analysis.advice.finding import Evidence as Evidence
from model_profiling.analysis.advice.finding import Finding as Finding
from model_profiling.analysis.advice.finding import FindingKind, Rule, by_flag

# Below this share of the time a finding is not worth a reader's attention.
LEAST_SHARE = 0.01
_MOST_FINDINGS = 8

_RULES: tuple[Rule, ...] = (
    portable.no_delegate,
    llm.head_of_all_tokens,
    llm.plain_attention,
    portable.rewrites,
    portable.conversions,
    portable.portable_operators,
    layout.undone_transposes,
    layout.border_layout,
    compute.fp16_in_fp32,
    layout.layout_changes,
    compute.not_accelerated,
    compute.compute_in_fp32,
    llm.decode_runtime,
    compute.runtime_overhead,
    threads.thread_count,
    threads.slower_with_threads,
)

# What costs no time of an inference: growth will end the process one day and comes first, the rest comes last.
FIRST: tuple[Rule, ...] = (startup.memory_growth,)
LAST: tuple[Rule, ...] = (
    llm.weights_without_sme2,
    llm.decode_is_memory_bound,
    llm.attention_grows,
    startup.first_inference_memory,
    startup.peak_memory,
    startup.packing,
    startup.slow_first_inference,
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
            least_ms = finding.ms - evidence.error_ms(finding.instances)
            if least_ms >= LEAST_SHARE * whole and not evidence.claimed & set(finding.instances):
                evidence.claimed.update(finding.instances)
                found.append(finding)
    gains = sorted(found, key=_rank)[:_MOST_FINDINGS]
    first, last = ([finding for rule in rules for finding in rule(evidence)] for rules in (FIRST, LAST))
    return [*first, *gains, *last]


def _rank(finding: Finding) -> tuple[bool, float, bool, float]:
    """Return the sort key: flags before redesigns, then by measured gain; else causes before another dtype, which only
    a measurement tells of, and each by the time it is about."""
    other_dtype = finding.rule == FindingKind.COMPUTE_IN_FP32
    return not by_flag(finding), -(finding.gain or 1.0), other_dtype, -finding.share
