"""A lock on a machine behind ssh, so that two people do not measure on it at once.

A process there holds it for as long as our connection feeds it: whatever happens here, or on the way, it ends and the
lock with it. Its command line says whose it is. Only a connection that died without a word can leave it behind for
some hours: if it was ours, and we know that we are no more, it is ended.
"""

import contextlib
import getpass
import os
import re
import selectors
import socket
import subprocess
import time
from datetime import datetime, timezone

from model_profiling.base.errors import KitError
from model_profiling.base.programs import ChildProcess, start
from model_profiling.platforms.environment import boot_id
from model_profiling.platforms.locks import TakenError, process_exists
from model_profiling.platforms.remote.device import ANSWER_S, Device

_NAME = "sme2-kit-lock"
_HELD, _TAKEN = "held", "taken"
# One file for all users of the machine, which may have another one; its folder by the name without links.
_FILE = """file="${SME2_KIT_LOCK:-/tmp/sme2_kit.lock}"
home=$(cd "${file%/*}" 2> /dev/null && pwd -P) && file=$home/${file##*/}"""
# One look at all processes: a question for each would take a slow machine seconds.
_SUSPECTS = f"$(grep -ls {_NAME} /proc/[0-9]*/cmdline)"
# It is made only where there is nothing, not even a link to nowhere, and opened for reading only, which is enough for
# flock(2). Where something else is in its place, or there is no `flock`, the list of processes has to do. Only the
# shell has it open, because `cat` outlives a shell that is killed. It ends with a `:` because a shell may become its
# last command, and then no longer says whose it is.
_HOLD = f"""umask 022
{_FILE}
[ -e "$file" ] || [ -L "$file" ] || ( set -C; : > "$file" ) 2> /dev/null
is_lock() {{ [ -f "$file" ] && [ -r "$file" ] && [ ! -L "$file" ]; }}
if is_lock && command -v flock > /dev/null && exec 9< "$file" && [ "$(readlink /proc/$$/fd/9)" = "$file" ]; then
  flock -n 9 || {{ echo {_TAKEN}; exit 0; }}
else
  exec 9<&-
  for p in {_SUSPECTS}; do
    p=${{p%/cmdline}}
    [ "${{p##*/}}" = $$ ] && continue
    tr '\\0' ' ' < "$p/cmdline" 2> /dev/null | grep -q ' {_NAME} [0-9]' && {{ echo {_TAKEN}; exit 0; }}
  done
fi
echo {_HELD}
cat > /dev/null 9<&-
:"""
# Whoever has the file open, under any number: a shell moves it. Only if nobody is seen to, all of that name.
_HOLDERS = f"""{_FILE}
held= others=
for p in {_SUSPECTS}; do
  p=${{p%/cmdline}}
  said=$(tr '\\0' '\\n' < "$p/cmdline" 2> /dev/null | sed -n '/^{_NAME}$/,$p' | tr '\\n' ' ')
  [ -n "$said" ] && [ "${{p##*/}}" != $$ ] || continue
  open=
  for f in "$p"/fd/*; do [ "$(readlink "$f" 2> /dev/null)" = "$file" ] && open=yes; done
  [ "$open" ] && held="$held${{p##*/}} $said
" || others="$others${{p##*/}} $said
"
done
printf %s "${{held:-$others}}"
true"""


class TargetLock:
    """Holds the machine from `take` to `release`."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._command: list[str] = []
        self._process: ChildProcess | None = None

    def take(self) -> None:
        """Hold the machine, or say who does."""
        if self._try():
            return
        if self._end_our_own_dead() and self._try():
            return
        raise TakenError(self._device.title, self._by_whom())

    def release(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.end_all()
            process.wait()
        process.stdout.close()
        self._device.freed(self._command)

    def _try(self) -> bool:
        # The time stands first: nobody else's command line has this name and then a number.
        who = [str(int(time.time())), boot_id(), str(os.getpid()), f"{_user()}@{socket.gethostname()}"]
        self._command = self._device.command("sh", "-c", _HOLD, _NAME, *who)
        self._process = start(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        said = self._answer(self._process)
        if said == _HELD:
            return True
        self.release()
        if said != _TAKEN:
            raise self._device.lost("did not say whether somebody measures on it")
        return False

    def _answer(self, process: ChildProcess) -> str:
        assert process.stdout is not None
        said, deadline = b"", time.monotonic() + ANSWER_S
        words = (_HELD.encode(), _TAKEN.encode())
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                said += chunk
                lines = said.splitlines()
                for word in words:
                    if word in lines:
                        return word.decode()
                if not chunk or len(said) > 1 << 20:
                    break
        return ""

    def _holders(self) -> list[re.Match[str]]:
        lines = self._device.script(_HOLDERS).stdout.splitlines()
        form = re.compile(rf"(\d+) {_NAME} (\d{{1,12}}) (\S*) (\d{{1,12}}) ([^\s@]+@\S+)")
        return [found for line in lines if (found := form.match(line))]

    def _by_whom(self) -> str:
        with contextlib.suppress(KitError):
            for holder in self._holders():
                since = datetime.fromtimestamp(int(holder[2]), timezone.utc)
                who = re.sub(r"[^\w.@-]", "?", holder[5])[:80]
                return f"{who} (process {holder[4]} there), since {since:%Y-%m-%d %H:%M} UTC"
        return ""

    def _end_our_own_dead(self) -> bool:
        """End the holders of runs of this computer that are no more; whether there were any."""
        ended = False
        for holder in self._holders():
            if holder[3] == boot_id() and not process_exists(int(holder[4])):
                ended |= self._device.shell("kill", "-9", holder[1]).code == 0
        if ended:
            time.sleep(0.2)
        return ended


def _user() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # nobody we know
        name = str(os.getuid())
    return re.sub(r"[^\w.-]", "_", name)
