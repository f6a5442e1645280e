"""Serving a page: on this machine only, to the page that was made for it only.

The server listens on the loopback address, accepts only requests for its own host name, which
prevents DNS rebinding, and answers queries only with the page's token. Requests are JSON of bounded
size; a trace is read, not executed.

>>> is_ours("127.0.0.1:8000", 8000), is_ours("example.org:8000", 8000)
(True, False)
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any, Final, TypeAlias

from plica.report.page import page, plain
from plica.runtime.error import PlicaError

LOOPBACK: Final = "127.0.0.1"
LARGEST: Final = 1 << 20  # bytes of a request

Answer: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Answers a question of the page; what it cannot do it refuses with a `PlicaError`."""


def is_ours(host: str, port: int) -> bool:
    """Whether a request names this server's host."""
    return host in (f"{LOOPBACK}:{port}", f"localhost:{port}")


def server(
    views: Sequence[Mapping[str, Any]], answers: Mapping[str, Answer], port: int = 0
) -> ThreadingHTTPServer:
    """A server of one page, not running yet; its address says which port it got."""
    word = secrets.token_hex(16)
    text = page(views, live=word).encode()
    lock = Lock()  # one question at a time: they compile and measure

    class Handler(BaseHTTPRequestHandler):
        @property
        def _port(self) -> int:
            address = self.server.server_address
            assert isinstance(address, tuple)
            return int(address[1])

        def do_GET(self) -> None:
            """The page itself."""
            if not is_ours(self.headers.get("Host", ""), self._port):
                self._say(403, b"This server is for this machine.", "text/plain")
            elif self.path != "/":
                self._say(404, b"There is one page here: /", "text/plain")
            else:
                self._say(200, text, "text/html; charset=utf-8")

        def do_POST(self) -> None:
            """A question of the page."""
            size = self.headers.get("Content-Length", "")
            ours = is_ours(self.headers.get("Host", ""), self._port)
            if not ours or not secrets.compare_digest(self.headers.get("X-Plica", ""), word):
                self._say(403, b"{}", "application/json")
                return
            answer = answers.get(self.path.lstrip("/"))
            if answer is None or not size.isdecimal() or int(size) > LARGEST:
                self._say(400, b"{}", "application/json")
                return
            try:
                asked = json.loads(self.rfile.read(int(size)))
                if not isinstance(asked, dict):
                    raise ValueError("a question is an object")
            except ValueError:
                self._say(400, b"{}", "application/json")
                return
            with lock:
                try:
                    found = dict(answer(asked))
                except PlicaError as error:
                    found = {"refused": str(error)}
            self._say(200, json.dumps(plain(found)).encode(), "application/json")

        def _say(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is logged."""

    return ThreadingHTTPServer((LOOPBACK, port), Handler)
