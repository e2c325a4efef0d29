"""How to do it again: the commands, from export to report, and hashes to see that the same things went in."""

import shlex
from pathlib import Path

from model_profiling.analysis.run.run_view import RunView
from model_profiling.base.directories import working_directory
from model_profiling.export.request import arguments, recorded, repeated
from model_profiling.report.blocks import Block, Code, Name, Paragraph, Row, Section, Table
from model_profiling.store.artifacts import ExportRecord
from model_profiling.store.run_directory import Manifest

_STARTED = "The run was started by a Python program; `config` in manifest.json is what it asked for."
_WHERE = "Type these in the directory in which the run was started: `config.directory` in manifest.json."


def section(run: RunView) -> Section:
    manifest, model = run.manifest, run.manifest.model
    base = str(manifest.config.get("directory") or "")
    blocks: list[Block] = []
    commands: list[str] = []
    measuring = measuring_command(manifest)
    # `profile` of a model exports it, too.
    exports = "sme2-kit profile " in measuring and f"{manifest.model.stem}.pte" not in measuring
    if model.export is not None and not exports:
        words = repeated(model.export, base)
        blocks += [] if words else _not_typed(model.export)
        commands += [shlex.join(words)] if words else []
    commands += [measuring] if measuring else []
    blocks += [Paragraph(_STARTED)] if not measuring else []
    commands.append(f"sme2-kit report {shlex.quote(_place(run.directory, base))} --html")
    blocks += [Paragraph(_WHERE)] if base else []
    rows: list[Row] = [(Name(f"{manifest.model.stem}.pte"), Name(manifest.model.sha256))]
    runners = {record.runner.sha256: record.runner.kind for record in manifest.experiments.values()}
    rows += [(f"runner ({kind})", Name(digest)) for digest, kind in runners.items()]
    dumps = [(f"{name}/{file}", d) for name, r in manifest.experiments.items() for file, d in r.files.items()]
    rows += [(Name(file), Name(digest)) for file, digest in dumps if file.endswith(".etdump")]
    blocks += [Code("\n".join(commands)), Table("hashes", ("file", "SHA-256"), rows)]
    if run.sources:
        made = f"This report was made from sources {run.sources}"
        checks = Paragraph(f"{made}; the command below checks that the run is still the same.")
        blocks += [checks, Code(f"sme2-kit validate {shlex.quote(run.directory)} FILE")]
    return Section("reproduce", "How to reproduce", blocks, True, f"`{commands[0]}`")


def _not_typed(export: ExportRecord) -> list[Block]:
    """Return what to do about a model that no command line makes again."""
    asked = export.request
    if asked.origin != "memory":
        text = f"The model's settings ({asked.settings}) cannot be typed: export it from Python, with ExportRequest."
        return [Paragraph(text)]
    text = (
        f"The model ({asked.target}) was a module in the memory of a Python process, so no command line exports it "
        f"again. With the same module and example inputs (saved as {export.model}_*_inputs) it is:"
    )
    given = f"name={export.model!r}, {arguments(recorded(export, asked))}"
    code = f"export_module(module, example_inputs, {asked.outdir!r}, {given})"
    return [Paragraph(text), Code(f"from model_profiling.export.in_memory import export_module\n\n{code}")]


def measuring_command(manifest: Manifest) -> str:
    """Return the command that measured, as one would type it; empty if nobody did."""
    return str(manifest.config.get("command") or "")


def _place(directory: str, base: str) -> str:
    """Return the run directory as it must be written in `base`."""
    full = Path(directory).resolve()
    if not base or base == working_directory():
        return directory
    return str(full.relative_to(base)) if full.is_relative_to(base) else str(full)
