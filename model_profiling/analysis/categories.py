"""What kind of work an operator is, told by its name. The table itself is in `category_table.py`."""

import fnmatch
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model_profiling.analysis.category_table import (
    CATEGORIES,
    PACKED_TYPES,
    PORTABLE_RULES,
    XNNPACK_RULES,
    Category,
    Rule,
)
from model_profiling.errors import InputError
from model_profiling.files import read_bytes

__all__ = ["CATEGORIES", "Category", "CategoryTable", "OperatorClass", "Override", "load_table", "strip_instance"]

_OVERRIDE_LIMIT = 1 << 20
_INSTANCE = re.compile(r" #\d+$")
# `Fully Connected (NC, QD8, F32, QC8W) GEMM`: operator, layout and types, microkernel.
_XNNPACK_NAME = re.compile(r"(?P<operator>[^()]+?)(?: \((?P<types>[^()]*)\)(?: (?P<algorithm>.+))?)?")
_TYPE = re.compile(r"B?F\d+|PB?F\d+|P?Q[A-Z]*\d+W?|[XSU]\d+")
_NAMESPACES = ("quantized_decomposed", "dim_order_ops", "et_copy", "executorch_prim", "llama", "preprocess")


@dataclass(frozen=True)
class OperatorClass:
    """Where an operator's time is counted (`category`), and what its name says besides ("" where it is silent)."""

    category: Category
    kind: str
    # Operand types joined as XNNPACK names its kernels: F32, QD8-F32-QC8W.
    dtype: str = ""
    algorithm: str = ""

    @property
    def packed(self) -> bool:
        """Whether an operand is packed for KleidiAI, the path on which SME and SME2 kernels lie."""
        return any(part in PACKED_TYPES for part in self.dtype.split("-"))

    @property
    def known(self) -> bool:
        """Whether a row of the table, or of the user's, named this operator."""
        return self.kind != "unknown"


_UNKNOWN = OperatorClass("Other", "unknown")


@dataclass(frozen=True)
class Override:
    """A user's word on an operator; without a kind, the operator keeps the one it has."""

    category: Category
    kind: str | None = None


def strip_instance(name: str) -> str:
    """The operator without what tells its calls apart: XNNPACK's ` #3`, ExecuTorch's `native_call_`."""
    return _INSTANCE.sub("", name.removeprefix("native_call_"))


class CategoryTable:
    """Classifies operators by the built-in rules, and before those by a user's; remembers what it was asked."""

    def __init__(self, overrides: Mapping[str, Override] | None = None) -> None:
        by_name = {_without_aten(name): override for name, override in (overrides or {}).items()}
        self._exact = {name: override for name, override in by_name.items() if not _is_pattern(name)}
        self._patterns = [
            (re.compile(fnmatch.translate(name)), override) for name, override in by_name.items() if _is_pattern(name)
        ]
        self._remembered: dict[tuple[str, bool], OperatorClass] = {}

    def classify(self, name: str, delegated: bool) -> OperatorClass:
        """The class of `name` as an ETDump has it, `delegated` if XNNPACK (or another delegate) reported it."""
        found = self._remembered.get((name, delegated))
        if found is None:
            operator = strip_instance(name)
            found = _classify_delegated(operator) if delegated else _classify_portable(operator)
            override = self._override(_without_aten(operator))
            if override is not None:
                kind = override.kind or (found.kind if found.known else "custom")
                found = replace(found, category=override.category, kind=kind)
            self._remembered[name, delegated] = found
        return found

    def _override(self, operator: str) -> Override | None:
        """The user's row for `operator`: the exact name before patterns, patterns in the order of the file."""
        exact = self._exact.get(operator)
        if exact is not None:
            return exact
        return next((override for pattern, override in self._patterns if pattern.match(operator)), None)


def _classify_delegated(operator: str) -> OperatorClass:
    match = _XNNPACK_NAME.fullmatch(operator)
    if match is None:
        return _UNKNOWN
    algorithm = match["algorithm"] or ""
    rule = _first(XNNPACK_RULES, match["operator"], algorithm)
    if rule is None:
        return _UNKNOWN
    types = (match["types"] or "").replace("_", ", ").split(", ")  # once it is BF16_F32, elsewhere BF16, F32
    dtype = "-".join(part for part in types if _TYPE.fullmatch(part))
    return OperatorClass(rule.category, rule.kind, dtype, algorithm)


def _classify_portable(operator: str) -> OperatorClass:
    name = _without_aten(operator)
    if "::" not in name and name.startswith(tuple(f"{namespace}." for namespace in _NAMESPACES)):
        name = name.replace(".", "::", 1)  # `quantized_decomposed.add.default`, as torch.fx prints it
    name = name.split(".", 1)[0]
    # An operator that works in place (`index_put_`) does the same work.
    rule = _first(PORTABLE_RULES, name) or _first(PORTABLE_RULES, name.removesuffix("_"))
    if rule is None and "::" not in name:
        # An ETDump leaves the namespace out: `_to_dim_order_copy.out` is one of dim_order_ops.
        named = (_first(PORTABLE_RULES, f"{namespace}::{name}") for namespace in _NAMESPACES)
        rule = next((found for found in named if found is not None), None)
    return OperatorClass(rule.category, rule.kind) if rule else _UNKNOWN


def _first(rules: tuple[Rule, ...], name: str, algorithm: str = "") -> Rule | None:
    return next((rule for rule in rules if rule.matches(name, algorithm)), None)


def _without_aten(name: str) -> str:
    """ExecuTorch leaves the namespace of ATen operators out; other tools write `aten::mean.out` or `aten.mean.dim`."""
    return name.removeprefix("aten::").removeprefix("aten.")


def _is_pattern(name: str) -> bool:
    return any(character in name for character in "*?[")


def load_table(override: Path | None = None) -> CategoryTable:
    """The built-in table, extended by the user's JSON file if there is one."""
    return CategoryTable(_read_overrides(override) if override else None)


_EXAMPLE = 'Write it like {"operators": {"my_op.out": "CONV", "Transpose*": {"category": "Other", "kind": "layout"}}}.'


def _read_overrides(path: Path) -> dict[str, Override]:
    what = f"operator categories {path}"
    try:
        # Not msgspec: it keeps the last of two equal keys, and one of the two is a mistake.
        document = json.loads(
            read_bytes(path, "operator categories", _OVERRIDE_LIMIT), object_pairs_hook=lambda pairs: _once(pairs, what)
        )
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{what}: not JSON: {reason}", _EXAMPLE) from None
    if not isinstance(document, dict):
        raise InputError(f"{what}: the file holds no JSON object", _EXAMPLE)
    _refuse_other_keys(document, ("operators",), what)
    operators = document.get("operators")
    if not isinstance(operators, dict):
        raise InputError(f'{what}: the key "operators" is missing or no object', _EXAMPLE)
    _once([(_without_aten(name), None) for name in operators], what)
    return {name: _override(name, value, what) for name, value in operators.items()}


def _once(pairs: list[tuple[str, Any]], what: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise InputError(f"{what}: {_quoted(key)} is given twice", "Keep one of the two.")
        seen[key] = value
    return seen


def _override(name: str, value: object, what: str) -> Override:
    where = f"{what}: operators[{_quoted(name)}]"
    if not name.strip() or strip_instance(name) != name:
        raise InputError(
            f"{where} is no operator's name", "Leave out the instance number (` #1`) and the prefix `native_call_`."
        )
    fields = {"category": value} if isinstance(value, str) else value
    if not isinstance(fields, dict):
        raise InputError(f"{where} is neither a category nor an object", _EXAMPLE)
    _refuse_other_keys(fields, ("category", "kind"), where)
    category = next((each for each in CATEGORIES if each == fields.get("category")), None)
    if category is None:
        wrong = f"has the category {_quoted(fields['category'])}" if "category" in fields else "has no category"
        raise InputError(f"{where} {wrong}", f"Choose one of: {', '.join(CATEGORIES)}.")
    kind = fields.get("kind")
    if "kind" in fields and (not isinstance(kind, str) or not kind.strip() or kind == "unknown"):
        raise InputError(f"{where} has the kind {_quoted(kind)}", "Give a short word, or leave the kind out.")
    return Override(category, kind)


def _refuse_other_keys(given: Mapping[str, object], allowed: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in allowed:
            raise InputError(f"{where}: unknown key {_quoted(key)}", f"The keys here are: {', '.join(allowed)}.")


def _quoted(value: object) -> str:
    """`value` as JSON, so that control characters cannot reach a terminal, and short."""
    if isinstance(value, dict | list):  # its contents say nothing, and may be nested too deeply to print
        return "{...}" if isinstance(value, dict) else "[...]"
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
