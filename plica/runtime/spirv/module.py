"""Modules of SPIR-V, as far as artefacts are concerned: the functions one can launch.

module       ::= magic version generator bound 0 instruction*      words of 4 bytes
instruction  ::= (count of words, opcode) operand*                 15: an entry point
"""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.runtime.error import damaged

MAGIC: Final = 0x07230203
_HEAD_WORDS: Final = 5
_ENTRY_POINT: Final = 15


def entry_points(code: bytes) -> frozenset[str]:
    """The names of functions that can be launched; raises `ArtefactError` where it is no module."""
    if len(code) % 4 or len(code) < 4 * _HEAD_WORDS:
        raise damaged("The code is no module of SPIR-V.")
    words = np.frombuffer(code, "<u4")
    if int(words[0]) != MAGIC:
        raise damaged("The code is no module of SPIR-V.")
    found = set[str]()
    at = _HEAD_WORDS
    while at < len(words):
        count, opcode = int(words[at]) >> 16, int(words[at]) & 0xFFFF
        if not 0 < count <= len(words) - at:
            raise damaged("An instruction of the module ends outside of it.")
        if opcode == _ENTRY_POINT and count > 3:
            name, end, _ = words[at + 3 : at + count].tobytes().partition(b"\0")
            if not end:
                raise damaged("A name in the module has no end.")
            found.add(name.decode("utf-8", "replace"))
        at += count
    return frozenset(found)
