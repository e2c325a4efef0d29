"""Show which layer of a model loses the accuracy, layer by layer against eager fp32."""

import argparse
from pathlib import Path

from model_profiling import api
from model_profiling.api.definition import takes
from model_profiling.api.verbs import numerics
from model_profiling.base.files import write_text
from model_profiling.base.installation import relative_to_here
from model_profiling.base.printing import tell
from model_profiling.cli import export as export_command
from model_profiling.cli.answer import answer, note, show_result
from model_profiling.cli.progress import call, progress

TAKES = takes(numerics, "reproduce json verbose")
COMMON = "model dtype keep_fp32 calibration trial out force json"
EXAMPLE = "sme2-kit numerics toy_cnn --dtype int8"


def run(args: argparse.Namespace) -> None:
    model = export_command.model_text(args)
    if args.reproduce:
        _reproduce(args, model)
        return
    parts = list["api.ExportResult"]()
    found = call(args, numerics, parts)
    from model_profiling.report.content import numerics as content
    from model_profiling.report.files.page_files import write_layers

    paths = parts[0].paths
    picture = write_layers(found, paths)

    def show() -> None:
        note(f"record: {relative_to_here(paths.numerics)}; picture: {relative_to_here(picture)}")
        show_result(content.report(found), None, ["run", paths.pte], args.verbose)

    answer(args, found, show)


def _reproduce(args: argparse.Namespace, model: str) -> None:
    from model_profiling.api.exporting import exported_request, from_target, reproduced

    if model.endswith(".pte"):
        changed = bool(export_command.flags_given(args) or args.out or args.force)
        request = exported_request(Path(model), changed, allow_wrong=False)
    else:
        request = export_command.export_request(args, "numerics")
    with progress() as report:
        write_text(args.reproduce, reproduced(request, from_target(report, force=True)))
    tell(f"{args.reproduce}  (its first lines say what it shows; it ends with 1 where that is so)\n")
