"""The zip an ETRecord is: only the members asked for, none larger than its header said, none that explodes."""

import contextlib
import re
import zipfile
from pathlib import Path
from typing import TypeVar

import msgspec

from model_profiling.base import files, zips
from model_profiling.base.errors import InputError
from model_profiling.upstream.etrecord_contents import IDENTIFIER

T = TypeVar("T")

# What may be unpacked of one record in all, and no more than so many times its size.
MAX_UNPACKED = 256 << 20
# How Python writes numbers that JSON has not. An attention mask is enough for it.
_NOT_JSON = re.compile(rb"(?<=[:,\[ ])(-?Infinity|NaN)(?=[,\]} \n])")


class EtrecordError(InputError):
    """The file is not an ETRecord, or not one with all that is needed."""

    def __init__(self, path: Path, problem: str, hint: str = "") -> None:
        super().__init__(
            f"{path} is not a readable ETRecord: {problem}",
            hint or "Export the model again; if the file was copied, copy it again.",
        )


class Archive:
    """An open ETRecord. Use it in a `with`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.ExitStack() as opened:
            try:
                file = opened.enter_context(files.open_file(path))
                self._zip = opened.enter_context(zipfile.ZipFile(file))
            except FileNotFoundError:
                raise EtrecordError(path, "it does not exist", "Check the path.") from None
            except OSError as error:
                raise EtrecordError(path, f"it cannot be read, {error.strerror}", "Check the path.") from None
            except zips.ERRORS as error:
                raise EtrecordError(path, f"it is not a complete zip file ({error})") from None
            self._opened = opened.pop_all()
        self.names = frozenset(self._zip.namelist())
        self._left = min(MAX_UNPACKED, zips.most_unpacked(files.size_of(file)))

    def __enter__(self) -> "Archive":
        if IDENTIFIER not in self.names:
            self._opened.close()
            raise EtrecordError(
                self.path, f"it has no member {IDENTIFIER}", "Check that it is an .etrecord, not another kind of file."
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def decode(self, name: str, type_: type[T]) -> T:
        """Read one member as JSON of a known shape; keys the shape does not name are skipped."""
        data = self._read(name)
        try:
            return msgspec.json.decode(_NOT_JSON.sub(b"null", data), type=type_)
        except (msgspec.DecodeError, ValueError) as error:
            raise EtrecordError(self.path, f"{name} is not what ExecuTorch writes: {error}") from None
        except RecursionError:
            raise EtrecordError(self.path, f"{name} is nested too deeply") from None

    def _read(self, name: str) -> bytes:
        """Unpack one member, after a look at what it claims to be."""
        if name not in self.names:
            raise EtrecordError(self.path, f"it has no member {name}", _MISSING)
        info = self._zip.getinfo(name)
        if info.file_size > self._left:
            allowed = f"more than {MAX_UNPACKED} bytes, or than {zips.MAX_RATIO} times its size"
            raise EtrecordError(self.path, f"with {name} it unpacks to {allowed}")
        self._left -= info.file_size
        try:
            with self._zip.open(info) as member:
                # zipfile stops at the size the header claims, which we have just checked.
                return member.read(info.file_size + 1)
        except zips.ERRORS as error:
            raise EtrecordError(self.path, f"{name} is corrupt, or of an unknown compression ({error})") from None


_MISSING = (
    "Ask the exporter for the ETRecord after to_executorch(): with generate_etrecord=True it is complete only then."
)
