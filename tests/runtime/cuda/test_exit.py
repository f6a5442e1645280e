"""Objects of a GPU that are deleted when the interpreter ends: nothing is raised."""

from __future__ import annotations

import subprocess
import sys

AT_EXIT = """
import builtins
from ctypes import c_void_p
from plica.runtime.cuda import array, driver

def without_a_device(kind, **fields):
    made = object.__new__(kind)
    vars(made).update(fields)
    return made

memory = without_a_device(driver.CudaMemory, _device=object(), size=4, address=1)
stream = without_a_device(driver.CudaStream, device=object(), _handle=c_void_p(1))
others = [
    without_a_device(kind, _device=object(), _handle=c_void_p(1))
    for kind in (driver.CudaModule, driver.CudaGraph, driver.CudaEvent)
]
spare = array.SpareMemory(stream)
builtins.kept = [array.DeviceArray(object(), memory, stream, spare, None), memory, stream, *others]
array.__dict__.update(dict.fromkeys([name for name in vars(array) if not name.startswith("__")]))
driver.__dict__.update(dict.fromkeys([name for name in vars(driver) if not name.startswith("__")]))
"""


def test_nothing_is_raised_when_names_of_modules_are_gone() -> None:
    found = subprocess.run(
        [sys.executable, "-c", AT_EXIT], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")
