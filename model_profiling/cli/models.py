"""List the models that can be exported by name."""

import argparse
import importlib.util
from typing import Any

from model_profiling.api.definition import takes
from model_profiling.base.errors import InputError
from model_profiling.base.installation import install_command
from model_profiling.base.printing import tell
from model_profiling.cli.answer import answer

TAKES = takes(more="zoo json")
EXAMPLE = "sme2-kit models --zoo timm 'mobilenet*'"


def run(args: argparse.Namespace) -> int:
    if not args.zoo:
        rows = _rows()
        return answer(args, rows, lambda: tell(_as_text(rows)))
    from model_profiling.models.public_zoos import ZOOS, names

    zoo, pattern = args.zoo
    if zoo not in ZOOS:
        raise InputError(f"there is no zoo {zoo!r}", f"Use one of {', '.join(ZOOS)}.")
    found = [f"{zoo}:{name}" for name in names(zoo, pattern)]
    return answer(args, found, lambda: tell("".join(f"{name}\n" for name in found)))


def _rows() -> list[dict[str, Any]]:
    """Describe every model: its name, whose it is, and which packages it lacks here."""
    from model_profiling.models import failed_folders, registered_models
    from model_profiling.models.lookup import models_here
    from model_profiling.models.zoo import missing_packages, zoo_models

    def row(name: str, source: str, description: str = "", missing: Any = (), **more: Any) -> dict[str, Any]:
        return {"name": name, "source": source, "description": description, "missing": list(missing), **more}

    known, rows = registered_models(), [row(f"{each.path}:{each.attribute}", "here") for each in models_here()]
    for model in known.values():
        missing = [package for package in model.requires if importlib.util.find_spec(package) is None]
        more = {"parameters": model.parameters, "extra": model.extra, "dtypes": list(model.dtypes)}
        rows.append(row(model.name, "kit", model.description, missing, **more))
    broken = {name: error for name, error in failed_folders().items() if name not in known}
    rows += [row(name, "kit", f"broken: {error}") for name, error in broken.items()]
    return rows + [row(name, "executorch", "", missing_packages(name)) for name in zoo_models() if name not in known]


def _as_text(rows: list[dict[str, Any]]) -> str:
    width = max(len(row["name"]) for row in rows if row["source"] != "here")
    here, kit, theirs = (
        [line for row in rows if row["source"] == source for line in _lines(row, width)]
        for source in ("here", "kit", "executorch")
    )
    yours = ["models in files here", *here] if here else []
    theirs = theirs or [f"  needs executorch: {install_command('export')}"]
    return "\n".join([*yours, "models of the kit", *kit, "ExecuTorch's own examples", *theirs, ""])


def _lines(row: dict[str, Any], width: int) -> list[str]:
    """Return a model: what it is; of the kit's its size, the dtypes it is tested in, and the extra it needs, too."""
    extra = f" ({install_command(row['extra'])})" if row.get("extra") else ""
    needs = f"needs {', '.join(row['missing'])}{extra}" if row["missing"] else ""
    notes = "; ".join(filter(None, (row["description"], needs)))
    size = f"{row['parameters']} parameters" if row.get("parameters") else ""
    of_extra = f"extra: {row['extra']}" if row.get("extra") else ""
    facts = "; ".join(filter(None, (size, ", ".join(row.get("dtypes", [])), of_extra)))
    return [f"  {row['name']:<{width}}  {notes}".rstrip(), *([f"  {'':<{width}}  {facts}"] if facts else [])]
