"""What kind of work an operator is, told by its name. The table, one row per kind of work, is operator_categories.txt.

Where a name could go two ways:
- Elementwise takes in normalization, softmax and rotary embedding: the non-linear work between matrix products.
- Data Movement is whatever writes out values it was given, moved or in another format: quantizing counts, and so do
  filling and looking up. What computes new values from several (pooling, reduction, resizing) is Other.
- A 1x1 convolution that XNNPACK turned into a fully connected operator is GEMM; the name no longer says otherwise.
"""

import fnmatch
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.records import by_key

_TABLE = Path(__file__).with_name("operator_categories.txt")

Category = Literal["CONV", "GEMM", "Data Movement", "Elementwise", "Other"]
CATEGORIES: tuple[Category, ...] = ("CONV", "GEMM", "Data Movement", "Elementwise", "Other")


class Rule(msgspec.Struct, frozen=True, array_like=True):
    """The operators in `names` are this category and kind; `algorithms` narrows it to those microkernels, if given."""

    category: Category
    kind: str
    names: tuple[str, ...]
    algorithms: tuple[str, ...] = ()


# What XNNPACK prints after the operator, from xnn_microkernel_type_to_string; it leaves "Default" out.
ALGORITHMS = (
    *("Default", "Average Pooling", "Conv2D HWC2CHW", "DWConv", "GEMM", "IGEMM", "Reduce", "Reduce2"),
    *("Pixelwise Average Pooling", "SPMM", "Subconv2D", "Transpose", "VMulCAddC"),
)

# Types of which XNNPACK says "packed": operands laid out for KleidiAI's matrix kernels.
PACKED_TYPES = ("PF32", "PF16", "PQS8", "QP8")
# What XNNPACK calls an operator that it runs in fp32, arithmetic or not.
RUN_IN_FP32 = ("F32", "X32", "PF32")


def is_packed(dtype: str) -> bool:
    """Return whether XNNPACK's operator types have a packed one: only there are SME and SME2 kernels."""
    return any(part in PACKED_TYPES for part in dtype.split("-"))


def is_custom(operator: str) -> bool:
    """Return whether it is one of ExecuTorch's fused operators for language models (`llama::custom_sdpa.out`)."""
    return operator.startswith("llama::")


def _rules() -> dict[str, tuple[Rule, ...]]:
    """Return the rows of each part of the table."""
    found: dict[str, list[Rule]] = {}
    part: list[Rule] = []
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            part = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            what, _, names = line.partition(": ")
            kind, _, algorithms = what.partition(" [")
            category, _, kind = kind.partition(" / ")
            microkernels = tuple(algorithms.rstrip("]").split(", ")) if algorithms else ()
            part.append(msgspec.convert((category, kind, names.split(", "), microkernels), Rule))
    return {name: tuple(rows) for name, rows in found.items()}


_RULES = _rules()
XNNPACK_RULES, PORTABLE_RULES, ONNX_RULES = (_RULES[part] for part in ("xnnpack", "portable", "onnx"))

_OVERRIDE_LIMIT = 1 << 20
_CALL = re.compile(r"native_call_", re.IGNORECASE)
_INSTANCE = re.compile(r" ?#\d+$")
# `Fully Connected (NC, QD8, F32, QC8W) GEMM`: operator, layout and types, microkernel.
_XNNPACK_NAME = re.compile(r"(?P<operator>[^()]+?)(?: \((?P<types>[^()]*)\)(?: (?P<algorithm>.+))?)?")
_TYPE = re.compile(r"B?F\d+|PB?F\d+|P?Q[A-Z]*\d+W?|[XSU]\d+")
_ATEN = "aten"
# Operators on numbers. They have the names of ATen's and other work; a dump has no event of theirs to name.
_SCALARS = "executorch_prim"


class OperatorClass(msgspec.Struct, frozen=True):
    """Where an operator's time is counted (`category`), and what its name says besides ("" where it is silent)."""

    category: Category
    kind: str
    # Operand types joined as XNNPACK names its kernels: F32, QD8-F32-QC8W.
    dtype: str = ""
    algorithm: str = ""

    @property
    def known(self) -> bool:
        """Whether a row of the table, or of the user's, named this operator."""
        return self.kind != UNKNOWN


UNKNOWN = "unknown"
_UNKNOWN = OperatorClass("Other", UNKNOWN)


class Override(msgspec.Struct, frozen=True):
    """A user's word on an operator; without a kind, the operator keeps the one it has."""

    category: Category
    kind: str | None = None


def strip_instance(name: str) -> str:
    """Return the operator without what tells its calls apart: XNNPACK's ` #3`, ExecuTorch's `native_call_`."""
    call = _CALL.match(name)
    return _INSTANCE.sub("", name[call.end() :] if call else name)


class CategoryTable:
    """Classifies operators by the built-in rules, and before those by a user's; remembers what it was asked."""

    def __init__(self, overrides: Mapping[str, Override] | None = None, text: bytes = b"") -> None:
        # The file that the overrides were read from.
        self.text = text
        # What tells this table's answers from the built-in table's ("").
        self.identity = hashlib.sha256(repr(overrides).encode()).hexdigest() if overrides else ""
        by_name = {_key(name): override for name, override in (overrides or {}).items()}
        self._exact = {name: override for name, override in by_name.items() if not _is_pattern(name)}
        # A dump may have left out the namespace of a user's own operators, too.
        self._without_namespace = {_split(name)[1]: override for name, override in self._exact.items()}
        self._patterns = [
            (re.compile(fnmatch.translate(name)), override) for name, override in by_name.items() if _is_pattern(name)
        ]
        self._remembered: dict[tuple[str, bool], OperatorClass] = {}

    def classify(self, name: str, delegated: bool) -> OperatorClass:
        """Return the class of `name` as an ETDump has it, `delegated` if XNNPACK (or another delegate) reported it."""
        return self.classify_operator(strip_instance(name), delegated)

    def classify_operator(self, operator: str, delegated: bool) -> OperatorClass:
        """Return the same of an operator without its number: a model may have a hundred thousand instances of a few."""
        found = self._remembered.get((operator, delegated))
        if found is None:
            found = _classify_delegated(operator) if delegated else _classify_portable(operator)
            override = self._override(operator, delegated, found.known)
            if override is not None:
                kind = override.kind or (found.kind if found.known else "custom")
                found = msgspec.structs.replace(found, category=override.category, kind=kind)
            self._remembered[operator, delegated] = found
        return found

    def _override(self, operator: str, delegated: bool, known: bool) -> Override | None:
        """Return the user's row for `operator`: the exact name before patterns, patterns in the order of the file."""
        name = _as_dumped(operator)
        exact = self._exact.get(name) or (None if known else self._without_namespace.get(name))
        if exact is not None or not self._patterns:
            return exact
        # What an operator that a dump calls `name` may be registered as.
        namespaces = () if delegated or "::" in name else _NAMESPACES_OF.get(_base(name), [_ATEN])
        spellings = [name, *(f"{namespace}::{name}" for namespace in namespaces)]
        return next(
            (override for pattern, override in self._patterns if any(pattern.match(each) for each in spellings)), None
        )


def _classify_delegated(operator: str) -> OperatorClass:
    match = _XNNPACK_NAME.fullmatch(operator)
    if match is None:
        return _UNKNOWN
    algorithm = match["algorithm"] or ""
    algorithm = _ALGORITHMS.get(algorithm.casefold(), algorithm)
    candidates = _XNNPACK.get(match["operator"].casefold(), [])
    rule = next((rule for rule in candidates if not rule.algorithms or algorithm in rule.algorithms), None)
    if rule is None:
        return _UNKNOWN
    types = (match["types"] or "").upper().replace("_", ", ").split(", ")  # once it is BF16_F32, elsewhere BF16, F32
    dtype = "-".join(part for part in types if _TYPE.fullmatch(part))
    return OperatorClass(rule.category, rule.kind, dtype, algorithm)


def _classify_portable(operator: str) -> OperatorClass:
    namespace, rest = _split(operator.casefold())
    name = f"{namespace}::{_base(rest)}" if namespace else _base(rest)
    # An operator that works in place (`index_put_`) does the same work.
    rule = _PORTABLE.get(name) or _PORTABLE.get(name.removesuffix("_"))
    return OperatorClass(rule.category, rule.kind) if rule else _UNKNOWN


def _split(name: str) -> tuple[str, str]:
    """Return the namespace of an operator ("" if it has none) and the rest; torch.fx prints `aten.mean.dim`."""
    namespace, mark, rest = name.partition("::")
    if mark:
        return namespace, rest
    namespace, _, rest = name.partition(".")
    return (namespace, rest) if namespace in _NAMESPACES else ("", name)


def _as_dumped(name: str) -> str:
    """Return one spelling for all that tools write: small letters, and no namespace where ExecuTorch leaves it out."""
    namespace, rest = _split(name.casefold())
    return rest if namespace in _LEFT_OUT or not namespace else f"{namespace}::{rest}"


def _key(name: str) -> str:
    """Return how a user's row is looked up; in a pattern with its namespace, so that `aten::*` stays that."""
    namespace, rest = _split(name.casefold())
    return f"{namespace}::{rest}" if namespace and _is_pattern(name) else _as_dumped(name)


def _base(name: str) -> str:
    """Return the operator without its overload."""
    return name.split(".", 1)[0]


_ALGORITHMS = {name.casefold(): name for name in ALGORITHMS}
_XNNPACK = by_key((name.casefold(), rule) for rule in XNNPACK_RULES for name in rule.names)
# By (namespace, name), as the libraries register them.
_REGISTERED = {
    ((_ATEN, name) if "::" not in name else tuple(name.split("::"))): rule
    for rule in PORTABLE_RULES
    for name in rule.names
}
_NAMESPACES = {namespace for namespace, _ in _REGISTERED}
_LEFT_OUT = _NAMESPACES - {_SCALARS}
_NAMESPACES_OF = by_key((_name, _namespace) for _namespace, _name in _REGISTERED if _namespace in _LEFT_OUT)
_PORTABLE = {f"{namespace}::{name}": rule for (namespace, name), rule in _REGISTERED.items()}
_PORTABLE |= {name: _REGISTERED[namespaces[0], name] for name, namespaces in _NAMESPACES_OF.items()}


def _is_pattern(name: str) -> bool:
    return any(character in name for character in "*?[")


def load_table(override: Path | None = None) -> CategoryTable:
    """Return the built-in table, extended by the user's JSON file if there is one."""
    if override is None:
        return CategoryTable()
    text = files.read_bytes(override, "operator categories", _OVERRIDE_LIMIT)
    return CategoryTable(_read_overrides(text, override), text)


_EXAMPLE = 'Write it like {"operators": {"my_op.out": "CONV", "Transpose*": {"category": "Other", "kind": "layout"}}}.'


def _read_overrides(text: bytes, path: Path) -> dict[str, Override]:
    import json

    what = f"operator categories {path}"
    try:
        # Not msgspec: it keeps the last of two equal keys, and one of the two is a mistake.
        document = json.loads(text, object_pairs_hook=lambda pairs: _once(pairs, what))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{what}: not JSON: {reason}", _EXAMPLE) from None
    if not isinstance(document, dict):
        raise InputError(f"{what}: the file does not contain a JSON object", _EXAMPLE)
    _refuse_other_keys(document, ("operators",), what)
    operators = document.get("operators")
    if not isinstance(operators, dict):
        raise InputError(f'{what}: the key "operators" is missing or not an object', _EXAMPLE)
    _once([(_key(name), None) for name in operators], what)
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
            f"{where} is not an operator name", "Leave out the instance number (` #1`) and the prefix `native_call_`."
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
    if "kind" in fields and (not isinstance(kind, str) or not kind.strip() or kind == UNKNOWN):
        raise InputError(f"{where} has the kind {_quoted(kind)}", "Give a short word, or leave the kind out.")
    return Override(category, kind)


def _refuse_other_keys(given: Mapping[str, object], allowed: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in allowed:
            raise InputError(f"{where}: unknown key {_quoted(key)}", f"The keys here are: {', '.join(allowed)}.")


def _quoted(value: object) -> str:
    """Return `value` as JSON, so that control characters cannot reach a terminal, and short."""
    if isinstance(value, dict | list):  # its contents say nothing, and may be nested too deeply to print
        return "{...}" if isinstance(value, dict) else "[...]"
    import json

    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
