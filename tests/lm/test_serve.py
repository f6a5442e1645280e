"""The server: clients that come and go, stream, ask for nonsense, and are refused."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn

from plica_lm.engine import Engine
from plica_lm.generate import answer, generate
from plica_lm.sampling import Sampler
from plica_lm.serve import MAX_BODY_BYTES, application
from tests.lm.network import model

PROMPTS = [f"{word} number {at}" for at, word in enumerate(["One", "Seven", "A dog", "x"] * 16)]


@contextmanager
def served(engine: Engine) -> Iterator[httpx.Client]:
    """A client of a server of its own."""
    config = uvicorn.Config(application(engine), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    limits = httpx.Limits(max_connections=200)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, limits=limits) as client:
        yield client
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with served(Engine(model("llama"), slots=16, rows=4000)) as made:
        yield made


def body(at: int, **more: Any) -> dict[str, Any]:
    return {"prompt": PROMPTS[at], "max_tokens": 5 + at % 30, "seed": at,
            "temperature": 0.8 * (at % 2), "top_p": 0.9, **more}  # fmt: skip


def expected(at: int) -> str:
    """The same text, made alone and without a server."""
    of = body(at)
    sampling = Sampler(temperature=of["temperature"], top_p=0.9, seed=at)
    pieces = generate(model("llama"), of["prompt"], sampling=sampling, limit=of["max_tokens"])
    return "".join([each.text for each in pieces])


def streamed(client: httpx.Client, path: str, of: dict[str, Any]) -> tuple[str, list[Any]]:
    """The text and the events of a stream."""
    events = []
    with client.stream("POST", path, json={**of, "stream": True}) as found:
        assert found.status_code == 200, found.read()
        assert found.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in found.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    choices = [each["choices"][0] for each in events if each["choices"]]
    parts = [each["text"] if "text" in each else each["delta"]["content"] for each in choices]
    assert [each["finish_reason"] is None for each in choices] == [
        *[True] * (len(choices) - 1),
        False,
    ]
    return "".join(parts), events


def test_64_clients_get_their_own_texts(client: httpx.Client) -> None:
    """Streams and whole answers, arriving at random; some clients go away in the middle."""
    delays = np.random.default_rng(0).random(64) * 0.3

    def ask(at: int) -> str:
        time.sleep(delays[at])
        if at % 8 == 5:  # goes away after the first event
            with client.stream(
                "POST", "/v1/completions", json={**body(at), "stream": True}
            ) as found:
                next(found.iter_lines())
            return expected(at)
        if at % 3:
            return streamed(client, "/v1/completions", body(at))[0]
        found = client.post("/v1/completions", json=body(at)).json()
        return str(found["choices"][0]["text"])

    with ThreadPoolExecutor(64) as pool:
        found = list(pool.map(ask, range(64)))
    assert found == [expected(at) for at in range(64)]
    end = time.monotonic() + 20
    while client.get("/health").json()["running"] and time.monotonic() < end:
        time.sleep(0.02)
    assert client.get("/health").json()["running"] == 0


def test_a_chat_is_answered_by_the_template(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    of = {"messages": messages, "max_tokens": 12, "temperature": 0}
    pieces = list(answer(model("llama"), messages, limit=12))
    text = "".join([each.text for each in pieces])
    found = client.post("/v1/chat/completions", json=of).json()
    choice = found["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": text}
    assert choice["finish_reason"] == pieces[-1].finish
    assert found["usage"]["completion_tokens"] == len(pieces)
    said, events = streamed(
        client, "/v1/chat/completions", {**of, "stream_options": {"include_usage": True}}
    )
    assert said == text
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[-1]["usage"] == found["usage"]


def test_logprobs_are_told(client: httpx.Client) -> None:
    of = {"prompt": "Hello", "max_tokens": 3, "temperature": 0, "logprobs": 2}
    told = client.post("/v1/completions", json=of).json()["choices"][0]["logprobs"]
    assert [max(each.values()) for each in told["top_logprobs"]] == told["token_logprobs"]
    chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "logprobs": True,
            "top_logprobs": 1, "temperature": 0}  # fmt: skip
    found = client.post("/v1/chat/completions", json=chat).json()["choices"][0]["logprobs"]
    for each in found["content"]:
        assert each["top_logprobs"][0]["token"] == each["token"]


@pytest.mark.parametrize(("wrong", "param"), [
    ({"max_tokenz": 3}, "max_tokenz"), ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"), ({"max_tokens": 0}, "max_tokens"),
    ({"n": 2}, "n"), ({"n": True}, "n"),
    ({"model": "gpt-5"}, "model"), ({"stop": ["", "x"]}, "stop"), ({"stop": [1]}, "stop"),
    ({"prompt": [1, 96]}, "prompt"), ({"prompt": "x" * 500}, "prompt"), ({"prompt": ""}, "prompt"),
    ({"logprobs": 99}, "logprobs"), ({"seed": -4}, "seed"), ({"top_p": 0}, "top_p"),
    ({"presence_penalty": 2.5}, "presence_penalty"), ({"prompt": "\ud800"}, "prompt"),
    ({"prompt": [True]}, "prompt"),
])  # fmt: skip
def test_what_is_wrong_is_refused_by_name(
    client: httpx.Client, wrong: dict[str, Any], param: str | None
) -> None:
    content = json.dumps({"prompt": "Hello", **wrong})
    found = client.post("/v1/completions", content=content)
    assert found.status_code == 400
    error = found.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["message"]


def test_garbage_is_refused_and_harms_nobody(client: httpx.Client) -> None:
    for text in (b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"null", b'{"prompt": NaN}'):
        found = client.post("/v1/completions", content=text)
        assert found.status_code == 400, text[:20]
    wrong: tuple[Any, ...] = (
        [],
        [{}],
        ["x"],
        [{"role": "user"}],
        [{"role": "user", "content": 3}],
        None,
    )
    for messages in wrong:
        found = client.post("/v1/chat/completions", json={"messages": messages})
        assert found.status_code == 400
    large = client.post("/v1/completions", content=b" " * (MAX_BODY_BYTES + 1))
    assert large.status_code == 413
    for path, status in (("nothing", 404), ("completions", 405), ("models/none", 404)):
        found = client.get(f"/v1/{path}")
        assert found.status_code == status
        assert {*found.json()["error"]} == {"message", "type", "code", "param"}
    assert client.get(f"/v1/models/{model('llama').name}").json()["object"] == "model"
    assert client.get("/v1/models").json()["data"][0]["context"] == 128
    assert client.post("/v1/completions", json=body(1)).json()["choices"][0]["text"] == expected(1)


def exchanged(client: httpx.Client, text: bytes, close: bool = False) -> bytes:
    """All that the server says to a request of these bytes before it closes the connection."""
    with socket.create_connection((client.base_url.host, client.base_url.port or 0), 5) as to:
        to.sendall(text)
        if close:
            to.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: to.recv(1 << 16), b""))


def test_bodies_that_are_too_long_or_stall_are_refused(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("plica_lm.serve.BODY_SECONDS", 0.2)
    head = (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n{"
    )
    assert b" 413 " in exchanged(client, head % (MAX_BODY_BYTES + 1))
    stalled = exchanged(client, head % 50)
    assert b" 408 " in stalled
    assert b"did not arrive" in stalled
    exchanged(client, head % 50, close=True)
    assert not caplog.records


def test_content_may_be_text_parts(client: httpx.Client) -> None:
    of = {"max_tokens": 5, "temperature": 0}
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    texts = []
    for content in ("Hi", parts):
        asked = {**of, "messages": [{"role": "user", "content": content}]}
        found = client.post("/v1/chat/completions", json=asked)
        texts.append(found.json()["choices"][0]["message"]["content"])
    assert texts[0] == texts[1]


def test_a_full_server_refuses_and_goes_on() -> None:
    with (
        served(Engine(model("llama"), slots=1, waiting=1, rows=200)) as client,
        ThreadPoolExecutor(12) as pool,
    ):
        of = {"prompt": "Hello", "max_tokens": 100, "temperature": 0}
        found = list(pool.map(lambda _: client.post("/v1/completions", json=of), range(12)))
        codes = [each.status_code for each in found]
        assert {*codes} == {200, 503}
        refused = next(each for each in found if each.status_code == 503)
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "busy"
        texts = {each.json()["choices"][0]["text"] for each in found if each.status_code == 200}
        assert len(texts) == 1
        assert client.post("/v1/completions", json=of).status_code == 200


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_engine_that_fails_is_said_to_have_failed() -> None:
    engine = Engine(model("llama"), slots=1, rows=200)
    engine.step = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]  # a bug
    with served(engine) as client:
        for _ in range(2):
            found = client.post("/v1/completions", json={"prompt": "Hello"})
            assert found.status_code == 500
        assert client.get("/health").status_code == 500
