"""Cubins: which functions the code for a GPU has, and on which GPUs it runs.

Code for one architecture runs on GPUs of the same generation that are not older; that of a name
with an `a` on that very one alone.

>>> runs_on("sm_80", "sm_86"), runs_on("sm_80", "sm_90"), runs_on("sm_90a", "sm_90")
(True, False, True)
"""

from __future__ import annotations

import re
import struct
from typing import Final

from plica.runtime.error import ArtefactError, Diagnostic, damaged

CUDA: Final = 190  # ELF's number of it
ARCHITECTURES: Final = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_90a")  # what code can be made for
_NAME: Final = re.compile(r"sm_(\d+)(\d)(a?)")
_TEXT: Final = b".text."


def runs_on(architecture: str, here: str) -> bool:
    """Whether code for an architecture runs on a GPU of another."""
    wanted, match = _NAME.fullmatch(architecture), _NAME.fullmatch(here)
    if wanted is None or match is None or wanted[1] != match[1]:
        return False
    return wanted[2] == match[2] if wanted[3] else int(wanted[2]) <= int(match[2])


def suited(here: str) -> str | None:
    """The most suitable architecture for a GPU, or None if no code runs on it.

    >>> suited("sm_87"), suited("sm_90"), suited("sm_75"), suited("sm_120")
    ('sm_86', 'sm_90a', None, None)
    """
    return next((each for each in reversed(ARCHITECTURES) if runs_on(each, here)), None)


def check(architecture: str, here: str) -> None:
    """Refuse code that the GPU of this machine cannot run."""
    if not runs_on(architecture, here):
        message = f"The code was made for {architecture}, and the GPU of this machine is another."
        best = suited(here)
        hint = f"Compile the model for 'cuda:{best}'."
        if best is None:
            hint = f"No target of this version has code that runs on {here}: use target='cpu'."
        raise ArtefactError(Diagnostic("other-machine", message, None, here, architecture, hint))


def functions(cubin: bytes) -> frozenset[str]:
    """The function names in a cubin; raises `ArtefactError` for other bytes."""
    if len(cubin) < 64 or cubin[:6] != b"\x7fELF\x02\x01":
        raise damaged("The code for the GPU is no object file.")
    (machine,) = struct.unpack_from("<H", cubin, 18)
    if machine != CUDA:
        raise damaged("The code in the artefact is for no GPU.", f"machine {machine}")
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    if size != 64 or names >= count or start + 64 * count > len(cubin):
        raise damaged("The table of sections is damaged.")
    rows = list(struct.iter_unpack("<IIQQQQIIQQ", cubin[start : start + 64 * count]))
    begin, length = rows[names][4], rows[names][5]
    strings = cubin[begin : begin + length]
    found = [strings[row[0] :].split(b"\0", 1)[0] for row in rows if row[0] < length]
    return frozenset(
        [each.removeprefix(_TEXT).decode("ascii", "backslashreplace") for each in found
         if each.startswith(_TEXT)]
    )  # fmt: skip
