"""Start-up and memory: how long until the first result, what a process holds, and what the .pte says by itself."""

from model_profiling.analysis.compare.metrics import ExperimentMetrics, Metrics
from model_profiling.analysis.process.memory import Memory
from model_profiling.analysis.process.program_memory import ProgramMemory
from model_profiling.analysis.process.startup import MedianTime, Startup
from model_profiling.analysis.run.experiment_labels import other_executorch
from model_profiling.analysis.run.run_view import RunView
from model_profiling.base.units import counted
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Bullets, Number, Row, Section, Table
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
    if started:
        blocks.append(_startup_table(run, metrics, started))
    if held:
        blocks.append(_memory_table(run, held, metrics.program))
    if metrics.program is not None:
        blocks.append(_program_table(metrics.program))
    if not blocks:
        return None
    sentences = [*_conditions(run, experiments, started, held), *_compared(run, metrics)]
    return Section("startup", "Start-up and memory", [*blocks, *([Bullets(sentences)] if sentences else [])])


def _startup_table(run: RunView, metrics: Metrics, started: dict[str, Startup]) -> Table:
    """Return the parts of a start, experiments side by side; with how many times faster if just two were compared."""
    compared = metrics.startup_comparisons if len(started) == 2 else []
    names = list(started)
    rows: list[Row] = []
    for part, words in _parts(metrics.program).items():
        times: list[MedianTime | None] = [getattr(started[name], part) for name in names]
        cells: list[Number] = [_time(time) for time in times]
        for comparison in compared[:1]:
            ratio = comparison.parts.get(part)
            bounds = (None, None, None) if ratio is None else (ratio.ratio, ratio.low, ratio.high)
            cells.append(Number(numbers.bounded_speedup(*bounds), bounds[0]))
        rows.append((words, *cells))
    return Table("startup", ("start-up", *map(run.label, names), *(["faster"] if compared else [])), rows)


def _parts(program: ProgramMemory | None) -> dict[str, str]:
    """Return what the parts of a start are called; nothing is packed where there are no weights."""
    weightless = program is not None and not program.all_constant_bytes
    return PARTS | ({"method": "method load"} if weightless else {})


def _time(time: MedianTime | None) -> Number:
    if time is None:
        return Number("-", None)
    return Number(numbers.bounded_ms(time.median_ms, time.low_ms, time.high_ms), time.median_ms)


def _memory_table(run: RunView, held: dict[str, Memory], program: ProgramMemory | None) -> Table:
    rows: list[Row] = [(words, *(_bytes(getattr(m, field)) for m in held.values())) for field, words in _BYTES.items()]
    if program is not None:
        less = [None if m.load_bytes is None else m.load_bytes - program.all_constant_bytes for m in held.values()]
        rows.append(("loading adds, less the weights of the .pte", *map(_bytes, less)))
    grown = [memory.growth_per_execution_bytes for memory in held.values()]
    rows.append(("each later inference adds", *map(_bytes, grown)))
    return Table("memory", ("memory", *map(run.label, held)), rows)


def _bytes(value: float | None) -> Number:
    return Number("-" if value is None else numbers.mebibytes(value), value)


def _program_table(program: ProgramMemory) -> Table:
    """Return what follows from the file alone, whatever machine runs it."""
    rows: list[Row] = [(f"planned arena, memory id {each.memory_id}", _bytes(each.bytes)) for each in program.arenas]
    rows += [("constants outside delegates", _bytes(program.constant_bytes))]
    for each in program.delegates:
        rows.append((f"{counted(each.delegates, 'blob')} of {each.backend}", _bytes(each.blob_bytes)))
        if each.constant_bytes:
            rows.append((f"of that weights of {each.backend}", _bytes(each.constant_bytes)))
    if program.named_bytes:
        rows.append(("weights that delegates look up by name", _bytes(program.named_bytes)))
    return Table("program_memory", (f"what the .pte says ({program.method})", "size"), rows)


def _conditions(
    run: RunView, experiments: dict[str, ExperimentMetrics], started: dict[str, Startup], held: dict[str, Memory]
) -> list[str]:
    """Return what has to be known of these numbers: how many processes, the page cache, XNNPACK's options, growth."""
    said = [(run.label(name), _launches(each)) for name, each in started.items()]
    for name, memory in held.items():
        processes = counted(memory.processes, "process", "processes")
        said.append((run.label(name), f"memory of {processes}, peak from {memory.peak_source}"))
        said += [(run.label(name), words) for words in [growth_sentence(memory)] if words]
    options = [(run.label(n), each) for n, each in experiments.items() if each.workspace or each.weight_cache]
    said += [(name, _options(each)) for name, each in options]
    merged = merge_sentences(said, ranges=True)
    return [f"{names}: {sentence}." for names, sentence in merged] + ([_PRESETS] if options else [])


def _launches(start: Startup) -> str:
    launches = counted(start.launches, "launch", "launches")
    return f"start-up over {launches}, each alone and for one inference; {_PAGE_CACHE[start.page_cache]}"


def _options(measured: ExperimentMetrics) -> str:
    workspace, cache = measured.workspace or "not known", measured.weight_cache or "not known"
    return f"XNNPACK's workspace was {workspace}, its weight cache {cache}"


def _compared(run: RunView, metrics: Metrics) -> list[str]:
    found = [startup_sentence(each) for each in metrics.startup_comparisons]
    found += [memory_sentence(each) for each in metrics.memory_comparisons]
    return [f"{sentence[0].upper()}{run.labelled(sentence[1:])}." for sentence in found]


def unknown(run: RunView) -> list[str]:
    """Return why start-up or memory is not known, for the list of what was not measured."""
    metrics = run.summary.metrics
    if metrics is None:
        return []
    found = []
    for what, reason in (("Start-up", "startup_unknown"), ("Memory", "memory_unknown")):
        said = [(run.label(n), getattr(each, reason)) for n, each in metrics.experiments.items()]
        for names, why in merge_sentences([(name, why) for name, why in said if why]):
            found.append(f"{what} ({names}): {why}.")
    if metrics.program is None:
        found.append("What the .pte says of memory by itself: it is gone, has changed since, or cannot be read.")
    return found


def lines(run: RunView) -> list[tuple[str, str]]:
    """Return start-up and memory of the experiment that a reader wants better, and against the other: a line each."""
    metrics = run.summary.metrics
    found: list[tuple[str, str]] = []
    if metrics is None:
        return found
    for name in run.of_interest[:1]:
        measured = metrics.experiments[name]
        if measured.startup is not None:
            found.append(("start-up", f"{run.label(name)}: {_startup_line(measured.startup, metrics.program)}"))
        if measured.memory is not None:
            found.append(("memory", f"{run.label(name)}: {_memory_line(measured.memory, metrics.program)}"))
        found += [("start-up", run.labelled(startup_sentence(c, busy=False))) for c in metrics.startup_comparisons[:1]]
        found += [
            ("memory", run.labelled(memory_sentence(c)))
            for c in metrics.memory_comparisons[:1]
            if other_executorch(run.manifest, c.before, c.after)
        ]
    return found


def _startup_line(start: Startup, program: ProgramMemory | None) -> str:
    parts, words = ("process", "program", "method", "first_inference"), _parts(program)
    told = ", ".join(f"{words[part]} {numbers.ms(getattr(start, part).median_ms)}" for part in parts)
    conditions = f"{counted(start.launches, 'launch', 'launches')}, page cache {start.page_cache}"
    return f"first result after {numbers.ms(start.first_result.median_ms)} ({conditions}): {told}"


def _memory_line(memory: Memory, program: ProgramMemory | None) -> str:
    told = [
        f"{words} {numbers.mebibytes(value)}"
        for words, value in (
            ("after loading", memory.after_load_bytes),
            ("the first inference", memory.after_first_bytes),
            ("the last", memory.after_last_bytes),
            ("planned", program.planned_bytes if program is not None else None),
            ("allocated by loading", memory.packing_bytes),
        )
        if value is not None
    ]
    source = "" if memory.before_load_bytes is not None else f" ({memory.peak_source})"
    return f"peak {numbers.mebibytes(memory.peak_bytes)}{source}{': ' if told else ''}{', '.join(told)}"
