"""`--input`, once for each input: a shape, a dtype with a shape and a range, or a file. Earlier flags work unlisted."""

import argparse
from pathlib import Path
from typing import Any

from model_profiling.cli.shared_flags import also_as

_SPEC = (
    "a random input, for a model from a file that brings no example inputs: a shape (1,3,224,224), or dtype, shape and "
    "range of values without its end (int64:1,128:0..30522 are token ids for an embedding of 30522 rows; integers "
    "without a range are 0 and 1; bool:1,128)"
)
_FILE = "a file to run on: .npy or raw .bin (default: the export's samples, else ones)"


def add_inputs(parser: argparse._ActionsContainer, specs: bool = True, files: bool = False) -> None:
    """Add `--input`; specs are put into `args.inputs_asked`, files into `args.inputs`, each in the order given."""
    kinds = [text for text, taken in ((_SPEC, specs), (_FILE, files)) if taken]
    metavar = "|".join(["SHAPE"] * specs + ["FILE"] * files)
    text = f"{'; or '.join(kinds)}; once for each input"
    flag = parser.add_argument("--input", action=_Input, dest="inputs_asked", default=[], metavar=metavar, help=text)
    flag.const = (specs, files)
    also_as(parser, flag, ["--input-shape"] if specs else [])
    if files:
        parser.add_argument("--inputs", nargs="+", action="extend", type=Path, default=[], help=argparse.SUPPRESS)


class _Input(argparse.Action):
    """Puts a value where inputs of its form belong."""

    def __call__(self, parser: Any, namespace: Any, value: Any, option_string: str | None = None) -> None:
        dest = "inputs" if _is_file(value, *self.const) else self.dest
        setattr(namespace, dest, [*getattr(namespace, dest), Path(value) if dest == "inputs" else value])


def _is_file(text: str, specs: bool, files: bool) -> bool:
    """Return whether a value names a file; refuses what the command does not take, and what could be either."""
    from model_profiling.base import files as file_access
    from model_profiling.base.errors import InputError
    from model_profiling.models.options import INPUT_FORMS, input_spec

    there, why = file_access.is_file(Path(text)), None
    try:
        input_spec(text)
    except InputError as error:
        why = error
    if there and why is None and specs and files:
        raise InputError(
            f"--input {text} is a shape, and a file here has that name", f"Write float32:{text}, or ./{text}."
        )
    if files and (there or (why is not None and Path(text).suffix in (".npy", ".bin"))):
        return True  # one that is not there is refused with the others
    if not specs:
        raise InputError(f"--input {text} is not a file", f"A .pte has its shapes: give it files. {INPUT_FORMS}")
    if there and why is not None:
        raise InputError(f"--input {text}: this command runs nothing, and takes no file", INPUT_FORMS)
    if why is not None:
        raise why
    return False
