"""The commands `plica generate`, `plica chat` and `plica serve`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plica.cli.command import Command
from plica.cli.option import positive
from plica.cli.progress import progress

if TYPE_CHECKING:
    from plica_lm.engine import Engine, Piece

MAX_CONNECTIONS: Final = 1024


def engine_of(arguments: argparse.Namespace, **more: Any) -> Engine:  # Any: options of an engine
    """The engine of a model, and of a draft if one is named, loaded while a bar says how far."""
    from plica_lm.engine import Engine
    from plica_lm.load import load

    names = [arguments.model, *([arguments.draft] if arguments.draft else [])]
    with progress("model", total=2 * len(names)) as say:
        models = [
            load(name, context=arguments.context, say=say, target=arguments.target,
                 threads=arguments.threads, cache=arguments.cache) for name in names
        ]  # fmt: skip
    return Engine(models[0], rows=arguments.rows, draft=models[1] if len(models) > 1 else None,
                  ahead=arguments.ahead, **more)  # fmt: skip


def asked(arguments: argparse.Namespace) -> dict[str, Any]:  # Any: fields of a request
    """How the options say that text is made."""
    from plica_lm.sampling import Sampling

    names = ("temperature", "top_k", "top_p", "min_p", "repetition", "seed")
    sampling = Sampling(**{name: getattr(arguments, name) for name in names})
    return {"sampling": sampling, "limit": arguments.limit, "stop": tuple(arguments.stop)}


def generate(arguments: argparse.Namespace) -> int:
    """Write what follows a prompt as it is made."""
    from plica_lm import generate as made

    prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    engine = engine_of(arguments, slots=1)
    said(made.generate(engine, prompt, **asked(arguments)))
    return 0


def chat(arguments: argparse.Namespace) -> int:
    """Answer what is typed, line by line, until the input ends."""
    from plica_lm import generate as made

    engine, how = engine_of(arguments, slots=1), asked(arguments)
    messages = [{"role": "system", "content": arguments.system}] if arguments.system else []
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return 0
        messages.append({"role": "user", "content": line})
        text = said(made.answer(engine, messages, **how))
        messages.append({"role": "assistant", "content": text})


def said(pieces: Iterator[Piece]) -> str:
    """Write pieces as they come, and give their text."""
    parts = []
    for piece in pieces:
        parts.append(piece.text)
        print(piece.text, end="", flush=True)
    print()
    return "".join(parts)


def serve(arguments: argparse.Namespace) -> int:
    """Serve a model until it is interrupted."""
    import uvicorn

    from plica_lm.serve import application

    engine = engine_of(arguments, slots=arguments.slots, waiting=arguments.waiting)
    print(f"http://{arguments.host}:{arguments.port}/v1 serves {engine.model.name}", flush=True)
    uvicorn.run(
        application(engine), host=arguments.host, port=arguments.port, log_level="warning",
        limit_concurrency=MAX_CONNECTIONS,
    )  # fmt: skip
    return 0


def configure_model(parser: argparse.ArgumentParser) -> None:
    """Which model, and how it is compiled."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="a folder of Hugging Face, or FILE.gguf")
    add("--context", type=positive, help="the most tokens of a text (those it was trained for)")
    add("--rows", type=positive,
        help="so many tokens have room in the cache (4096 for each text)")  # fmt: skip
    add("--cache", default="f32", choices=("f32", "f16", "bf16"), help="the dtype of the cache")
    add("--draft", type=Path, metavar="MODEL",
        help="a small model of the same tokens that proposes what comes next")  # fmt: skip
    add("--ahead", type=positive, default=4, help="how many tokens it proposes at once (4)")
    add("--target", default="cpu", help="what to compile for (cpu)")
    add("--threads", type=positive, help="number of threads")


def configure_sampling(parser: argparse.ArgumentParser) -> None:
    """How text is made."""
    configure_model(parser)
    add = parser.add_argument
    add("--limit", type=positive, default=256, metavar="N", help="the most tokens made (256)")
    add("--stop", action="append", default=[], metavar="WORD", help="ends the text; once for each")
    add("--temperature", type=float, default=0.0, help="0 takes the likeliest token (0)")
    add("--top-k", type=int, default=0, help="only so many of the likeliest tokens (0: all)")
    add("--top-p", type=float, default=1.0, help="only the likeliest, up to this chance (1)")
    add("--min-p", type=float, default=0.0, help="none below this part of the greatest chance (0)")
    add("--repetition", type=float, default=1.0, help="divides the logits of tokens said (1)")
    add("--seed", type=int, default=0, help="another seed, another text (0)")


def configure_generate(parser: argparse.ArgumentParser) -> None:
    configure_sampling(parser)
    parser.add_argument("prompt", help="what the text begins with; - is the input")


def configure_chat(parser: argparse.ArgumentParser) -> None:
    configure_sampling(parser)
    parser.add_argument("--system", metavar="TEXT", help="a message before all others")


def configure_serve(parser: argparse.ArgumentParser) -> None:
    configure_model(parser)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="the address (127.0.0.1: this machine alone)")
    add("--port", type=int, default=8080, help="the port (8080)")
    add("--slots", type=positive, default=16, help="so many texts at once (16)")
    add("--waiting", type=positive, default=256, help="so many more wait; others are refused (256)")


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
