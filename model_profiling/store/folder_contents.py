"""What a folder holds that was given where a run, a program or a model is needed."""

import itertools
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from model_profiling.base.errors import InputError
from model_profiling.base.units import counted
from model_profiling.store.artifacts import EARLIER, MANIFEST, PARTIAL, PROGRAMS

RUN, PROGRAM, MODEL = "a run directory", "a .pte", "a model"
# How deep and how many files to look through, and how many to name.
_DEEPEST, _MOST_FILES, _MOST_NAMED = 4, 5000, 5
_SHOWN = {RUN: "sme2-kit analyze {}", PROGRAM: "sme2-kit run {}", MODEL: "sme2-kit profile {}:ClassName"}
_CALLED = {RUN: "run", PROGRAM: "exported program", MODEL: "Python file"}


def wrong_folder(path: Path, wanted: str) -> InputError:
    """Return the error of a folder that is not what is `wanted`: what it holds instead, and what to do with that."""
    if wanted == RUN and any((path / PARTIAL).glob("*/run.json")):
        return InputError(
            f"the run in {path} was interrupted before it was complete",
            "Start it again with the same command: it resumes.",
        )
    held = _held(path)
    for kind in (wanted, *(kind for kind in (RUN, PROGRAM, MODEL) if kind != wanted)):
        found = held[kind]
        if found:
            more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
            named = f"{', '.join(str(each) for each in found[:_MOST_NAMED])}{more}"
            # The commonest next step; the user's own command takes the same path if it is what was wanted.
            then = _SHOWN[kind].format(shlex.quote(str(found[0])))
            what = f"it holds {counted(len(found), _CALLED[kind])}"
            return InputError(f"{path} is a folder and not {wanted}: {what}: {named}", f"Name one, for example: {then}")
    return InputError(
        f"{path} is a folder and not {wanted}: it holds no run, no .pte and no Python file",
        "Check the path; `sme2-kit profile MODEL` prints where its run is.",
    )


def _held(path: Path) -> dict[str, list[Path]]:
    held: dict[str, list[Path]] = {RUN: [], PROGRAM: [], MODEL: []}
    for each in itertools.islice(_files(path), _MOST_FILES):
        if each.name == MANIFEST:
            held[RUN].append(each.parent)
        elif each.suffix in (".pte", ".py"):
            held[PROGRAM if each.suffix == ".pte" else MODEL].append(each)
    return {kind: sorted(found) for kind, found in held.items()}


def _files(path: Path) -> Iterator[Path]:
    """Yield the files of a folder and of those in it; not what is hidden, nor what a run keeps."""
    for place, folders, names in os.walk(path):
        here = Path(place)
        deep = len(here.relative_to(path).parts) >= _DEEPEST
        folders[:] = [] if deep else sorted(n for n in folders if n not in (EARLIER, PROGRAMS) and n[0] not in "._")
        yield from (here / name for name in names)
