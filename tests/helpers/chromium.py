"""Drives a headless Chromium over its DevTools protocol: what a page logs, what it asks for, what it shows."""

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.helpers.waiting import LONGEST_S

BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--hide-scrollbars",
    "--remote-debugging-port=0", "--remote-allow-origins=*",
    # A page that was left is not kept for a way back.
    "--disable-features=BackForwardCache,ProactivelySwapBrowsingInstance",
)  # fmt: skip


class Tab:
    """One tab. `requests` are the addresses it asked for, `errors` what went wrong in it."""

    def __init__(self, address: str) -> None:
        from websocket import create_connection

        self._socket = create_connection(address, timeout=LONGEST_S)
        self._number = 0
        self._loaded = False
        self.requests: list[str] = []
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result
            self._notice(message)

    def _notice(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(str(parameters["args"]))
        elif method == "Page.loadEventFired":
            self._loaded = True

    def open(self, page: Path | str, width: int = 1100, height: int = 900) -> None:
        self._size(width, height)
        self._loaded = False
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        end = time.monotonic() + LONGEST_S
        while not self._loaded:
            assert time.monotonic() < end, "the page did not load"
            self._notice(json.loads(self._socket.recv()))
        self._settle()

    def resize(self, width: int, height: int = 900) -> None:
        """Show the open page in another size, without loading it again."""
        self._size(width, height)
        self._settle()

    def colours(self, scheme: str) -> None:
        """Ask pages for `light` or `dark` colours and for no animations, as the system's settings do."""
        wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self) -> bytes:
        """What one can see now, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", optimizeForSpeed=True)["data"])

    def _size(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def _settle(self) -> None:
        """Let layout and observers have their turn."""
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => 0)")

    def value(self, expression: str) -> Any:
        """What an expression is in the page, as JSON has it."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key, as a person does."""
        code = {"Enter": ("\r", 13), "Tab": ("", 9), "Escape": ("", 27)}
        code |= {f"Arrow{name}": ("", 37 + at) for at, name in enumerate(("Left", "Up", "Right", "Down"))}
        text, number = code.get(key, (key, ord(key.upper()) if len(key) == 1 else 0))
        options = {"key": key, "windowsVirtualKeyCode": number}
        self.call("Input.dispatchKeyEvent", type="keyDown", **options, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **options)

    def click(self, x: float, y: float) -> None:
        """Move the mouse there and click, as a person does."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def until(self, expression: str) -> Any:
        """Wait until an expression is true, and return what it is then."""
        end = time.monotonic() + LONGEST_S
        while not (found := self.value(expression)):
            assert time.monotonic() < end, f"{expression} did not come true"
            time.sleep(0.1)
        return found

    def write(self, text: str) -> None:
        self.call("Input.insertText", text=text)


@contextlib.contextmanager
def chromium(*flags: str) -> Iterator[Tab]:
    """A fresh browser with one empty tab; gone afterwards, with all it wrote. `flags` are added to the usual ones."""
    assert BINARY is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        command = [BINARY, *_FLAGS, *flags, f"--user-data-dir={home}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield Tab(_address(Path(home) / "DevToolsActivePort", process))
        finally:
            process.terminate()
            process.wait(LONGEST_S)


def _address(port_file: Path, process: "subprocess.Popen[bytes]") -> str:
    from urllib.request import urlopen

    end = time.monotonic() + LONGEST_S
    while not (port_file.is_file() and port_file.read_text().count("\n")):
        assert time.monotonic() < end and process.poll() is None, "Chromium did not start"
        time.sleep(0.05)
    port = port_file.read_text().split()[0]
    while True:
        with urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
            pages = [target for target in json.load(answer) if target["type"] == "page"]
        if pages:
            return str(pages[0]["webSocketDebuggerUrl"])
        assert time.monotonic() < end, "Chromium opened no tab"
        time.sleep(0.05)
