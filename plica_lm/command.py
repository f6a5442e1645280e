"""The commands `plica generate`, `plica chat` and `plica serve`."""

from __future__ import annotations

import argparse
import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plica.cli.command import Command
from plica.cli.option import positive
from plica.cli.progress import progress

if TYPE_CHECKING:
    from plica_lm.engine import Engine, TextPiece

MAX_CONNECTIONS: Final = 1024
MAX_PORT: Final = 65535


def engine_of(arguments: argparse.Namespace, **more: Any) -> Engine:  # Any: options of an engine
    """The engine of a model, and of a draft if one is named, loaded under a progress bar."""
    from plica_lm.engine import Engine
    from plica_lm.load import load

    names = [arguments.model, *([arguments.draft] if arguments.draft else [])]
    with progress("model", total=2 * len(names)) as say:
        models = [
            load(name, context=arguments.context, say=say, target=arguments.target,
                 threads=arguments.threads, cache=arguments.cache, contract=arguments.contract)
            for name in names
        ]  # fmt: skip
    return Engine(models[0], rows=arguments.rows, draft=models[1] if len(models) > 1 else None,
                  ahead=arguments.ahead, **more)  # fmt: skip


def request_fields(arguments: argparse.Namespace) -> dict[str, Any]:  # Any: fields of a request
    """The fields of a request that the options state."""
    from plica_lm.sampling import Sampler

    names = ("temperature", "top_k", "top_p", "min_p", "repetition", "seed")
    sampling = Sampler(**{name: getattr(arguments, name) for name in names})
    return {"sampling": sampling, "limit": arguments.limit, "stop": tuple(arguments.stop)}


def in_utf8(read: Callable[[], str]) -> str:
    """What standard input says; bytes that are not UTF-8 are refused."""
    from plica_lm.refusal import refusal

    try:
        return read()
    except UnicodeDecodeError as error:
        found = f"byte {error.object[error.start]:#04x} at {error.start}"
        raise refusal("input-value", "Standard input is not UTF-8.", "text in UTF-8", found,
                      "Convert it, for example with iconv -t utf-8.") from None  # fmt: skip


def generate(arguments: argparse.Namespace) -> int:
    """Print the text that follows a prompt, token by token."""
    from plica_lm import generate as generation

    prompt = in_utf8(sys.stdin.read) if arguments.prompt == "-" else arguments.prompt
    fields = request_fields(arguments)
    engine = engine_of(arguments, slots=1)
    printed(generation.generate(engine, prompt, **fields), engine, arguments.limit)
    return 0


def chat(arguments: argparse.Namespace) -> int:
    """Answer each line of the input until it ends."""
    from plica_lm import generate as generation

    fields = request_fields(arguments)
    engine = engine_of(arguments, slots=1)
    messages = [{"role": "system", "content": arguments.system}] if arguments.system else []
    while True:
        try:
            line = in_utf8(lambda: input("> " if sys.stdin.isatty() else ""))
        except EOFError:
            return 0
        messages.append({"role": "user", "content": line})
        pieces = generation.answer(engine, messages, **fields)
        messages.append({"role": "assistant", "content": printed(pieces, engine, arguments.limit)})


def printed(pieces: Iterator[TextPiece], engine: Engine, limit: int) -> str:
    """Prints pieces as they come; returns the text. An end before `limit` tokens is explained."""
    done = []
    for piece in pieces:
        done.append(piece)
        print(piece.text, end="", flush=True)
    print()
    if done[-1].finish == "length" and len(done) < limit:
        full = "cache rows" if engine.context < engine.model.context else "context"
        hint = "--rows" if full == "cache rows" else "--context"
        print(f"stopped: {full} full ({engine.context} tokens); see {hint}", file=sys.stderr)
    return "".join([piece.text for piece in done])


def serve(arguments: argparse.Namespace) -> int:
    """Serve a model until it is interrupted."""
    import uvicorn

    from plica_lm.refusal import refusal
    from plica_lm.serve import application

    host, port = arguments.host, arguments.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise refusal("unsupported", f"{host}:{port} cannot be listened on.",
                      "a free port of this machine", str(error.strerror or error),
                      "Choose another --port, or another --host.") from None  # fmt: skip
    with listener:
        engine = engine_of(arguments, slots=arguments.slots, waiting=arguments.waiting)
        print(f"http://{host}:{listener.getsockname()[1]}/v1 serves {engine.model.name}",
              flush=True)  # fmt: skip
        config = uvicorn.Config(application(engine), log_level="warning",
                                limit_concurrency=MAX_CONNECTIONS)  # fmt: skip
        uvicorn.Server(config).run(sockets=[listener])
    return 0


def unescaped(text: str) -> str:
    r"""Unescapes a stop word: `\n`, `\t` and `\\` are a newline, a tab and a backslash."""
    return re.sub(r"\\([nt\\])", lambda found: {"n": "\n", "t": "\t"}.get(found[1], "\\"), text)


def port_number(text: str) -> int:
    """A TCP port; 0 is any that is free."""
    if not text.isdecimal() or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to {MAX_PORT}, found {text!r}")
    return int(text)


def configure_model(parser: argparse.ArgumentParser) -> None:
    """Which model, and how it is compiled."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="a Hugging Face folder, or FILE.gguf")
    add("--context", type=positive, help="maximum tokens of prompt and text together (as trained)")
    add("--rows", type=positive,
        help="capacity of the key-value cache in tokens (4096 per text)")  # fmt: skip
    add("--cache", default="f32", choices=("f32", "f16", "bf16"),
        help="dtype of the key-value cache (f32)")  # fmt: skip
    add("--draft", type=Path, metavar="MODEL",
        help="a small model with the same tokenizer, for speculative decoding")  # fmt: skip
    add("--ahead", type=positive, default=4,
        help="tokens that the draft model proposes per step (4)")  # fmt: skip
    add("--target", default="cpu", help="a cpu target (cpu)")
    add("--threads", type=positive, help="number of threads")
    add(
        "--contract",
        help="float contract; approx(0.01) rounds activations to 8 bits (approx(1e-4))",
    )


def configure_sampling(parser: argparse.ArgumentParser) -> None:
    """Options of sampling."""
    configure_model(parser)
    add = parser.add_argument
    add("--limit", type=positive, default=256, metavar="N",
        help="maximum number of new tokens (256)")  # fmt: skip
    add("--stop", action="append", type=unescaped, default=[], metavar="WORD",
        help=r"stop before this word; \n, \t and \\ are escapes; repeatable")  # fmt: skip
    add("--temperature", type=float, default=0.0, help="sampling temperature; 0 is greedy (0)")
    add("--top-k", type=int, default=0, help="sample from the K likeliest tokens (0: all)")
    add("--top-p", type=float, default=1.0,
        help="sample from the likeliest tokens of this total probability (1)")  # fmt: skip
    add("--min-p", type=float, default=0.0,
        help="minimum probability relative to the likeliest token (0)")  # fmt: skip
    add("--repetition", type=float, default=1.0, help="repetition penalty (1: none)")
    add("--seed", type=int, default=0, help="random seed (0)")


def configure_generate(parser: argparse.ArgumentParser) -> None:
    configure_sampling(parser)
    parser.add_argument("prompt", help="the prompt; - reads standard input")


def configure_chat(parser: argparse.ArgumentParser) -> None:
    configure_sampling(parser)
    parser.add_argument("--system", metavar="TEXT", help="the system message")


def configure_serve(parser: argparse.ArgumentParser) -> None:
    configure_model(parser)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this machine only)")
    add("--port", type=port_number, default=8080, help="port, 0 for any free one (8080)")
    add("--slots", type=positive, default=16, help="requests processed at once (16)")
    add("--waiting", type=positive, default=256, help="queued requests; more are refused (256)")


GENERATE: Final = Command(
    "generate", "Continue a text with a language model", generate, configure_generate,
    ('plica generate model.gguf "Once upon a time"',
     'plica generate folder "def add(a, b):" --temperature 0.7 --top-p 0.9 --seed 1'),
)  # fmt: skip
CHAT: Final = Command(
    "chat", "Talk with a language model", chat, configure_chat,
    ("plica chat folder --system 'Answer in one sentence.'",),
)  # fmt: skip
SERVE: Final = Command(
    "serve", "Serve a language model by the OpenAI protocol", serve, configure_serve,
    ("plica serve model.gguf --port 8080 --slots 16",),
)  # fmt: skip
