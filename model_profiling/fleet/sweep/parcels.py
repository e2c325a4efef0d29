"""Folders on their way between machines of a cluster: packed into bytes, and unpacked only where they belong."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from model_profiling.errors import RunError

_MOST_BYTES, _MOST_FILES = 16 << 30, 100_000


def packed(home: Path, names: Sequence[str] | None = None) -> bytes:
    """The files below a folder, or those of it that are named; links and hidden folders are left out."""
    found = [home / name for name in names] if names is not None else sorted(home.iterdir())
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for entry in found:
            for path in [entry, *sorted(entry.rglob("*"))] if entry.is_dir() else [entry]:
                inside = path.relative_to(home)
                if path.is_file() and not path.is_symlink() and not any(p.startswith(".") for p in inside.parts[:-1]):
                    archive.add(path, arcname=inside.as_posix(), recursive=False)
    return buffer.getvalue()


def unpacked(data: bytes, home: Path) -> None:
    """Unpack into a folder that is empty. What would lie elsewhere, and all but plain files, is refused."""
    home.mkdir(parents=True, exist_ok=True)
    count = size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            for member in archive:
                count, size = count + 1, size + member.size
                if not _is_plain(member) or count > _MOST_FILES or size > _MOST_BYTES:
                    raise RunError(
                        f"a machine of the cluster sent {member.name[:80]!r}, which no result has",
                        "Check which machines are in the cluster.",
                    )
                source = archive.extractfile(member)
                assert source is not None
                place = home / member.name
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("xb") as target:
                    while chunk := source.read(1 << 20):
                        target.write(chunk)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise RunError(f"a result that came from the cluster cannot be unpacked: {error}", "Run it again.") from None


def _is_plain(member: tarfile.TarInfo) -> bool:
    path = PurePosixPath(member.name)
    return (
        member.isreg()
        and bool(path.parts)
        and not path.is_absolute()
        and ".." not in path.parts
        and member.name.isprintable()
        and "\\" not in member.name
    )
