"""What made a measurement: the machine, and the runner with its libraries. A result is reused only by what made it."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from model_profiling.upstream.libraries import PREFIX

_GIB = 1 << 30
# Memory is counted in eighths of the power of two below it.
_EIGHTHS = 8


def hashed(data: bytes) -> str:
    """Return a SHA-256; who only reads a dump needs none, and hashlib takes long to load."""
    import hashlib

    return hashlib.sha256(data).hexdigest()


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What decides how fast a machine is. `cpu` names all models, '' and 0 are not known; `mark` tells devices apart
    that are alike: another one for another serial number or power mode, '' where nothing but the rest is known."""

    arch: str
    features: list[str]
    cpu: str = ""
    cores: int = 0
    memory_gib: float = 0.0
    mark: str = ""

    def __str__(self) -> str:
        """Return `Intel Xeon, 4 CPUs, 16 GiB`."""
        parts = [self.cpu or f"unknown CPU ({self.arch})"]
        parts += [f"{self.cores} CPUs"] if self.cores else []
        return ", ".join(parts + ([f"{self.memory_gib:g} GiB"] if self.memory_gib else []))

    @property
    def sha256(self) -> str:
        return hashed(msgspec.json.encode(self))

    def may_be(self, other: "Machine") -> bool:
        """Return whether nothing that is known of both says that they are two: neither CPU, cores nor memory."""
        sizes = ((self.cores, other.cores), (self.memory_gib, other.memory_gib))
        return self.cpu == other.cpu and all(a == b for a, b in sizes if a and b)

    def difference(self, other: "Machine") -> str:
        """Return what is another machine about `other`, in words; '' if it is the same."""
        if self == other:
            return ""
        if str(self) != str(other):
            return f"measured on another machine ({other})"
        if self.mark != other.mark:
            return "measured on another device of the same kind, or in another power mode"
        changed = sorted({*self.features} ^ {*other.features})
        return f"the CPU's features changed ({', '.join(changed)})" if changed else "measured on another architecture"


def machine_of(arch: str, features: Sequence[str], environment: Mapping[str, object], identity: str = "") -> Machine:
    cores, memory = environment.get("cores"), environment.get("memory_bytes")
    return Machine(
        arch,
        sorted(features),
        str(environment.get("cpu") or ""),
        cores if isinstance(cores, int) else 0,
        installed_gib(memory) if isinstance(memory, int) else 0.0,
        hashed(identity.encode())[:16] if identity else "",
    )


def installed_gib(visible: int) -> float:
    """Return how much memory a machine has, from what its kernel leaves: a little less, and another part of it after
    every update. Rounded up to an eighth of the power of two below it, as memory is built: 15.4 is 16, 62.6 is 64."""
    if visible <= 0:
        return 0.0
    step = max(1, (1 << (visible.bit_length() - 1)) // _EIGHTHS)
    return round(-(-visible // step) * step / _GIB, 6)


RunnerKind = Literal["kit", "foreign", "runtime"]


def executorch_name(version: str, content: str) -> str:
    """Return `1.5.1`, `1.5.1 (own build 3f2a91c0)` with the hash of a build's content, or '' where it is not known."""
    known = content[:8]
    return version if not known or known in version else f"{version} (own build {known})"


class RunnerRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which binary ran. A foreign runner cannot be paced: its launches alternate and its latency is traced.

    `libraries` are those that it loads, by name, each with its SHA-256; '' of one that is no file.
    """

    kind: RunnerKind
    path: str
    sha256: str
    target: str = ""
    compiler: str = ""
    # The version of ExecuTorch that the kit's runner was built against. Of a build of the user's own also a hash of its
    # headers and libraries, and its path as the user gave it.
    executorch: str = ""
    libraries: dict[str, str] = {}
    executorch_content: str = ""
    executorch_path: str = ""
    # Of a process of another runtime (runtimes/): its name, and the versions of its packages.
    runtime: str = ""
    packages: dict[str, str] = {}

    @property
    def executorch_name(self) -> str:
        return executorch_name(self.executorch, self.executorch_content)

    @property
    def content(self) -> str:
        """A hash of all code that runs: the binary and its libraries."""
        parts = [self.sha256, sorted(self.libraries.items())]
        return hashed(
            msgspec.json.encode([*parts, self.runtime, sorted(self.packages.items())] if self.runtime else parts)
        )

    @property
    def executorch_libraries(self) -> str:
        """A hash of those that are ExecuTorch's; '' if none was recorded."""
        of_it = sorted((name, digest) for name, digest in self.libraries.items() if name.startswith(PREFIX))
        return hashed(msgspec.json.encode(of_it)) if of_it else ""

    def difference(self, other: "RunnerRecord") -> str:
        """Return what of the code of `other` is not that of this one, in words; '' if nothing."""
        if self.sha256 != other.sha256:
            return "the runner changed"
        names = {name for name, _ in self.libraries.items() ^ other.libraries.items()}
        if names and not other.libraries:
            return "the runner's libraries were not recorded"
        return f"the runner's libraries changed ({', '.join(sorted(names))})" if names else ""


class Maker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything beside programs and settings that decides what is measured."""

    machine: Machine
    runner: RunnerRecord

    @property
    def identity(self) -> str:
        """Another one for another machine, another runner, or another byte of any library that it loads."""
        return f"{self.machine.sha256} {self.runner.content}"

    def difference(self, other: "Maker | None") -> str:
        """Return what about `other` is another maker, in words; '' if it is the same."""
        if other is None:
            return "by which machine and libraries they were measured was not recorded"
        return self.machine.difference(other.machine) or self.runner.difference(other.runner)
