"""A server of the OpenAI protocol: completions and chats, as a whole or streamed.

    POST /v1/chat/completions    POST /v1/completions    GET /v1/models    GET /health

Texts of all clients are made side by side (`plica_lm.engine`).  A client that goes away gives up
its text.  What is wrong with a request is said of the field, with status 400; a request that has no
place is refused with 503 and may come again.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from plica.core import did_you_mean
from plica.runtime.error import Diagnostic, InputError, Place, PlicaError
from plica_lm.engine import Engine, Piece, Request
from plica_lm.generate import chat_tokens
from plica_lm.model import Model
from plica_lm.sampling import Sampling
from plica_lm.service import Service, ServiceStopped

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request as Http
    from starlette.responses import Response

Json = Mapping[str, Any]  # Any: what JSON holds

MAX_BODY_BYTES: Final = 1 << 22
MAX_STOP_WORDS, MAX_STOP_LENGTH, MAX_LOGPROBS = 16, 256, 20

NUMBER: Final = (int, float)
FIELDS: Final[Mapping[str, tuple[type, ...]]] = {
    "model": (str,), "stream": (bool,), "stop": (str, list), "seed": (int,), "n": (int,),
    "max_tokens": (int,), "max_completion_tokens": (int,), "temperature": NUMBER, "top_p": NUMBER,
    "top_k": (int,), "min_p": NUMBER, "repetition_penalty": NUMBER, "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER, "stream_options": (dict,), "user": (str,), "metadata": (dict,),
}  # fmt: skip
"""The fields of a request, and what each may be."""

OF_CHATS: Final = {"messages": (list,), "logprobs": (bool,), "top_logprobs": (int,)}
OF_COMPLETIONS: Final = {"prompt": (str, list), "logprobs": (int,)}

SAMPLING: Final = {
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
    "repetition_penalty": "repetition", "presence_penalty": "presence",
    "frequency_penalty": "frequency", "seed": "seed",
}  # fmt: skip
"""What the protocol calls the numbers of sampling."""


class Asked(NamedTuple):
    """A request, and how its answer is told."""

    of: Request
    chat: bool
    stream: bool
    usage: bool
    name: str


def wrong(message: str, at: str, expected: str, found: object = None) -> InputError:
    """The refusal of a field."""
    near = None if found is None else str(found)[:200]
    return InputError(Diagnostic("input-value", message, Place(node=at), expected, near))


def asked(of: object, model: Model, chat: bool) -> Asked:
    """What a body asks for; everything that is not as it should be is refused by name."""
    known = {**FIELDS, **(OF_CHATS if chat else OF_COMPLETIONS)}
    if not isinstance(of, dict):
        raise wrong("The body is no JSON object.", "body", "an object")
    body = {name: value for name, value in of.items() if value is not None}
    for name, value in body.items():
        if name not in known:
            hint = did_you_mean(name, tuple(known))
            message = " ".join(filter(None, (f"There is no field {name!r}.", hint)))
            raise wrong(message, name, ", ".join(sorted(known)))
        if not isinstance(value, known[name]) or (
            isinstance(value, bool) and bool not in known[name]
        ):
            words = " or ".join(each.__name__ for each in known[name])
            raise wrong(f"{name} has another type.", name, words, type(value).__name__)
    if body.get("n", 1) != 1:
        raise wrong("One text is made for each request.", "n", "1", body["n"])
    if body.get("model", model.name) != model.name:
        raise wrong("There is no such model here.", "model", model.name, body["model"])
    stop = body.get("stop", [])
    ends = [stop] if isinstance(stop, str) else stop
    if len(ends) > MAX_STOP_WORDS or not all(
        isinstance(each, str) and 0 < len(each) <= MAX_STOP_LENGTH for each in ends
    ):
        expected = f"at most {MAX_STOP_WORDS} words of 1 to {MAX_STOP_LENGTH} characters"
        raise wrong("stop is not what it should be.", "stop", expected)
    drawn = {"temperature": 1.0, "seed": secrets.randbits(63)}
    sampling = Sampling(**drawn | {SAMPLING[name]: body[name] for name in SAMPLING if name in body})
    logprobs = body.get("logprobs")
    if chat:
        logprobs = body.get("top_logprobs", 0) if logprobs else None
    if logprobs is not None and not 0 <= logprobs <= MAX_LOGPROBS:
        raise wrong("So many logprobs are not told.", "logprobs", f"0 to {MAX_LOGPROBS}", logprobs)
    limit = body.get("max_completion_tokens", body.get("max_tokens", model.context))
    prompt = _chat(body, model) if chat else _prompt(body, model)
    request = Request(tuple(prompt), sampling, limit, tuple(ends), logprobs)
    usage = bool(body.get("stream_options", {}).get("include_usage"))
    name = ("chatcmpl-" if chat else "cmpl-") + secrets.token_hex(12)
    return Asked(request, chat, body.get("stream", False), usage, name)


def _prompt(body: Json, model: Model) -> Sequence[int]:
    prompt: str | list[int] = body.get("prompt", "")
    if isinstance(prompt, str):
        return model.tokenizer.encode(prompt)
    count = model.tokenizer.inner.get_vocab_size()
    if not all(type(each) is int and each in range(count) for each in prompt):
        raise wrong("prompt is no text of this model.", "prompt", "a string, or a list of tokens")
    return prompt


def _chat(body: Json, model: Model) -> Sequence[int]:
    messages = body.get("messages", [])
    if not messages or not all(
        isinstance(each, dict) and isinstance(each.get("role"), str)
        and isinstance(each.get("content"), str) for each in messages
    ):  # fmt: skip
        expected = "a list of objects with a role and a content, both strings"
        raise wrong("messages is not what it should be.", "messages", expected)
    return chat_tokens(model, messages)


class Teller:
    """How the protocol tells pieces of a text."""

    def __init__(self, of: Asked, model: Model) -> None:
        self.of, self.model, self.count = of, model, 0
        kind = "chat.completion" if of.chat else "text_completion"
        chunk = ".chunk" if of.stream and of.chat else ""
        self.head = {"id": of.name, "object": kind + chunk, "created": int(time.time()),
                     "model": model.name}  # fmt: skip

    def chunk(self, piece: Piece) -> Json:
        """One piece of a text that is streamed."""
        first, self.count = self.count == 0, self.count + 1
        said: Json = {"text": piece.text}
        if self.of.chat:
            said = {"delta": ({"role": "assistant"} if first else {}) | {"content": piece.text}}
        return self._choice(said, [piece])

    def whole(self, pieces: Sequence[Piece]) -> Json:
        """A text at once."""
        self.count, text = len(pieces), "".join([each.text for each in pieces])
        said: Json = {"text": text}
        if self.of.chat:
            said = {"message": {"role": "assistant", "content": text}}
        return {**self._choice(said, pieces), "usage": self.usage()}

    def usage(self) -> Json:
        prompt = len(self.of.of.prompt)
        return {"prompt_tokens": prompt, "completion_tokens": self.count,
                "total_tokens": prompt + self.count}  # fmt: skip

    def _choice(self, said: Json, pieces: Sequence[Piece]) -> Json:
        told = {"index": 0, **said, "finish_reason": pieces[-1].finish,
                "logprobs": self._logprobs(pieces)}  # fmt: skip
        return {**self.head, "choices": [told]}

    def _logprobs(self, pieces: Sequence[Piece]) -> Json | None:
        if self.of.of.logprobs is None:
            return None
        name = self.model.tokenizer.name
        if self.of.chat:
            return {"content": [
                {"token": name(each.token), "logprob": each.logprob, "top_logprobs": [
                    {"token": name(token), "logprob": logs} for token, logs in each.likeliest]}
                for each in pieces]}  # fmt: skip
        return {
            "tokens": [name(each.token) for each in pieces],
            "token_logprobs": [each.logprob for each in pieces],
            "top_logprobs": [{name(token): logs for token, logs in each.likeliest}
                             for each in pieces],
        }  # fmt: skip


def application(engine: Engine) -> Starlette:
    """The server of an engine, for any ASGI server."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, StreamingResponse
    from starlette.routing import Route

    model, started = engine.model, list[Service]()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        started.append(Service(engine))
        yield
        started.pop().stop()

    def refused(error: PlicaError, status: int = 400) -> Response:
        of = error.diagnostics[0]
        busy = of.code == "busy"
        at = None if of.place is None else of.place.node
        kind = "overloaded_error" if busy else "invalid_request_error"
        told = {"message": str(error), "type": kind, "code": of.code, "param": at}
        return JSONResponse({"error": told}, 503 if busy else status,
                            {"Retry-After": "1"} if busy else None)  # fmt: skip

    async def body(http: Http) -> object:
        parts, size = list[bytes](), 0
        async for part in http.stream():
            parts.append(part)
            if (size := size + len(part)) > MAX_BODY_BYTES:
                message = "The body of the request is too large."
                expected = f"{MAX_BODY_BYTES} bytes or less"
                raise InputError(Diagnostic("too-large", message, None, expected))
        try:
            return json.loads(b"".join(parts))
        except (ValueError, RecursionError):
            raise wrong("The body is no JSON.", "body", "JSON in UTF-8") from None

    async def collected(http: Http, pieces: AsyncGenerator[Piece, None]) -> list[Piece]:
        """All pieces, while the client is there."""

        async def gone() -> None:
            while (await http.receive())["type"] != "http.disconnect":
                pass

        async def every() -> list[Piece]:
            async with aclosing(pieces):
                return [each async for each in pieces]

        work, watch = asyncio.ensure_future(every()), asyncio.ensure_future(gone())
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else []
        finally:
            work.cancel()
            watch.cancel()

    async def streamed(
        of: Asked, first: Piece, rest: AsyncGenerator[Piece, None]
    ) -> AsyncGenerator[str, None]:
        teller = Teller(of, model)
        async with aclosing(rest):
            yield _event(teller.chunk(first))
            async for piece in rest:
                yield _event(teller.chunk(piece))
        if of.usage:
            yield _event({**teller.head, "choices": [], "usage": teller.usage()})
        yield "data: [DONE]\n\n"

    async def complete(http: Http) -> Response:
        try:
            of = asked(await body(http), model, chat=http.url.path.endswith("chat/completions"))
            pieces = started[0].pieces(of.of)
            if of.stream:
                first = await anext(pieces)  # what is refused is refused before anything is said
                return StreamingResponse(
                    streamed(of, first, pieces), media_type="text/event-stream"
                )
            if not (found := await collected(http, pieces)):
                return JSONResponse({}, 499)  # nobody reads it
            return JSONResponse(Teller(of, model).whole(found))
        except PlicaError as error:
            return refused(error, 413 if error.diagnostics[0].code == "too-large" else 400)
        except ServiceStopped:
            told = {"message": "The server has failed, or ends.", "type": "server_error"}
            return JSONResponse({"error": told}, 500)

    async def models(http: Http) -> Response:
        own = {"id": model.name, "object": "model", "owned_by": "plica", "context": model.context}
        return JSONResponse({"object": "list", "data": [own]})

    async def health(http: Http) -> Response:
        running, waiting = engine.load
        well = bool(started) and started[0].failure is None
        return JSONResponse({"well": well, "running": running, "waiting": waiting,
                             "rows_reused": engine.rows.reused}, 200 if well else 500)  # fmt: skip

    return Starlette(lifespan=lifespan, routes=[
        Route("/v1/completions", complete, methods=["POST"]),
        Route("/v1/chat/completions", complete, methods=["POST"]),
        Route("/v1/models", models), Route("/health", health),
    ])  # fmt: skip


def _event(of: Json) -> str:
    return f"data: {json.dumps(of, ensure_ascii=False)}\n\n"
