"""What hypothesis does around each law, done once: a tenth of a run's processor time.

The examples are the same as without this, as long as no law draws from numpy's global generator.
Only the profile `ci` is lean: it runs few examples, so that what surrounds them weighs.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import core
from hypothesis.internal import entropy, reflection
from hypothesis.internal.conjecture import providers


def lean() -> None:
    """Make hypothesis read sources once, and leave alone what nothing here draws from."""
    # The examples of a law are the same whatever else is loaded: hypothesis would read all sources
    # for numbers to try, which takes 10 seconds, and any edit of them would change what is drawn.
    providers._get_local_constants = lambda: providers._local_constants
    # Laws draw from generators that they seed: numpy's global one is not saved around each example.
    entropy.NP_RANDOM = entropy.NP_RANDOM or entropy.NumpyRandomWrapper()
    core.function_digest = _digest  # type: ignore[attr-defined]  # by this name it is called


def _digest(function: Callable[..., Any]) -> bytes:  # Any: laws are of every type
    """The seed of a law, by its text, its signature and its case, as hypothesis makes it."""
    text = _text(inspect.unwrap(function).__code__)
    case: bytes = getattr(function, "_hypothesis_internal_add_digest", b"")
    signature = repr(reflection.get_signature(function)).encode()
    return hashlib.sha384(text + signature + case).digest()


@cache
def _text(code: Any) -> bytes:  # Any: `inspect.getsource` says less of code than it takes
    return reflection._clean_source(inspect.getsource(code))
