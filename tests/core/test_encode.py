"""Encoding: round trips, and one refusal for every way JSON can be wrong."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, strategies as st

from plica.core.diagnostic import Malformed
from plica.core.encode import (
    FORMAT,
    MAX_INTEGER_BITS,
    MAX_NESTED,
    VERSION,
    from_json,
    from_rows,
    to_json,
    to_rows,
)  # fmt: skip
from plica.core.term import Term
from plica.ir.graph.expression import const
from plica.ir.loop.scalar import Add, Lit
from plica.ir.type.dtype import f32, i64
from tests.core.test_digest import golden_terms
from tests.core.test_term import chain, doubling
from tests.strategies import terms
from tests.strategies.term import PLAIN, Leaf, Mixed, Pair


@given(terms())
def test_reading_what_was_written_gives_the_term(term: Term) -> None:
    text = to_json(term)
    assert from_json(text) is term
    assert from_json(text.encode(), own=True) is term
    assert to_json(from_json(text)) == text
    assert from_rows(to_rows(term)) is term


@given(PLAIN)
def test_plain_data_comes_back_bit_for_bit(value: Any) -> None:
    assert from_json(to_json(Leaf(value))) is Leaf(value)
    mixed = Mixed((("k", value), ("l", (value, Leaf(value)))))
    assert from_json(to_json(mixed)) is mixed
    assert from_json(to_json(mixed), own=True) is mixed


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format":"x"}', to_json(Leaf(1)).replace("Leaf", "Loaf"),
             to_json(Leaf(1)).partition("[")[0] + "[]}"]
)  # fmt: skip
def test_own_text_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        from_json(text, own=True)


def test_nan_payloads_infinities_and_zeros_are_exact() -> None:
    payload = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0]
    for value in (payload, math.nan, math.inf, -math.inf, -0.0, 5e-324):
        assert from_json(to_json(Leaf(value))) is Leaf(value)
    special = const([payload, math.inf, -0.0], "f32")
    assert from_json(to_json(special)) is special


@pytest.mark.parametrize(("build", "depth"), [(chain, 20_000), (doubling, 60)])
def test_deep_and_shared_terms(build: Any, depth: int) -> None:
    term = build(depth)
    assert from_json(to_json(term)) is term


def test_the_text_is_the_same_under_any_hash_seed() -> None:
    code = (
        "from tests.core.test_digest import *; from plica.core import to_json\n"
        "print([to_json(term) for term in golden_terms().values()])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}  # here it is another
    shown = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == str([to_json(term) for term in golden_terms().values()])


# --- refusals ------------------------------------------------------------------------------------


def document(*rows: Any, **other: Any) -> str:
    return json.dumps({"format": FORMAT, "version": VERSION, "rows": rows, **other})


LEAF = "tests.strategies.term.Leaf"
PAIR = "tests.strategies.term.Pair"
MANY = "tests.strategies.term.Many"
DEEP = '{"format": "plica-term", "version": 1, "rows": [["x", ' + "[" * 100_000

WRONG: dict[str, tuple[str, str]] = {
    "empty": ("", "bad-json"),
    "no JSON": ("plica", "bad-json"),
    "truncated": (to_json(Pair(Leaf(1), Leaf(2)))[:-9], "bad-json"),
    "trailing": (to_json(Leaf(1)) + "x", "bad-json"),
    "a list": ("[]", "bad-json"),
    "a number": ("1", "bad-json"),
    "another format": ('{"format": "other", "version": 1, "rows": []}', "bad-json"),
    "no version": ('{"format": "plica-term", "rows": []}', "bad-json"),
    "version 0": (document([LEAF, 1], version=0), "bad-json"),
    "version true": (document([LEAF, 1], version=True), "bad-json"),
    "a newer version": (document([LEAF, 1], version=VERSION + 1), "newer-version"),
    "an unknown key": (document([LEAF, 1], more=1), "bad-json"),
    "a key twice": ('{"format": "plica-term", "format": "plica-term"}', "bad-json"),
    "no rows": ('{"format": "plica-term", "version": 1}', "bad-json"),
    "rows that are none": (document(rows={}), "bad-json"),
    "zero rows": (document(), "bad-json"),
    "a row that is none": (document(1), "bad-json"),
    "an empty row": (document([]), "bad-json"),
    "a tag that is none": (document([1, 1]), "unknown-class"),
    "an unknown class": (document(["no.such.Class", 1]), "unknown-class"),
    "a class one cannot build": (document(["ir.scalar.Scalar"]), "unknown-class"),
    "a field too few": (document([LEAF]), "bad-json"),
    "a field too many": (document([LEAF, 1, 2]), "bad-json"),
    "its own row": (document([PAIR, {"t": 0}, {"t": 0}]), "cyclic-data"),
    "a later row": (document([LEAF, 1], [PAIR, {"t": 0}, {"t": 2}], [LEAF, 2]), "cyclic-data"),
    "a negative row": (document([LEAF, 1], [PAIR, {"t": 0}, {"t": -1}]), "cyclic-data"),
    "a row that is true": (document([LEAF, 1], [PAIR, {"t": 0}, {"t": True}]), "bad-json"),
    "a row nobody uses": (document([LEAF, 1], [LEAF, 2]), "bad-json"),
    "plain data for a term": (document([PAIR, 1, 2]), "bad-json"),
    "a term for plain data": (document([LEAF, 1], [MANY, {"t": 0}, []]), "bad-json"),
    "one term for many": (document([LEAF, 1], [MANY, "a", {"t": 0}]), "bad-json"),
    "an object": (document([LEAF, {"what": 1}]), "bad-json"),
    "an object with two keys": (document([LEAF, {"t": 0, "f": 0}]), "bad-json"),
    "a key of a value twice": (
        document([LEAF, "here"]).replace('"here"', '{"f": "", "f": ""}'),
        "bad-json",
    ),
    "a fraction": (document([LEAF, 1.5]), "bad-json"),
    "NaN": (document([LEAF, math.nan]), "bad-json"),
    "short bits": (document([LEAF, {"f": "00"}]), "bad-json"),
    "bits that are none": (document([LEAF, {"f": "0123456789abcdeX"}]), "bad-json"),
    "base64 that is none": (document([LEAF, {"b": "?"}]), "bad-json"),
    "bytes that are no text": (document([LEAF, {"b": "é"}]), "bad-json"),
    "a name without index": (document([LEAF, {"n": ["x"]}]), "bad-json"),
    "a name numbered true": (
        document(["tests.strategies.term.Ref", {"n": ["x", True]}, 0]),
        "bad-json",
    ),
    "half a letter": (document([LEAF, "\ud800"]), "bad-json"),
    "a long integer": (document([LEAF, 1 << (MAX_INTEGER_BITS + 1)]), "bad-json"),
    "a very long integer": (document([LEAF, 1]).replace("1]", "1" * 5_000 + "]"), "bad-json"),
    "deep lists": (DEEP, "bad-json"),
    "rather deep lists": (
        document([LEAF, json.loads("[" * (MAX_NESTED + 2) + "]" * (MAX_NESTED + 2))]),
        "bad-json",
    ),
    "no dtype": (document(["ir.dtype.DType", "f33"]), "bad-json"),
    "a value its dtype lacks": (
        document(["ir.dtype.DType", "i8"], ["ir.scalar.Lit", 200, {"t": 0}]),
        "bad-json",
    ),
    "an infinite integer": (
        document(["ir.dtype.DType", "i8"], ["ir.scalar.Lit", {"f": "7ff0000000000000"}, {"t": 0}]),
        "bad-json",
    ),
    "a float out of range": (
        document(["ir.dtype.DType", "f32"], ["ir.scalar.Lit", 10**400, {"t": 0}]),
        "bad-json",
    ),
    "too few bytes": (
        document(["ir.dtype.DType", "f32"], ["ir.graph.Const", {"t": 0}, [2], {"b": "AAAA"}]),
        "bad-json",
    ),
    "a negative size": (
        document(
            ["ir.dtype.DType", "f32"], ["ir.graph.Const", {"t": 0}, [-1, -1], {"b": "AAAAAA=="}]
        ),
        "bad-json",
    ),
    "a word that is none": (
        document(
            ["ir.dtype.DType", "i64"], ["ir.scalar.Lit", 1, {"t": 0}],
            ["ir.scalar.Reduce", "product", [], [], {"t": 1}],
        ),
        "bad-json",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_json_is_refused(name: str) -> None:
    text, code = WRONG[name]
    with pytest.raises(Malformed) as caught:
        from_json(text)
    assert caught.value.code == code
    assert caught.value.diagnostics[0].message.endswith(".")
    if code in ("cyclic-data", "unknown-class"):
        assert str(caught.value.diagnostics[0].place).startswith("row ")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(Malformed, match="bad-json"):
        from_json(b"\xff\xfe\x00")


def test_a_newer_version_says_what_to_do() -> None:
    with pytest.raises(Malformed) as caught:
        from_json(WRONG["a newer version"][0])
    found = caught.value.diagnostics[0]
    assert (found.expected, found.found) == ("version 1 or older", "version 2")
    assert found.suggestion is not None


def test_what_json_cannot_hold_is_not_written() -> None:
    for value in ("\ud83d\ude00", 1 << (MAX_INTEGER_BITS + 1)):
        with pytest.raises(Malformed, match="bad-json"):
            to_json(Leaf(value))
    assert from_json(to_json(Leaf(1 << (MAX_INTEGER_BITS - 1)))) is Leaf(
        1 << (MAX_INTEGER_BITS - 1)
    )


@given(st.data())
def test_damaged_text_is_refused_or_another_term(data: st.DataObject) -> None:
    """Whatever one byte is changed to, the answer is a term or a refusal, never another error."""
    lit = Lit(1, i64)
    text = to_json(Add(lit, Add(lit, Lit(2.5, f32)))).encode()
    where = data.draw(st.integers(0, len(text) - 1))
    other = text[:where] + bytes([data.draw(st.integers(0, 255))]) + text[where + 1 :]
    cut = text[:where]
    for each in (other, cut):
        answer = _term_or_code(each)
        known = ("bad-json", "unknown-class", "cyclic-data", "newer-version")
        assert isinstance(answer, Term) or answer in known


def _term_or_code(text: bytes) -> Term | str:
    try:
        return from_json(text)
    except Malformed as refusal:
        return refusal.code
