"""Options: the words that several commands take, and how they are read.

>>> parser = argparse.ArgumentParser()
>>> add_dims(parser)
>>> parser.parse_args(["--dim", "batch=2", "--dim", "seq=8"]).dim
{'batch': 2, 'seq': 8}
>>> positive("3"), seconds("0.5"), str(ending(".plica", ".so")("m.so"))
(3, 0.5, 'm.so')
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from zipfile import BadZipFile

from plica.runtime.error import Diagnostic, InputError, Place

if TYPE_CHECKING:
    from plica.runtime.port import Array

Number = TypeVar("Number", int, float)


class Pairs(argparse.Action):
    """`NAME=VALUE`, any number of times, but each name once: a dict."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,  # Any: what the option's type made of the word
        option_string: str | None = None,
    ) -> None:
        name, value = values
        known = getattr(namespace, self.dest)
        if name in known:
            parser.error(f"argument {option_string}: {name!r} is given twice")
        setattr(namespace, self.dest, {**known, name: value})


def _number(
    read: Callable[[str], Number], holds: Callable[[Number], bool], said: str
) -> Callable[[str], Number]:
    """Reads a number that satisfies a predicate; reports other input."""

    def number(text: str) -> Number:
        try:
            found = read(text)
        except ValueError:
            pass
        else:
            if holds(found):
                return found
        raise argparse.ArgumentTypeError(f"expected {said}, found {text!r}")

    return number


positive: Final = _number(int, lambda found: found >= 1, "a whole number, at least 1")
natural: Final = _number(int, lambda found: found >= 0, "a whole number, at least 0")
seconds: Final = _number(float, lambda found: 0 < found < math.inf, "a number, more than 0")


def ending(*suffixes: str) -> Callable[[str], Path]:
    """A file to write; a name that ends as files of another kind do is refused."""

    def file(text: str) -> Path:
        path = Path(text)
        if path.suffix and path.suffix not in suffixes:
            known = " or ".join(suffixes)
            raise argparse.ArgumentTypeError(f"{text!r} does not end with {known}")
        return path

    return file


def sized(text: str) -> tuple[str, int]:
    """A dim and its number, as in `batch=1`."""
    name, _, size = text.rpartition("=")
    if not name or not (size.isascii() and size.isdecimal()):
        raise argparse.ArgumentTypeError(f"NAME=SIZE as in batch=1, not {text!r}")
    return name, int(size)


def named_file(text: str) -> tuple[str, str]:
    """A name and a file, as in `x=x.npy`."""
    name, _, path = text.partition("=")
    if not name or not path:
        raise argparse.ArgumentTypeError(f"NAME=FILE.npy as in x=x.npy, not {text!r}")
    return name, path


def add_dims(parser: argparse.ArgumentParser) -> None:
    """`--dim NAME=SIZE`."""
    parser.add_argument("--dim", action=Pairs, default={}, type=sized, metavar="NAME=SIZE",
                        help="the size of a symbolic dim of an ONNX file; repeatable")  # fmt: skip


def add_inputs(parser: argparse.ArgumentParser, what: str) -> None:
    """`--input NAME=FILE.npy`."""
    parser.add_argument("--input", action=Pairs, default={}, type=named_file,
                        metavar="NAME=FILE.npy", help=what)  # fmt: skip


def read_arrays(files: Mapping[str, str]) -> dict[str, Array]:
    """The arrays in files, by the names of the inputs they are for."""
    import numpy as np

    found: dict[str, Array] = {}
    for name, path in files.items():
        try:
            read = np.load(path, allow_pickle=False)
        except OSError as error:
            message = f"The array for the input {name!r} cannot be read: {error.strerror or error}."
            raise InputError(Diagnostic("input-type", message, Place(file=path))) from error
        except (ValueError, EOFError, BadZipFile) as error:
            message = f"The file for the input {name!r} holds no array of numbers."
            hint = "Write one: numpy.save('FILE.npy', array)."
            raise InputError(
                Diagnostic("input-type", message, Place(file=path), "a .npy file", None, hint)
            ) from error
        if not isinstance(read, np.ndarray):
            read.close()
            message = f"The file for the input {name!r} holds several arrays."
            hint = "Save one array: numpy.save(FILE.npy, array)."
            raise InputError(
                Diagnostic("input-type", message, Place(file=path), "one array", None, hint)
            )
        found[name] = read
    return found
