"""The first screen of a run: what SME2 does for the model, what makes it faster, where the time goes, this CPU."""

import re
from collections.abc import Sequence
from pathlib import Path

from model_profiling.analysis.advice.finding import Finding
from model_profiling.analysis.compare.comparison import AutoComparison
from model_profiling.analysis.run.experiment_labels import other_executorch, switched_features
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.sme2.coverage import Coverage
from model_profiling.analysis.sme2.forecast_record import NoKernel, Sme2Answer
from model_profiling.analysis.timing.breakdown import Breakdown, file_line
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.installation import relative_to_here
from model_profiling.base.rewrites import AUTO
from model_profiling.base.units import counted
from model_profiling.report import numbers
from model_profiling.report.blocks import AdviceBlock, Fact, Number, Report, Row, Table, plain_rows
from model_profiling.report.change_words import largest_sentence, what_changed
from model_profiling.report.content import runtimes, structure, threads
from model_profiling.report.content.method import cpu, measuring_command
from model_profiling.report.content.roofline import at_the_roof
from model_profiling.report.kernel_view import detailed_experiments, kernel_rows, table_alerts
from model_profiling.report.words import agreement_sentence, bounded_factor, kernels_sentence, predicted_factor, source
from model_profiling.runner.features import feature_label, meaning

MOST_FINDINGS = 3
_MOST_WITHOUT = 4
# What the categories of operators are called where there is room for words.
CATEGORY_WORDS = {"CONV": "Convolution", "GEMM": "Matrix multiply", "Data Movement": "Data movement"}
# One operator that takes this part of a category is what the category is called after.
_MOST_OF_IT = 0.8
_UNKNOWN = "not known"


def title(run: RunView) -> str:
    """Return `toy_cnn, fp16`, and whether it is all of a run."""
    export = run.manifest.model.export
    partial = ["partial run"] if any(record.partial for record in run.manifest.experiments.values()) else []
    return ", ".join([export.model if export else run.summary.model, run.manifest.model.dtype_words, *partial])


def report(run: RunView) -> Report:
    """Return what a command shows of a run: the result, without the sections that say more."""
    export = run.manifest.model.export
    wrong = bool(run.wrong) or (export is not None and bool(export.remedy))
    return Report(title(run), subtitle(run), alerts=alerts(run), opening=opening(run), wrong=wrong)


def short_cpu(run: RunView) -> str:
    """Return the CPU without what is in every CPU's name."""
    return " ".join(re.sub(r"\((R|TM)\)|\bProcessor\b|\bCPU\b|@.*", " ", cpu(run)).split()) or cpu(run)


def subtitle(run: RunView) -> str:
    """Return where it ran, and what that means for what is said of SME2."""
    if not run.measured:
        lack = "" if has_sme2(run) else " without SME2"
        return f"on {short_cpu(run)}, emulated{lack}: operators, kernels and outputs are real, times are left out"
    predicted = run.sme2 and not has_sme2(run)
    return f"on {short_cpu(run)}{' (no SME2 here: SME2 figures are predictions)' if predicted else ''}"


def has_sme2(run: RunView) -> bool:
    records = run.manifest.experiments.values()
    return any(record.features is not None and "sme2" in record.features.active for record in records)


def legend(run: RunView) -> str:
    """Return what the switched feature is, for those who do not know its name."""
    features = [f for c in run.summary.comparisons[:1] for f in switched_features(run.manifest, c.before, c.after)]
    return " ".join(f"{feature_label(feature)}: {meaning(feature)}." for feature in features if meaning(feature))


def alerts(run: RunView) -> list[str]:
    """Return what failed, is only a part or cannot be relied on, before anything is read."""
    records = run.manifest.experiments
    found = [f"WRONG: {run.labelled(agreement_sentence(each))}." for each in run.wrong]
    export = run.manifest.model.export
    found += [f"WRONG as asked for: {export.remedy}."] if export is not None and export.remedy else []
    found += [_busy(run)] if run.busy else []
    found += [f"{run.label(name)} failed: {r.failure or r.status}." for name, r in records.items() if r.status != "ok"]
    found += [f"Partial: {run.label(name)} has {record.partial}." for name, record in records.items() if record.partial]
    if not run.shown:
        found.append("No experiment finished: there is nothing to report.")
    checked = export.verification if export is not None else None
    if checked is not None and checked.status == "verified" and not checked.verdict:
        found.append(f"The outputs are not tested: {checked.reason}.")
    if export is not None and dtype_of(export.dtype).calibrated and export.calibration is None:
        found.append("Calibrated on random data: for timing only, outputs are not meaningful (--calibration DIR).")
    return found


def _busy(run: RunView) -> str:
    """Say that the machine was busy, what the times are then, and how to measure again."""
    # What a busy machine measured is not reused, so that it needs no --force, which would export again.
    again = measuring_command(run.manifest)
    kept = all(not experiment.breakdown.unreliable for experiment in run.summary.experiments.values())
    basis = "Times are of undisturbed execution" if kept else "Latency and speedup are not known"
    return (
        f"The machine was busy: other processes preempted {run.busy * 100:.0f} % of the executions. {basis}. "
        f"Measure again{f': {again}' if again else '.'}"
    )


def opening(run: RunView) -> list[list[Fact | Table]]:
    """Return the groups of facts; of an emulated run nothing that speaks of time."""
    if not run.shown or not run.measured:
        return _emulated(run) if run.shown else []
    gains = [(run.phase(each.experiment), _gain(run, each)) for each in run.sme2]
    sme2: list[Fact | Table] = [*_phased("SME2", gains, card=True), *_coverage(run.sme2, run)]
    scaling = _listed("Threads", [(each,) for each in threads.sentences(run)]) if not run.busy else []
    others: list[Fact | Table] = [*_this_cpu(run), *_versions(run), *scaling, *_runtimes(run)]
    return [sme2, [*_faster(run)], [*where_the_time_goes(run)], others]


# A number, or the lack of one, and what to know of it.
_Said = tuple[str, str]


def _phased(label: str, said: list[tuple[str, _Said]], card: bool = False) -> list[Fact]:
    """Return one fact, of a language model with a row for each phase."""
    if len(said) > 1:
        return [Fact(label, rows=[(phase, " ".join(filter(None, each))) for phase, each in said], card=card)]
    return [Fact(label, *each, card=card) for _, each in said]


def _gain(run: RunView, answer: Sme2Answer) -> _Said:
    """Return what SME2 gains, measured or else predicted, or why nobody knows."""
    if answer.measured is not None:
        value, note = bounded_factor(run.told(answer.measured))
        return f"{value},", f"measured {note}"
    forecast = answer.forecast
    if not answer.eligible:
        return "changes nothing", "(the model has no CONV or GEMM operators)"
    if forecast is None:
        return _UNKNOWN, f"({answer.unknown or answer.no_forecast})"
    if not forecast.on_sme2:
        return "changes nothing", "(no operator has an SME2 kernel)"
    return predicted_factor(forecast)


def _coverage(answers: list[Sme2Answer], run: RunView) -> list[Fact]:
    """Return how much has SME2 kernels, and what has none and why; phases of one program mostly have the same."""
    known = [each for each in answers if each.eligible and each.on_sme2 is not None]
    if not known:
        return []
    rows = list(dict.fromkeys(_without(group, run, each) for each in known for group in each.without))
    more = len(rows) - _MOST_WITHOUT
    shown = rows[:_MOST_WITHOUT] + ([(f"and {more} more",)] if more > 0 else [])
    return [Fact("Coverage", *_covered(known[0], known[0].not_known), rows=shown, row_label="without", card=True)]


def _covered(covered: Sme2Answer | Coverage, not_known: int = 0) -> _Said:
    """Return which part of the work, or of the operators, has SME2 kernels."""
    operators, unknown = f"{covered.on_sme2} of {covered.eligible}", f", {not_known} not known" if not_known else ""
    if not covered.work or covered.work_on_sme2 is None:
        return operators, f"CONV and GEMM operators{unknown}"
    part = f"{'at least ' if not_known else ''}{covered.work_on_sme2 / covered.work * 100:.0f} %"
    return part, f"of the multiply-accumulates, {operators} CONV and GEMM operators{unknown}"


def _without(group: NoKernel, run: RunView, answer: Sme2Answer) -> tuple[str, ...]:
    """Return what has no kernel, where, how long it takes and why, or what would give it one."""
    file, _, line = group.source.rpartition(":")
    instances = run.summary.experiments[answer.experiment].breakdown.instances
    entry = next((each for each in instances if each.name in group.names), None)
    name = (entry.module.rpartition(".")[2] or entry.kind) if entry is not None else group.names[0]
    why = (group.why.partition(": ")[2] or group.why).partition(" (")[0]  # the report has the rest
    several = f"{group.operators} x " if group.operators > 1 else ""
    said = f"{group.change} has one" if group.change else why if group.level != "unknown" else f"not known: {why}"
    return (f"{several}{name}", file_line(file, int(line)) if file else "", f"{group.share * 100:.0f} %", said)


def _faster(run: RunView) -> list[Fact]:
    """Return the better program that was measured; else what to try, or that nothing is known to try."""
    found = run.auto
    if found is not None and found.pairs:
        return [_better(run, found)]
    tried = f"--rewrite {AUTO} {found.reason}" if found is not None and found.reason else ""
    rows = _titles(run)
    if not rows and not tried:
        return [Fact("Faster", note=said)] if (said := nothing_to_do(run)) else []
    return [Fact("Faster", note=tried, rows=rows)]


def _titles(run: RunView) -> list[tuple[str, ...]]:
    return [(each.title,) for _, each in _top(run)]


def _better(run: RunView, found: AutoComparison) -> Fact:
    told = [pair.told for pair in found.pairs]
    faster = [each for each in told if each.verdict == "faster" and each.reliable]
    outputs = {True: ", outputs agree", False: ", but outputs differ from eager PyTorch's", None: ""}
    lead, said = f"--rewrite {AUTO}", [bounded_factor(each) for each in told]
    if not faster:
        return Fact("Faster", *said[0], lead, _titles(run))
    value, note = max(zip(told, said, strict=True), key=lambda pair: pair[0].ratio)[1]
    others = "; ".join(" ".join(each) for each in said if each != (value, note))
    rows = _lines_changed(run, found)
    # One that computes something else is none to use.
    rows += [(str(relative_to_here(Path(found.pte))),)] if found.outputs_agree is not False else []
    note += f", measured{outputs[found.outputs_agree]}{f' ({others})' if others else ''}"
    return Fact("Faster", value.removesuffix(" faster"), note, lead, rows, card=True)


def _lines_changed(run: RunView, found: AutoComparison) -> list[tuple[str, ...]]:
    """Return the line that gained most, with what was wrong there as far as a finding has it."""
    changes = found.pairs[0].changes
    gained = [part for part in changes.told if part.difference_ms < 0 and part.source_line] if changes else []
    if not gained:
        return []
    part = min(gained, key=lambda each: each.difference_ms)
    for _, finding in _every(run):
        place, _, said = finding.title.partition(": ")
        if place == part.source_line:
            return [(place, said.rpartition(": ")[0].replace(" runs ", " ran "))]
    return [(part.source_line, what_changed(part))]


def where_the_time_goes(run: RunView) -> list[Table]:
    """Return shares of the time, now and with SME2, or off and on where SME2 was switched; of a language model in each
    phase; nothing of times that cannot be relied on."""

    def shares_of(name: str) -> dict[str, float]:
        return {entry.category: entry.share for entry in run.summary.experiments[name].breakdown.categories}

    columns: list[tuple[str, dict[str, float]]] = []
    first: Breakdown | None = None
    for name in run.first_of_phases or run.shown[:1]:
        answer = next((each for each in run.sme2 if run.phase(each.experiment) == run.phase(name)), None)
        shown = answer.experiment if answer is not None else name
        breakdown = run.summary.experiments[shown].breakdown
        if breakdown.unreliable:
            continue
        phase = f"{run.phase(name)}, " if len(run.first_of_phases) > 1 else ""
        first = first or breakdown
        if answer is not None and answer.measured is not None:
            pair = (answer.measured.before, answer.measured.after)
            columns += [(f"{phase}{side}", shares_of(one)) for side, one in zip(run.sides(*pair), pair, strict=True)]
            continue
        columns.append((f"{phase}now", shares_of(shown)))
        if answer is not None and answer.forecast is not None and answer.forecast.on_sme2:
            stages = {"with SME2": answer.forecast.predictions[-1]}
            if answer.forecast.basis == "modelled":  # of the target, not of this CPU: it is compared with its own
                stages = {"without SME2": answer.forecast.without or answer.forecast.now, **stages}
            columns += [(f"{phase}{of}", {str(k): v for k, v in at.shares.items()}) for of, at in stages.items()]
    if not columns or first is None:
        return []
    rows: list[Row] = []
    for name in sorted(first.ms_by_category, key=lambda name: -columns[0][1].get(name, 0.0)):
        shares = [of.get(name, 0.0) for _, of in columns]
        if max(shares) >= 0.005:
            rows.append((_category(first, name), *(Number(f"{share * 100:.0f} %", share) for share in shares)))
    return [Table("glance", ("Where the time goes", *(label for label, _ in columns)), rows)]


def _category(breakdown: Breakdown, name: str) -> str:
    """Return a category in words; one that is nearly one operator by that."""
    if name != "Other":
        return CATEGORY_WORDS.get(name, name)
    members = [entry for entry in breakdown.operators if entry.category == name]
    most = max(members, key=lambda entry: entry.ms, default=None)
    if most is None or most.ms < _MOST_OF_IT * sum(entry.ms for entry in members):
        return name
    called = most.operator.partition(" (")[0].rpartition("::")[2].partition(".")[0]
    return f"{called} (not delegated)" if most.where == "portable" else called


def _this_cpu(run: RunView) -> list[Fact]:
    """Return what this CPU's own switch brings, or what an execution takes; of a language model in each phase."""
    said = []
    for comparison in first_comparisons(run):
        told = run.told(comparison)
        before, after = run.sides(comparison.before, comparison.after)
        # The times whose ratio is said: those of turns that both sides have, where one has more.
        times = (None, None) if told.contended else (told.before_ms or None, told.after_ms or None)
        off, on = (_speed(run, name, ms) for name, ms in zip((told.before, told.after), times, strict=True))
        value, note = bounded_factor(told)
        same = after.rpartition(" on")[0] == before.rpartition(" off")[0] and after.endswith(" on")
        pair = f"{after}: {on}, {'off' if same else before}: {off},"
        caveat = f"; {told.caveats[0]}" if told.caveats else ""
        said.append((run.phase(comparison.after), (pair, f"{value} {note}{caveat}")))
    if not said:
        names = run.first_of_phases if run.phases else run.shown[:MOST_FINDINGS]
        for name in names:
            latency = run.metrics.experiments[name].latency if not run.busy else None
            spread = f", MAD {numbers.spread(latency.mad_percent)}" if latency else ""
            runs = f"median of {counted(latency.runs, 'run')}{spread}" if latency else ""
            label = run.phase(name) or ("" if len(names) == 1 else run.label(name))
            said.append((label, (_speed(run, name), runs)))
    return _phased("This CPU", said)


def first_comparisons(run: RunView) -> list[Comparison]:
    """Return the first comparison; of a language model, the first in each of its two phases."""
    comparisons = [c for c in run.metrics.comparisons if not other_executorch(run.manifest, c.before, c.after)]
    kinds = dict[str, Comparison]()
    for comparison in comparisons if run.phases else []:
        kinds.setdefault(run.manifest.experiments[comparison.after].phase_kind, comparison)
    return list(kinds.values()) or comparisons[:1]


def _speed(run: RunView, name: str, ms: float | None = None) -> str:
    """Return what an execution takes, or how many tokens a second a phase gives."""
    measured = run.metrics.experiments[name]
    ms = ms or run.execution_ms(name)
    if ms is None:
        return _UNKNOWN
    phase = measured.phase
    if phase is not None and phase.token_per_sec is not None and measured.latency is not None:
        return f"{numbers.rate(phase.token_per_sec * measured.latency.median_ms / ms)} tokens/s"
    return numbers.ms(ms)


def _versions(run: RunView) -> list[Fact]:
    """Return how releases of ExecuTorch compare."""
    found = [c for c in run.metrics.comparisons if other_executorch(run.manifest, c.before, c.after)]
    names = [" against ".join(run.sides(c.before, c.after)[::-1]) for c in found]
    return _listed("Releases", list(zip(names, (" ".join(bounded_factor(run.told(c))) for c in found), strict=True)))


def _listed(label: str, rows: Sequence[tuple[str, ...]]) -> list[Fact]:
    """Return a fact of the first of several rows; none where there are none."""
    return [Fact(label, rows=[*rows[:MOST_FINDINGS]])] if rows else []


def _runtimes(run: RunView) -> list[Fact]:
    """Return how fast other runtimes are."""
    found = run.runtimes
    if found is None:
        return []
    others = [row for row in found.rows if row.latency and row.name != found.baseline]
    return _listed("Runtimes", plain_rows([runtimes.cells(row, found.baseline)[:3] for row in others]))


def _emulated(run: RunView) -> list[list[Fact | Table]]:
    """Return what an emulator can show: which operators and kernels ran, and whether outputs agree."""
    experiments, detailed = run.summary.experiments, detailed_experiments(run)
    facts: list[Fact] = []
    steps_of: list[tuple[str, _Said]] = []
    table: list[Fact | Table] = []
    for name in detailed or run.shown:
        covered = experiments[name].coverage
        if covered is None:
            steps = [entry for entry in experiments[name].breakdown.instances if entry.where != "runtime"]
            portable = f"{sum(entry.where == 'portable' for entry in steps)} of them outside the delegate"
            steps_of.append((run.phase(name) or run.label(name), (str(len(steps)), portable)))
            continue
        said = _covered(covered) if covered.on_sme2 is not None else (_UNKNOWN, covered.unknown)
        facts.append(Fact("Coverage", *said, lead=run.phase(name), card=True))
        table += [Table("kernels", (run.phase(name) or "operator", "kernel"), kernel_rows(covered))]
    rest = [(run.label(n), e.coverage.headline) for n, e in experiments.items() if e.coverage and n not in detailed]
    agreed = [(run.labelled(agreement_sentence(each)),) for each in run.metrics.agreements]
    others: list[Fact | Table] = [*_listed("Others", rest), *_listed("Outputs", agreed)]
    compared = [run.labelled(kernels_sentence(each)) for each in run.summary.kernel_comparisons]
    others += [Fact("Kernels", note=each) for each in compared[:MOST_FINDINGS]]
    # What only traced runs have.
    from model_profiling.analysis.run.run_forecasts import table_differences, traced_operators

    checked = table_alerts(table_differences(run), traced_operators(run))
    others += [Fact("Table", note=each) for each in checked[:2]]
    return [[*facts, *_phased("Operators", steps_of)], table[:2], others]


def _every(run: RunView, most: int | None = None) -> list[tuple[str, Finding]]:
    """Return the findings, or the first of them, for the experiment that a reader wants faster, in each phase."""
    names = run.first_of_phases if run.measured else []
    return [(name, each) for name in names for each in run.summary.experiments[name].advice[:most]]


def _top(run: RunView) -> list[tuple[str, Finding]]:
    """Return the findings of the first screen; of several phases fewer for each."""
    return _every(run, MOST_FINDINGS if len(run.first_of_phases) < 2 else 1)


def findings(run: RunView) -> list[AdviceBlock]:
    """Return what to do next, each with its line of PyTorch."""
    return [advice_block(run, name, finding) for name, finding in _top(run)]


def other_findings(run: RunView) -> list[AdviceBlock]:
    """Return the findings that are not on the first screen."""
    first = {id(finding) for _, finding in _top(run)}
    every = [(name, each) for name in run.of_interest for each in run.summary.experiments[name].advice]
    return [advice_block(run, name, each) for name, each in every if id(each) not in first]


def advice_block(run: RunView, name: str, finding: Finding) -> AdviceBlock:
    """Return a finding with the line of its costliest operator that has one."""
    instances = run.summary.experiments[name].breakdown.instances
    costliest = sorted((instances[row] for row in finding.instances), key=lambda entry: -entry.ms)
    first = next((entry for entry in costliest if source(entry)), None)
    place = source(first) if first is None or first.source_line not in finding.title else first.module
    said = f"{run.phase(name)}: {finding.title}" if run.phase(name) else finding.title
    return AdviceBlock(said, finding.measured, finding.evidence, finding.next_step, place)


def nothing_to_do(run: RunView) -> str:
    """Return why there is nothing to do, and where the time goes all the same."""
    if run.wrong:
        return "nothing is advised or predicted of a program whose outputs are wrong"
    if not run.measured or not run.shown or _every(run):
        return ""
    name = run.first_of_phases[0]
    found = structure.costliest_line(run, name)
    # Where to look where nothing better is known.
    look = f"The costliest line is {found[0]}, with {found[1]} of the time, most of it {found[2]}." if found else ""
    nothing = "nothing known is for certain 1 % of the time or more."
    return " ".join(filter(None, (nothing, at_the_roof(run, name), look)))


def sentences(run: RunView) -> list[str]:
    """Return the first screen in sentences, for a notebook."""
    facts = [fact for group in opening(run) for fact in group if isinstance(fact, Fact)]
    said = [f"{fact.label}: {fact.text}." for fact in facts if fact.text]
    said += [f"{fact.label}, {': '.join(row)}." for fact in facts if not fact.text for row in fact.rows]
    changed = [largest_sentence(found) for found in run.changes if not run.repeats(found.before, found.after)]
    return [*alerts(run), *said, *(f"Largest changes: {each}." for each in changed if each)]
