"""A server of the OpenAI protocol: completions and chats, as a whole or streamed.

    POST /v1/chat/completions    POST /v1/completions    GET /v1/models[/NAME]    GET /health

All clients share batches (`plica_lm.engine`).  The text of a client that disconnects is cancelled.
A wrong request is refused with status 400 and the field in `param`, one beyond the limit of
requests with 503.
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
from plica.runtime.error import PlicaError
from plica_lm.engine import Engine, GenerationRequest, TextPiece
from plica_lm.generate import chat_tokens
from plica_lm.model import LanguageModel
from plica_lm.refusal import refusal
from plica_lm.sampling import RANGES, Sampler
from plica_lm.service import Service, ServiceStopped
from plica_lm.value import FLAG, TEXT, Value, check, integer, is_a, number

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request as Http
    from starlette.responses import Response

Json = Mapping[str, Any]  # Any: what JSON holds

MAX_BODY_BYTES: Final = 1 << 22
BODY_SECONDS: Final = 10.0  # how long a body may take to arrive
MAX_STOP_WORDS, MAX_STOP_LENGTH = 16, 256
STATUS: Final = {"busy": 503, "too-large": 413, "timeout": 408}
"""The HTTP status of each code of a refusal; all others are 400."""

_OBJECT, _LOGPROBS = Value((dict,), "an object"), integer(0, 20)
_STOP: Final = Value(
    (str, list), f"at most {MAX_STOP_WORDS} words of 1 to {MAX_STOP_LENGTH} characters",
    lambda stop: len(words := [stop] if isinstance(stop, str) else stop) <= MAX_STOP_WORDS and all(
        is_a(word, TEXT) and 0 < len(word) <= MAX_STOP_LENGTH for word in words),
)  # fmt: skip

SAMPLING: Final = {
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
    "repetition_penalty": "repetition", "presence_penalty": "presence",
    "frequency_penalty": "frequency", "seed": "seed",
}  # fmt: skip
"""The protocol's names of the fields of `Sampler`."""

FIELDS: Final[Mapping[str, Value]] = {
    "model": TEXT, "stream": FLAG, "stop": _STOP,
    "n": Value((int,), "1: one text per request", lambda count: count == 1),
    "max_tokens": integer(1),
    "max_completion_tokens": integer(1), "stream_options": _OBJECT, "user": TEXT,
    "metadata": _OBJECT, **{name: RANGES[field] for name, field in SAMPLING.items()},
    "presence_penalty": number(-2, 2), "frequency_penalty": number(-2, 2),
}  # fmt: skip
"""The fields of a request, and what each may be."""

OF_CHATS: Final = {"messages": Value((list,), "a list of messages"), "logprobs": FLAG,
                   "top_logprobs": _LOGPROBS}  # fmt: skip
OF_COMPLETIONS: Final = {"prompt": Value((str, list), "text, or a list of token ids"),
                         "logprobs": _LOGPROBS}  # fmt: skip


class Parsed(NamedTuple):
    """A request, and how its answer is sent."""

    request: GenerationRequest
    chat: bool
    stream: bool
    usage: bool
    id: str


def parsed(body: object, model: LanguageModel, chat: bool) -> Parsed:
    """The request of a body; a wrong field is refused by name."""
    known = {**FIELDS, **(OF_CHATS if chat else OF_COMPLETIONS)}
    if not isinstance(body, dict):
        raise refusal("input-value", "The body is not a JSON object.", "an object",
                      type(body).__name__, "Send the fields of a request.", at="body")  # fmt: skip
    body = {name: value for name, value in body.items() if value is not None}
    for name, value in body.items():
        if name not in known:
            hint = did_you_mean(name, tuple(known)) or "Remove it."
            raise refusal("input-value", " ".join((f"There is no field {name!r}.", hint)),
                          ", ".join(sorted(known)), name, hint, at=name)  # fmt: skip
        check(name, value, known[name], at=name)
    if body.get("model", model.name) != model.name:
        raise refusal("input-value", "There is no such model here.", model.name, body["model"],
                      "Use the model that GET /v1/models lists.", at="model")  # fmt: skip
    stop = body.get("stop", [])
    defaults = {"temperature": 1.0, "seed": secrets.randbits(63)}
    given = {field: body[name] for name, field in SAMPLING.items() if name in body}
    logprobs = body.get("logprobs")
    if chat:
        logprobs = body.get("top_logprobs", 0) if logprobs else None
        prompt = chat_tokens(model, body.get("messages", []))
    else:
        text = body.get("prompt", "")
        prompt = model.tokenizer.encode(text) if isinstance(text, str) else text
    limit = body.get("max_completion_tokens", body.get("max_tokens", model.context))
    request = GenerationRequest(tuple(prompt), Sampler(**defaults | given), limit, stop, logprobs)
    usage = bool(body.get("stream_options", {}).get("include_usage"))
    name = ("chatcmpl-" if chat else "cmpl-") + secrets.token_hex(12)
    return Parsed(request, chat, body.get("stream", False), usage, name)


class Encoder:
    """The JSON of the pieces of a text."""

    def __init__(self, parsed: Parsed, model: LanguageModel) -> None:
        self.parsed, self.model, self.count = parsed, model, 0
        kind = "chat.completion" if parsed.chat else "text_completion"
        chunk = ".chunk" if parsed.stream and parsed.chat else ""
        self.head = {"id": parsed.id, "object": kind + chunk, "created": int(time.time()),
                     "model": model.name}  # fmt: skip

    def chunk(self, piece: TextPiece) -> Json:
        """One piece of a text that is streamed."""
        first, self.count = self.count == 0, self.count + 1
        fields: Json = {"text": piece.text}
        if self.parsed.chat:
            fields = {"delta": ({"role": "assistant"} if first else {}) | {"content": piece.text}}
        return self._choice(fields, [piece])

    def whole(self, pieces: Sequence[TextPiece]) -> Json:
        """A text at once."""
        self.count, text = len(pieces), "".join([piece.text for piece in pieces])
        fields: Json = {"text": text}
        if self.parsed.chat:
            fields = {"message": {"role": "assistant", "content": text}}
        return {**self._choice(fields, pieces), "usage": self.usage()}

    def usage(self) -> Json:
        prompt = len(self.parsed.request.prompt)
        return {"prompt_tokens": prompt, "completion_tokens": self.count,
                "total_tokens": prompt + self.count}  # fmt: skip

    def _choice(self, fields: Json, pieces: Sequence[TextPiece]) -> Json:
        choice = {"index": 0, **fields, "finish_reason": pieces[-1].finish,
                "logprobs": self._logprobs(pieces)}  # fmt: skip
        return {**self.head, "choices": [choice]}

    def _logprobs(self, pieces: Sequence[TextPiece]) -> Json | None:
        if self.parsed.request.logprobs is None:
            return None
        name = self.model.tokenizer.name
        if self.parsed.chat:
            return {"content": [
                {"token": name(piece.token), "logprob": piece.logprob, "top_logprobs": [
                    {"token": name(token), "logprob": logs} for token, logs in piece.likeliest]}
                for piece in pieces]}  # fmt: skip
        return {
            "tokens": [name(piece.token) for piece in pieces],
            "token_logprobs": [piece.logprob for piece in pieces],
            "top_logprobs": [{name(token): logs for token, logs in piece.likeliest}
                             for piece in pieces],
        }  # fmt: skip


def application(engine: Engine) -> Starlette:
    """The server of an engine, for any ASGI server."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect
    from starlette.responses import JSONResponse, StreamingResponse
    from starlette.routing import Route

    model, started = engine.model, list[Service]()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        started.append(Service(engine))
        yield
        started.pop().stop()

    def failed(  # noqa: PLR0917  # the parts of an error of the protocol
        message: str, kind: str, code: str, status: int, param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:  # fmt: skip
        error = {"message": message, "type": kind, "code": code, "param": param}
        return JSONResponse({"error": error}, status, headers)

    def refused(error: PlicaError) -> Response:
        first = error.diagnostics[0]
        busy = first.code == "busy"
        return failed(
            str(error), "overloaded_error" if busy else "invalid_request_error", first.code,
            STATUS.get(first.code, 400), None if first.place is None else first.place.node,
            {"Retry-After": "1"} if busy else None,
        )  # fmt: skip

    async def unrouted(http: Http, error: HTTPException) -> Response:
        message = f"{http.method} {http.url.path}: {error.detail}"
        code = "not-found" if error.status_code == 404 else "method-not-allowed"
        return failed(message, "invalid_request_error", code, error.status_code,
                      headers=error.headers)  # fmt: skip

    def too_large(size: int) -> PlicaError:
        return refusal("too-large", "The body of the request is too large.",
                       f"at most {MAX_BODY_BYTES} bytes", f"{size} bytes", "Send a shorter prompt.",
                       at="body")  # fmt: skip

    async def body(http: Http) -> object:
        stated = http.headers.get("content-length", "0")
        if stated.isdecimal() and int(stated) > MAX_BODY_BYTES:
            raise too_large(int(stated))
        parts, size = list[bytes](), 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in http.stream():
                    parts.append(part)
                    if (size := size + len(part)) > MAX_BODY_BYTES:
                        raise too_large(size)
        except TimeoutError:
            raise refusal("timeout", "The body of the request did not arrive in time.",
                          f"{stated} bytes within {BODY_SECONDS:g} s", f"{size} bytes",
                          "Send the request again.", at="body") from None  # fmt: skip
        try:
            return json.loads(b"".join(parts))
        except (ValueError, RecursionError) as error:
            raise refusal("input-value", "The body is not JSON.", "JSON in UTF-8", str(error),
                          "Encode the body as JSON.", at="body") from None  # fmt: skip

    async def collected(http: Http, pieces: AsyncGenerator[TextPiece, None]) -> list[TextPiece]:
        """All pieces, while the client is connected."""

        async def gone() -> None:
            while (await http.receive())["type"] != "http.disconnect":
                pass

        async def every() -> list[TextPiece]:
            async with aclosing(pieces):
                return [text_piece async for text_piece in pieces]

        work, watch = asyncio.ensure_future(every()), asyncio.ensure_future(gone())
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else []
        finally:
            work.cancel()
            watch.cancel()

    async def streamed(
        found: Parsed, first: TextPiece, rest: AsyncGenerator[TextPiece, None]
    ) -> AsyncGenerator[str, None]:
        encoder = Encoder(found, model)
        async with aclosing(rest):
            yield _event(encoder.chunk(first))
            async for piece in rest:
                yield _event(encoder.chunk(piece))
        if found.usage:
            yield _event({**encoder.head, "choices": [], "usage": encoder.usage()})
        yield "data: [DONE]\n\n"

    async def complete(http: Http) -> Response:
        try:
            chat = http.url.path.endswith("chat/completions")
            found = parsed(await body(http), model, chat)
            pieces = started[0].pieces(found.request)
            if found.stream:
                first = await anext(pieces)  # a refusal has a status only before the first event
                return StreamingResponse(
                    streamed(found, first, pieces), media_type="text/event-stream"
                )
            if whole := await collected(http, pieces):
                return JSONResponse(Encoder(found, model).whole(whole))
        except PlicaError as error:
            return refused(error)
        except ServiceStopped:
            return failed("The server has failed or is stopping.", "server_error", "stopped", 500)
        except ClientDisconnect:
            pass
        return JSONResponse({}, 499)  # nobody reads it

    described = {
        "id": model.name, "object": "model", "owned_by": "plica", "context": model.context,
    }  # fmt: skip

    async def models(http: Http) -> Response:
        return JSONResponse({"object": "list", "data": [described]})

    async def one_model(http: Http) -> Response:
        if (name := http.path_params["name"]) == model.name:
            return JSONResponse(described)
        message = f"There is no model {name!r}; there is {model.name!r}."
        return failed(message, "invalid_request_error", "not-found", 404, "model")

    async def health(http: Http) -> Response:
        running, waiting = engine.load
        well = bool(started) and started[0].failure is None
        return JSONResponse({"well": well, "running": running, "waiting": waiting,
                             "rows_reused": engine.rows.reused}, 200 if well else 500)  # fmt: skip

    return Starlette(lifespan=lifespan, routes=[
        Route("/v1/completions", complete, methods=["POST"]),
        Route("/v1/chat/completions", complete, methods=["POST"]),
        Route("/v1/models", models), Route("/v1/models/{name:path}", one_model),
        Route("/health", health),
    ], exception_handlers={HTTPException: unrouted})  # type: ignore[dict-item]  # fmt: skip


def _event(message: Json) -> str:
    return f"data: {json.dumps(message, ensure_ascii=False)}\n\n"
