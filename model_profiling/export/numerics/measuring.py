"""Where a program loses accuracy: run it with taps on every layer, and compare each with eager PyTorch in fp32."""

import os
from dataclasses import replace

import msgspec

from model_profiling.analysis.accuracy.numerics import Numerics, Variant
from model_profiling.base import files
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.host import host_untouched
from model_profiling.export.missing_parts import require_for_numerics
from model_profiling.export.numerics.compare_layers import compare_layers
from model_profiling.export.numerics.eager_layers import eager_layers
from model_profiling.export.numerics.graph_pair import Load
from model_profiling.export.numerics.layer_programs import run_apart, run_tapped, tapped_programs
from model_profiling.export.numerics.layers_alone import measure_alone
from model_profiling.export.numerics.remedies import RemedyRun, try_remedies
from model_profiling.export.numerics.tapped_runs import execute_once, own_outputs, sides_of
from model_profiling.export.quiet import kept_off_terminal
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.pipeline.pipeline import sample_inputs
from model_profiling.platforms.base import Platform

# The values that one tapped program may hand out: who runs it must hold them all at once.
_MOST_BYTES, _MOST_BYTES_HERE = 512 << 20, 4 << 30


def measure_numerics(
    request: ExportRequest,
    made: ExportResult,
    load: Load,
    platform: Platform,
    report: OnProgress,
    most_bytes: int | None = None,
    trial: bool = True,
) -> Numerics:
    """Look at every layer of an exported program and leave what was found beside it; `load` gives the model again.

    `trial`: export what would be recommended, too, and see what it gives.
    """
    # The rewrites have names now, if the export was to choose them.
    request = replace(request, rewrites=tuple(made.record.request.rewrites))
    require_for_numerics(request)
    sides = sides_of(platform, request.dtype)
    inputs = sample_inputs(made.paths, made.record)
    with files.scratch_directory("sme2-kit-numerics-") as home:
        with kept_off_terminal(request.loud) as said, host_untouched(request.seed):
            work = eager_layers(request, load, home, said, report)
            programs, groups = tapped_programs(work, most_bytes or _most_bytes(platform), report)
        variants, values = [], {}
        for each in sides:
            report(f"run {each.name}", 0, 0)
            place = home / each.name
            plain = execute_once(platform, made.paths.pte, inputs, each, place / "plain")
            taken, tapped = run_tapped(platform, programs, groups, inputs, each, place)
            values[each.name] = taken
            variants.append(
                Variant(
                    each.name,
                    each.title,
                    list(each.disabled_features),
                    own_outputs(plain, len(plain), work.outputs),
                    own_outputs(tapped, len(tapped) - len(groups[0]), work.outputs),
                )
            )
        with kept_off_terminal(request.loud), host_untouched(request.seed):
            numerics, errors = compare_layers(request, made, platform, work, variants, values, report)
            apart = run_apart(work, numerics, platform, sides[0], most_bytes or _most_bytes(platform), report)
            numerics = measure_alone(numerics, work, errors, apart, report)
        if trial and dtype_of(request.dtype).converts:
            run = RemedyRun(request, load, platform, sides, work.outputs, home / "remedies", report)
            numerics = msgspec.structs.replace(numerics, trials=try_remedies(numerics, work.layers, run))
    files.write_json(made.paths.numerics, numerics)
    return numerics


def _most_bytes(platform: Platform) -> int:
    """Return how much a tapped program may hand out: on this machine a part of its memory."""
    if platform.remote:
        return _MOST_BYTES
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_MOST_BYTES, min(memory // 8, _MOST_BYTES_HERE))
