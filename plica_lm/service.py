"""A service: an engine in its own thread, for callers of an event loop.

Only that thread accesses the engine; requests and cancellations wait in an inbox until the current
step is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from queue import SimpleQueue
from threading import Thread
from typing import TypeAlias

from plica.runtime.error import PlicaError
from plica_lm.engine import Engine, GeneratedText, GenerationRequest, TextPiece


class ServiceStopped(Exception):
    """The service has ended, or its engine has failed: the cause says how."""


Heard: TypeAlias = TextPiece | PlicaError | ServiceStopped
"""A caller's message: a piece of text, or why there is none."""


class Service:
    """An engine that runs while it has something to do, until it is stopped."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.failure: BaseException | None = None
        self._inbox = SimpleQueue[Callable[[], None] | None]()
        self._listeners: dict[GeneratedText, Callable[[Heard], None]] = {}
        self._everyone: set[Callable[[Heard], None]] = set()
        self._thread = Thread(target=self._run, name="plica-lm engine", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the step that runs; texts that are being made are lost."""
        self._inbox.put(None)
        self._thread.join()

    async def pieces(self, request: GenerationRequest) -> AsyncGenerator[TextPiece, None]:
        """The continuation of a prompt. A caller that stops iterating cancels the text."""
        loop, texts = asyncio.get_running_loop(), list[GeneratedText]()
        queue = asyncio.Queue[Heard]()

        def hear(said: Heard) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(queue.put_nowait, said)

        def submit() -> None:
            try:
                text = self.engine.submit(request)
            except PlicaError as error:
                hear(error)
                return
            texts.append(text)
            self._listeners[text] = hear

        self._everyone.add(hear)
        self._inbox.put(submit)
        if self.failure is not None or not self._thread.is_alive():
            hear(ServiceStopped())
        try:
            while True:
                said = await queue.get()
                if isinstance(said, PlicaError):
                    raise said
                if isinstance(said, ServiceStopped):
                    raise said from self.failure
                yield said
                if said.finish is not None:
                    return
        finally:
            self._everyone.discard(hear)
            self._inbox.put(lambda: self._forget(texts))

    def _forget(self, texts: list[GeneratedText]) -> None:
        for text in texts:
            self._listeners.pop(text, None)
            self.engine.cancel(text)

    def _run(self) -> None:
        try:
            while self._heed():
                for text, piece in self.engine.step():
                    if (listener := self._listeners.get(text)) is not None:
                        listener(piece)
        except BaseException as error:
            self.failure = error
            raise
        finally:
            for hear in tuple(self._everyone):
                hear(ServiceStopped())

    def _heed(self) -> bool:
        """Handles callers' messages, waiting for them while there is no other work."""
        while not self._inbox.empty() or not self.engine.busy:
            if (asked := self._inbox.get()) is None:
                return False
            asked()
        return True
