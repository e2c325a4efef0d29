"""Holds the JSON files below a directory to the schemas of their types."""

import fnmatch
import functools
import json
from pathlib import Path
from typing import Any

import jsonschema

from model_profiling.schemas import contracts
from model_profiling.store import artifacts

# JSON files that are no contract: formats of others (Perfetto, Model Explorer, the user's own category table), a
# debugging aid, and what the kit keeps for itself. Hidden files and folders (.partial, stamps) are for itself, too.
_OTHERS = (artifacts.TRACE, artifacts.CATEGORIES, artifacts.GRAPH)
_EXPLORER = (f"*{artifacts.EXPLORER_GRAPH}", f"*{artifacts.OVERLAY}")
NO_CONTRACT = (*_OTHERS, *_EXPLORER, "round-*.json", ".*")


@functools.cache
def validator(contract: contracts.Contract, strict: bool) -> Any:
    """`strict` is for what this kit writes: it has no field that its type does not."""
    schema = contracts.json_schema(contract)
    if strict:
        for definition in schema["$defs"].values():
            if "properties" in definition:
                definition["additionalProperties"] = False
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def check(contract: contracts.Contract, data: object, what: object = "", strict: bool = True) -> None:
    wrong = [
        f"{what}: {error.json_path}: {error.message[:200]}" for error in validator(contract, strict).iter_errors(data)
    ]
    assert not wrong, "\n".join(wrong[:10])


def check_printed(kind: str, data: object) -> None:
    """Hold what a command printed to the schema of that kind."""
    (contract,) = [contract for contract in contracts.CONTRACTS if contract.kind == kind]
    check(contract, data, kind)


def contract_of(name: str) -> contracts.Contract | None:
    """The contract that a file of this name is held to."""
    return next((c for c in contracts.CONTRACTS if any(fnmatch.fnmatchcase(name, each) for each in c.names)), None)


def check_files(root: Path, strict: bool = True) -> set[str]:
    """Check every JSON file below `root` that others may read; returns the kinds that were there."""
    kinds = set()
    for path in sorted(root.rglob("*.json")):
        parts = path.relative_to(root).parts
        if any(fnmatch.fnmatchcase(part, pattern) for part in parts for pattern in NO_CONTRACT):
            continue
        contract = contract_of(path.name)
        assert contract is not None, f"{path}: no contract says what this file is"
        check(contract, json.loads(path.read_text()), path, strict)
        kinds.add(contract.kind)
    return kinds
