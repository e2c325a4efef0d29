"""Is there such a model? Answered before torch is imported, so that a typing error costs no waiting."""

import ast
import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.models import failed_folders, registered_models
from model_profiling.models.public_zoos import artifact_name, require, zoo_name
from model_profiling.models.zoo import zoo_models
from model_profiling.store.artifacts import MODEL, wrong_folder

CONTRACT = "an nn.Module class, an EagerModelBase class, a function that returns a module, or a module"
# With one of these, a file defines names that only running it tells.
_ANY = {"*", "globals", "exec", "setattr"}
# What files of weights are called.
_WEIGHTS = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")


@dataclass(frozen=True)
class FileTarget:
    """`path/to/file.py:ClassName`: a model that nobody registered."""

    path: Path
    attribute: str

    @property
    def name(self) -> str:
        """The model's name in file names: `MyNet` is `my_net`."""
        return snake_case(self.attribute)


def snake_case(class_name: str) -> str:
    """Return a class's name as that of a model: `MyNet` is `my_net`."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", class_name)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain).lower().strip("_") or "model"


def check_name(name: str) -> None:
    """Refuse a name that nobody registered, and suggest the closest ones."""
    known = sorted({*registered_models(), *failed_folders(), *zoo_models()})
    if name in known:
        return
    if os.path.isdir(name):  # noqa: PTH112 (no name is too long for it)
        raise wrong_folder(Path(name), MODEL)
    if name.endswith(_WEIGHTS):
        raise InputError(
            f"{name} has the weights of a model, and not the model",
            f"Name the model, and give the file with it: path/to/file.py:ClassName --checkpoint {name}",
        )
    here = {target.attribute: f"{target.path}:{target.attribute}" for target in models_here()}
    meant = [t for attribute, t in here.items() if attribute == re.split(r"[.:/]", name)[-1]]
    meant = meant or [t for t in here.values() if t.startswith(f"{name}.py:")][:1]
    lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower().replace("-", "_"), lower, n=3, cutoff=0.5)
    hint = "`sme2-kit models` lists what there is; path/to/file.py:ClassName takes one from a file."
    if names := meant or [lower[each] for each in close]:
        hint = f"Did you mean {' or '.join(names)}?"
    raise InputError(f"there is no model called {name!r}", hint)


def model_name(text: str) -> str:
    """Check what the user typed, a registered name or a file's class, and return the name its artifacts carry."""
    target, of_zoo = file_target(text), zoo_name(text)
    if target is not None:
        return target.name
    if of_zoo is not None:
        require(of_zoo[0])
        return artifact_name(*of_zoo)
    check_name(text)
    return text


def file_target(text: str) -> FileTarget | None:
    """Read `file.py:ClassName`, or `file.py` alone where it holds one model; None if `text` is no Python file."""
    # In quotes, the shell leaves it as it is.
    text = str(Path(text).expanduser()) if text.startswith("~") else text
    path, colon, attribute = text.rpartition(":")
    if not colon:
        path, attribute = text, ""
    if not path.endswith(".py"):
        return None
    names, modules = _names_in(Path(path))
    if not attribute:
        if len(modules) != 1:
            found = f"has {len(modules)}: {', '.join(modules)}" if modules else "has none that is recognised as such"
            hint = f"Say which: {path}:ClassName." if modules else f"Write {path}:NAME, where NAME is {CONTRACT}."
            raise InputError(f"{path} should name one model, and {found}", hint)
        attribute = modules[0]
    if attribute not in names and not _ANY & names:
        close = difflib.get_close_matches(attribute, sorted(names), n=2, cutoff=0.4)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"Name {CONTRACT}."
        raise InputError(f"{path} does not define {attribute!r} at its top level", hint)
    return FileTarget(Path(path), attribute)


def models_here() -> list[FileTarget]:
    """Return the models in files of the working directory, and in `model.py` of its folders; read, not run."""
    found = []
    for path in sorted([*Path().glob("*.py"), *Path().glob("*/model.py")]):
        try:
            found += [FileTarget(path, name) for name in _names_in(path)[1]]
        except InputError:
            continue  # not a model's file as it stands; `export` says why if it is asked for
    return found


def _names_in(path: Path) -> tuple[set[str], list[str]]:
    """Read a file's top-level names and, among them, the classes that look like models; nothing is run."""
    try:
        tree = ast.parse(files.read_bytes(path, "the Python file", limit=16 << 20))
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        where, why = (f", line {error.lineno}", error.msg) if isinstance(error, SyntaxError) else ("", str(error))
        raise InputError(f"{path}{where} is not Python: {why or 'nested too deeply'}", "Correct that line.") from None
    names: set[str] = set()
    modules: list[str] = []
    contracts: list[str] = []
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
            # An attribute's own name, or a plain one.
            bases = {getattr(base, "attr", getattr(base, "id", "")) for base in getattr(node, "bases", [])}
            modules += [node.name] if "Module" in bases else []
            contracts += [node.name] if "EagerModelBase" in bases else []
        elif isinstance(node, (ast.Import, ast.ImportFrom)):  # with `*` among them, only an import tells all
            names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        else:
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            names |= _ANY & {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    # Beside a class that keeps the contract, modules are what it is made of.
    return names, contracts or modules
