"""Start-up and memory: how long until the first result, what a process holds, and what the .pte says by itself."""

from model_profiling.analysis.compare.metrics import ExperimentMetrics, Metrics
from model_profiling.analysis.process.memory import Memory, ProgramMemory
from model_profiling.analysis.process.startup import MedianTime, Startup
from model_profiling.analysis.run.run_view import RunView
from model_profiling.base.units import counted
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Number, Row, Section, Table, bullets
from model_profiling.report.words import growth_sentence, memory_sentence, merge_sentences, startup_sentence

PARTS = {
    "process": "process and libraries",
    "program": "program load",
    "method": "method load, with packing",
    "inputs": "inputs",
    "first_inference": "first inference",
    "first_result": "until the first result",
    "ending": "from then to the end",
}
_PAGE_CACHE = {
    "warm": "the .pte was in the system's page cache (warm), as after an earlier start",
    "cold": "the .pte was not in the system's page cache (cold), as after a boot",
    "partly warm": "some of the .pte was in the system's page cache, in some launches more than in others",
    "not known": "whether the .pte was in the system's page cache is not known",
}
_PRESETS = (
    "Apps may use other options: ExecuTorch's presets for Android and Apple share one workspace (global), and those "
    "for Apple switch the weight cache on. `workspace` and `weight_cache` in a config set them."
)
_BYTES = {
    "before_load_bytes": "before loading (runner, libraries)",
    "after_load_bytes": "after loading",
    "after_first_bytes": "after the first inference",
    "after_last_bytes": "after the last inference",
    "peak_bytes": "peak",
    "load_bytes": "loading adds",
    "packing_bytes": "of that not of a file (packed weights, buffers)",
    "first_inference_bytes": "the first inference adds",
}


def section(run: RunView) -> Section | None:
    """Return the section; None where nothing is known, not even of the .pte."""
    metrics = run.summary.metrics
    if metrics is None:
        return None
    # What is compared stands side by side, before on the left.
    sides = [name for comparison in metrics.comparisons for name in (comparison.before, comparison.after)]
    experiments = {name: metrics.experiments[name] for name in dict.fromkeys([*sides, *metrics.experiments])}
    started = {name: each.startup for name, each in experiments.items() if each.startup is not None}
    held = {name: each.memory for name, each in experiments.items() if each.memory is not None}
    blocks: list[Block] = []
    blocks += [_startup_table(run, metrics, started)] if started else []
    blocks += [_memory_table(run, held, metrics.program)] if held else []
    blocks += [_program_table(metrics.program)] if metrics.program is not None else []
    if not blocks:
        return None
    compared = [startup_sentence(each) for each in metrics.startup_comparisons]
    compared += [memory_sentence(each) for each in metrics.memory_comparisons]
    sentences = _conditions(run, experiments, started, held)
    sentences += [f"{sentence[0].upper()}{run.labelled(sentence[1:])}." for sentence in compared]
    blocks += bullets(sentences)
    result = [f"first result after {numbers.ms(each.first_result.median_ms)}" for each in list(started.values())[-1:]]
    result += [f"peak memory {numbers.mebibytes(each.peak_bytes)}" for each in list(held.values())[-1:]]
    said = ", ".join(result) or "what the .pte says of memory"
    return Section("startup", "Start-up and memory", blocks, True, said)


def _startup_table(run: RunView, metrics: Metrics, started: dict[str, Startup]) -> Table:
    """Return the parts of a start, experiments side by side; with how many times faster if just two were compared."""
    compared = metrics.startup_comparisons[:1] if len(started) == 2 else []
    rows: list[Row] = []
    # Nothing is packed where there are no weights.
    weightless = metrics.program is not None and not metrics.program.all_constant_bytes
    for part, words in (PARTS | ({"method": "method load"} if weightless else {})).items():
        ratios = [comparison.parts.get(part) for comparison in compared]
        faster = [numbers.UNKNOWN if ratio is None else numbers.speedup_cell(ratio) for ratio in ratios]
        rows.append((words, *(_time_cell(getattr(start, part)) for start in started.values()), *faster))
    return Table("startup", ("start-up", *map(run.label, started), *(["faster"] if compared else [])), rows)


def _time_cell(time: MedianTime | None) -> Number:
    if time is None:
        return numbers.UNKNOWN
    return Number(numbers.bounded_ms(time.median_ms, time.low_ms, time.high_ms), time.median_ms)


def _memory_table(run: RunView, held: dict[str, Memory], program: ProgramMemory | None) -> Table:
    rows: list[Row] = [
        (words, *(numbers.bytes_cell(getattr(m, field)) for m in held.values())) for field, words in _BYTES.items()
    ]
    if program is not None:
        less = [None if m.load_bytes is None else m.load_bytes - program.all_constant_bytes for m in held.values()]
        rows.append(("loading adds, less the weights of the .pte", *map(numbers.bytes_cell, less)))
    grown = [memory.growth_per_execution_bytes for memory in held.values()]
    rows.append(("each later inference adds", *map(numbers.bytes_cell, grown)))
    return Table("memory", ("memory", *map(run.label, held)), rows)


def _program_table(program: ProgramMemory) -> Table:
    """Return what follows from the file alone, whatever machine runs it."""
    sizes = [(f"planned arena, memory id {each.memory_id}", each.bytes) for each in program.arenas]
    sizes.append(("constants outside delegates", program.constant_bytes))
    for each in program.delegates:
        sizes.append((f"{counted(each.delegates, 'blob')} of {each.backend}", each.blob_bytes))
        sizes += [(f"of that weights of {each.backend}", each.constant_bytes)] if each.constant_bytes else []
    sizes += [("weights that delegates look up by name", program.named_bytes)] if program.named_bytes else []
    rows: list[Row] = [(what, numbers.bytes_cell(size)) for what, size in sizes]
    return Table("program_memory", (f"what the .pte says ({program.method})", "size"), rows)


def _conditions(
    run: RunView, experiments: dict[str, ExperimentMetrics], started: dict[str, Startup], held: dict[str, Memory]
) -> list[str]:
    """Return what has to be known of these numbers: how many processes, the page cache, XNNPACK's options, growth."""
    said = []
    for name, start in started.items():
        launches = f"start-up over {counted(start.launches, 'launch', 'launches')}, each alone and for one inference"
        said.append((name, f"{launches}; {_PAGE_CACHE[start.page_cache]}"))
    for name, memory in held.items():
        processes = counted(memory.processes, "process", "processes")
        said += [(name, f"memory of {processes}, peak from {memory.peak_source}"), (name, growth_sentence(memory))]
    chosen = {name: each for name, each in experiments.items() if each.workspace or each.weight_cache}
    for name, each in chosen.items():
        cache = f"its weight cache {each.weight_cache or 'not known'}"
        said.append((name, f"XNNPACK's workspace was {each.workspace or 'not known'}, {cache}"))
    merged = merge_sentences(((run.label(name), words) for name, words in said if words), ranges=True)
    return [f"{names}: {sentence}." for names, sentence in merged] + ([_PRESETS] if chosen else [])


def unknown(run: RunView) -> list[str]:
    """Return why start-up or memory is not known, for the list of what was not measured."""
    metrics = run.summary.metrics
    if metrics is None:
        return []
    found = []
    for what, reason in (("Start-up", "startup_unknown"), ("Memory", "memory_unknown")):
        said = [(run.label(n), getattr(each, reason)) for n, each in metrics.experiments.items()]
        merged = merge_sentences((name, why) for name, why in said if why)
        found += [f"{what} ({names}): {why}." for names, why in merged]
    if metrics.program is None:
        found.append("What the .pte says of memory by itself: it is gone, has changed since, or cannot be read.")
    return found
