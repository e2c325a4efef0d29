"""A bench for tests over ssh: real OpenSSH servers on loopback, each with a fault of its own if a test wants one."""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from tests.conftest import ROOT, kit, needs, needs_hardware
from tests.helpers.adb_lab import Finished
from tests.helpers.waiting import until

# What a host does with the command that it is sent, in place of the user's login shell.
PLAIN = 'exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'


def caching_in(folder: Path) -> str:
    """Return what a host does whose user has the cache of the kit in `folder`."""
    return f"export XDG_CACHE_HOME={shlex.quote(str(folder))}; {PLAIN}"


# Between ssh and its server, in both directions: so many bytes in a second.
_SLOW_LINK = """
import os, socket, sys, threading, time

link = socket.create_connection((sys.argv[1], int(sys.argv[2])))
step = max(1, int(sys.argv[3]) // 50)


def move(read, write, end):
    while data := read(step):
        write(data)
        time.sleep(len(data) / step / 50)
    end()


up = threading.Thread(target=move, args=(lambda n: os.read(0, n), link.sendall, lambda: link.shutdown(1)), daemon=True)
up.start()
move(link.recv, lambda data: os.write(1, data), lambda: None)
"""


class SshLab:
    """Starts servers on ports of their own, with keys and a configuration that nobody else has."""

    def __init__(self, home: Path) -> None:
        server = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        needs(server is not None and shutil.which("ssh") is not None, "OpenSSH's client and server")
        self._server = server or ""
        self.home = home
        self.config = home / "config"
        self.known = home / "known_hosts"
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        # As a factor of what the kit waits for a host that does not answer.
        self.patience = "1"

    def __enter__(self) -> "SshLab":
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.home / name)], check=True)
        self.config.write_text("")
        self.known.write_text("")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for server in self._servers.values():
            server.kill()
            server.wait()

    def host(self, name: str, does: str = PLAIN, known: bool = True, sessions: int = 10, **options: str) -> str:
        """A new host of this name; `does` is a script that gets the command in $SSH_ORIGINAL_COMMAND; `options` are
        what the user's configuration says of it."""
        script = self.home / f"{name}.sh"
        # Two labs at once do not keep each other waiting.
        script.write_text(f"#!/bin/sh\nexport SME2_KIT_LOCK={shlex.quote(f'{self.home}/lock')}\n{does}\n")
        script.chmod(0o755)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings = {
            "ListenAddress": f"127.0.0.1:{port}",
            "HostKey": f'"{self.home / "host"}"',
            "AuthorizedKeysFile": f'"{self.home / "user.pub"}"',
            "PasswordAuthentication": "no",
            "PermitRootLogin": "yes",
            "StrictModes": "no",
            "UsePAM": "no",
            "PidFile": "none",
            "ForceCommand": shlex.quote(str(script)),
            "MaxSessions": sessions,
            # bash reads ~/.bashrc for a server unless it is told that it is not the first shell.
            "SetEnv": "SHLVL=5",
        }
        file = self.home / f"{name}.sshd"
        file.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        log = (self.home / f"{name}.log").open("wb")
        self._servers[name] = subprocess.Popen([self._server, "-D", "-e", "-f", str(file)], stderr=log)
        log.close()
        if known:
            key = (self.home / "host.pub").read_text().split()[:2]
            with self.known.open("a") as file_:
                file_.write(f"[127.0.0.1]:{port} {' '.join(key)}\n")
        lines = {"HostName": "127.0.0.1", "Port": port, "IdentityFile": f'"{self.home}/user"', "IdentitiesOnly": "yes"}
        lines |= {"UserKnownHostsFile": f'"{self.known}"', "GlobalKnownHostsFile": "/dev/null", **options}
        with self.config.open("a") as file_:
            file_.write(f"Host {name}\n" + "".join(f"  {key} {value}\n" for key, value in lines.items()))
        until(lambda: _listens(port))
        return name

    def slow_link(self, bytes_per_s: int) -> str:
        """What an ssh_config says of a host behind a slow link."""
        script = self.home / "slow_link.py"
        script.write_text(_SLOW_LINK)
        return f"{shlex.join([sys.executable, str(script)])} %h %p {bytes_per_s}"

    def kit(self, host: str, command: str, *arguments: object) -> Finished:
        """`sme2-kit COMMAND --platform ssh …` on a host, to its end."""
        done = kit(*self.words(host, command), *arguments, env=self._patiently())
        return Finished(done.returncode, done.stdout, done.stderr)

    def _patiently(self) -> dict[str, str]:
        # Commands with this variable import the kit anew (see `warm`).
        return {} if self.patience == "1" else {"SME2_KIT_PATIENCE": self.patience}

    def start_kit(self, host: str, command: str, *arguments: object) -> "subprocess.Popen[str]":
        """The same, left running."""
        words = [sys.executable, "-m", "model_profiling", *self.words(host, command), *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SME2_KIT_PATIENCE": self.patience}
        return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def words(self, host: str, command: str) -> list[str]:
        return [command, "--platform", "ssh", "--host", host, "--ssh-config", str(self.config)]

    def cut(self, host: str) -> None:
        """End the connections of a host from its side; the server stays."""
        for pid in _children(self._servers[host].pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

    def kill_connections(self) -> None:
        """Kill ssh's own background processes on this side."""
        for pid, words in processes():
            if str(self.config) in words and any("ControlMaster=yes" in word for word in words):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)

    def running(self, folder: Path) -> list[int]:
        """The processes that run what lies in the kit's folder of a host."""
        return [pid for pid, words in processes() if any(word.startswith(f"{folder}/") for word in words)]


def processes() -> Iterator[tuple[int, list[str]]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield int(path.parent.name), path.read_bytes().decode(errors="replace").split("\0")


def _children(pid: int) -> list[int]:
    """All processes below one, the deepest first."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            if parent == pid:
                found += [*_children(int(path.parent.name)), int(path.parent.name)]
    return found


@contextlib.contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A file system of its own in memory, for example full or without the right to run something."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", ",".join(options), "none", str(folder)]
    done = subprocess.run(words, capture_output=True, check=False) if os.geteuid() == 0 else None
    needs_hardware(done is not None and done.returncode == 0, "the right to mount file systems")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


@contextlib.contextmanager
def foreign_system(folder: Path) -> Iterator[str]:
    """What a host does if it is a system without glibc: all that it has is busybox."""
    busybox = shutil.which("busybox")
    needs(busybox is not None, "busybox-static")
    needs_hardware(os.geteuid() == 0, "the right to change the root directory")
    (folder / "bin").mkdir(parents=True)
    shutil.copy(busybox or "", folder / "bin/busybox")
    listed = subprocess.run([busybox or "", "--list"], capture_output=True, text=True, check=True).stdout
    for name in listed.split():
        with contextlib.suppress(FileExistsError):
            (folder / "bin" / name).symlink_to("busybox")
    for name in ("tmp", "root", "etc"):
        (folder / name).mkdir()
    shared = ("proc", "sys", "dev")
    try:
        for name in shared:
            (folder / name).mkdir()
            done = subprocess.run(["mount", "--rbind", f"/{name}", str(folder / name)], check=False)
            needs_hardware(done.returncode == 0, "the right to mount file systems")
        inside = f'exec chroot {shlex.quote(str(folder))} /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
        yield f"export SME2_KIT_LOCK=/tmp/lock HOME=/root PATH=/bin:/usr/bin:/sbin:/usr/sbin; {inside}"
    finally:
        for name in shared:
            subprocess.run(["umount", "-l", "-R", str(folder / name)], stderr=subprocess.DEVNULL, check=False)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
