"""Which machine measured something, so far as that can be known: machines that are alike in all of it are the same.

Nothing in here changes when a machine is started again. A virtual machine that moves to another host with the same
CPU model is the same machine: nothing that it can see tells.
"""

from collections.abc import Mapping, Sequence

import msgspec

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
    """Return the machine in what a platform found out."""
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
