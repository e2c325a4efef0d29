"""`sme2-kit models`: what can be exported by name, read without importing torch."""

import argparse
from typing import Any

from model_profiling.base.installation import install_command
from model_profiling.base.printing import tell
from model_profiling.cli.answer import answer

HELP = "list the models that can be exported by name"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(args: argparse.Namespace) -> int:
    rows = _rows()
    return answer(args, rows, lambda: tell(_as_text(rows)))


def _rows() -> list[dict[str, Any]]:
    """Describe every model: its name, whose it is, and which packages it lacks here."""
    import importlib.util

    from model_profiling.models import failed_folders, registered_models
    from model_profiling.models.lookup import models_here
    from model_profiling.models.zoo import missing_packages, zoo_models

    rows = [
        {
            "name": model.name,
            "source": "kit",
            "description": model.description,
            "missing": [package for package in model.requires if importlib.util.find_spec(package) is None],
            "parameters": model.parameters,
            "extra": model.extra,
            "dtypes": list(model.dtypes),
        }
        for model in registered_models().values()
    ]
    rows += [
        {"name": name, "source": "kit", "description": f"broken: {error}", "missing": []}
        for name, error in failed_folders().items()
        if name not in registered_models()
    ]
    rows += [
        {"name": f"{target.path}:{target.attribute}", "source": "here", "description": "", "missing": []}
        for target in models_here()
    ]
    return rows + [
        {"name": name, "source": "executorch", "description": "", "missing": missing_packages(name)}
        for name in zoo_models()
        if name not in registered_models()
    ]


def _as_text(rows: list[dict[str, Any]]) -> str:
    here = [f"  {row['name']}" for row in rows if row["source"] == "here"]
    rows = [row for row in rows if row["source"] != "here"]
    width = max(len(row["name"]) for row in rows)
    ours = [row for row in rows if row["source"] == "kit"]
    theirs = [row for row in rows if row["source"] == "executorch"]
    zoo = [_line(row, width) for row in theirs] or [f"  needs executorch: {install_command('export')}"]
    kit = [line for row in ours for line in _kit_lines(row, width)]
    yours = ["models in files here", *here] if here else []
    return "\n".join([*yours, "models of the kit", *kit, "ExecuTorch's own examples", *zoo, ""])


def _kit_lines(row: dict[str, Any], width: int) -> list[str]:
    """Return a model in two lines: what it is; its size, the dtypes it is tested in, and the extra it needs."""
    size = f"{row['parameters']} parameters" if row.get("parameters") else ""
    extra = f"extra: {row['extra']}" if row.get("extra") else ""
    facts = "; ".join(part for part in (size, ", ".join(row.get("dtypes", [])), extra) if part)
    return [_line(row, width), *([f"  {'':<{width}}  {facts}"] if facts else [])]


def _line(row: dict[str, Any], width: int) -> str:
    extra = f" ({install_command(row['extra'])})" if row.get("extra") else ""
    needs = f"needs {', '.join(row['missing'])}{extra}" if row["missing"] else ""
    notes = "; ".join(part for part in (row["description"], needs) if part)
    return f"  {row['name']:<{width}}  {notes}".rstrip()
