"""A real Chromium without a window, asked by its own protocol over two pipes: no package needed.

>>> EVALUATE
'Runtime.evaluate'
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
from collections.abc import Sequence
from fcntl import F_DUPFD_CLOEXEC, fcntl
from pathlib import Path
from types import TracebackType
from typing import Any, Final

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
EVALUATE: Final = "Runtime.evaluate"
DRAWN: Final = "document.body && document.body.dataset.ready === 'yes'"
"""Where the script of one of our pages has drawn it."""
LOADED: Final = "document.readyState === 'complete'"
WAIT: Final = 60_000
"""Milliseconds until a promise of the page is given up."""


def installed() -> str | None:
    """Where a Chromium is, None where there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


class Browser:
    """A page in a browser: opened, asked, looked at."""

    def __init__(
        self, folder: Path, width: int = 1280, height: int = 900, flags: Sequence[str] = ()
    ) -> None:
        path = installed()
        assert path is not None
        ours_in, out = os.pipe()
        into, ours_out = os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to 4.
        theirs = [fcntl(each, F_DUPFD_CLOEXEC, 10) for each in (into, out)]
        words = [path, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                 f"--user-data-dir={folder / 'home'}", f"--window-size={width},{height}",
                 "--hide-scrollbars", *flags, "about:blank"]  # fmt: skip
        nowhere = [(os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_WRONLY, 0) for each in (1, 2)]
        ends = [(os.POSIX_SPAWN_DUP2, end, at) for at, end in enumerate(theirs, 3)]
        self._process = os.posix_spawn(path, words, os.environ, file_actions=[*nowhere, *ends])
        for each in (into, out, *theirs):
            os.close(each)
        self._read, self._write = os.fdopen(ours_in, "rb", 0), os.fdopen(ours_out, "wb", 0)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.errors: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        found = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        self.ask("Runtime.enable")
        self.ask("Page.enable")
        self.size(width, height)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(answer["params"]["exceptionDetails"]))
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = self._read.read(1 << 16)
            assert more, "the browser is gone"
            self._buffer += more
        first, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        return message

    def run(self, script: str) -> Any:  # Any: what JSON holds
        """What an expression of JavaScript gives in the page."""
        answer = self.ask(EVALUATE, expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until a condition holds in the page."""
        self.run(
            f"new Promise((done, fail) => {{ const end = performance.now() + {WAIT};"
            f" const look = () => {{ if ({condition}) done(true);"
            " else if (performance.now() > end) fail(new Error('never'));"
            " else setTimeout(look, 20); }; look(); })"
        )

    def open(self, address: str, ready: str = DRAWN) -> None:
        """Load a page and wait until a condition says that it is there."""
        self.ask("Page.navigate", url=address)
        self.until(ready)

    def click(self, selector: str) -> None:
        """Click on the first element of a selector."""
        self.run(
            f"document.querySelector({json.dumps(selector)}).dispatchEvent("
            "new MouseEvent('click', {bubbles: true}))"
        )

    def key(self, key: str) -> None:
        """Press a key."""
        self.run(
            "document.body.dispatchEvent(new KeyboardEvent('keydown',"
            f" {{key: {json.dumps(key)}, bubbles: true, cancelable: true}}))"
        )

    def fill(self, selector: str, text: str) -> None:
        """Write into a field."""
        self.run(
            f"(() => {{ const field = document.querySelector({json.dumps(selector)});"
            f" field.value = {json.dumps(text)};"
            " field.dispatchEvent(new Event('input', {bubbles: true}));"
            " field.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    def text(self, selector: str) -> str:
        """The text of the first element of a selector."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))

    def count(self, selector: str) -> int:
        """How many elements a selector finds."""
        return int(self.run(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def size(self, width: int, height: int) -> None:
        """The size of the window."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=width < 600)  # fmt: skip

    def scheme(self, name: str) -> None:
        """Dark or light."""
        self.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": name}])  # fmt: skip

    def shot(self, path: Path) -> None:
        """Write what is seen as PNG."""
        answer = self.ask("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        os.kill(self._process, signal.SIGTERM)
        os.waitpid(self._process, 0)
        self._read.close()
        self._write.close()
