"""Cores: microcontrollers that code is made for, and the boards on which QEMU has them.

>>> CORES["cortex-m7"].board.machine, CORES["cortex-m3"].triple
('mps2-an500', 'thumbv7m-none-eabi')
"""

from __future__ import annotations

from typing import Final

from attrs import frozen


@frozen
class Board:
    """A board that QEMU emulates, and where its memories begin and how many bytes they have."""

    emulator: str
    machine: str
    flash: tuple[int, int]
    ram: tuple[int, int]


@frozen
class Core:
    """A microcontroller: its name, LLVM's triple, the C compiler and its options, a board, and
    the packages that hold what makes and runs code for it."""

    name: str
    triple: str
    compiler: str
    options: tuple[str, ...]
    board: Board
    package: str


_KIB: Final = 1024
_ARM: Final = "gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm"
_RISCV: Final = "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-misc"


def _mps2(machine: str) -> Board:
    size = 4096 * _KIB
    return Board("qemu-system-arm", machine, (0, size), (0x2000_0000, size))


def _arm(name: str, triple: str, board: Board, *options: str) -> Core:
    given = (f"-mcpu={name}", "-mthumb", *options)
    return Core(name, triple, "arm-none-eabi-gcc", given, board, _ARM)


_AN547: Final = Board("qemu-system-arm", "mps3-an547", (0, 512 * _KIB), (0x2000_0000, 512 * _KIB))
_VIRT: Final = Board(
    "qemu-system-riscv32", "virt", (0x8000_0000, 8192 * _KIB), (0x8080_0000, 8192 * _KIB)
)
_HARD: Final = "-mfloat-abi=hard"

CORES: Final[dict[str, Core]] = {
    core.name: core
    for core in (
        _arm("cortex-m3", "thumbv7m-none-eabi", _mps2("mps2-an385")),
        _arm("cortex-m4", "thumbv7em-none-eabihf", _mps2("mps2-an386"), _HARD, "-mfpu=fpv4-sp-d16"),
        _arm("cortex-m7", "thumbv7em-none-eabihf", _mps2("mps2-an500"), _HARD, "-mfpu=fpv5-d16"),
        _arm("cortex-m55", "thumbv8.1m.main-none-eabihf", _AN547, _HARD),
        Core(
            "rv32imc", "riscv32-unknown-elf", "riscv64-unknown-elf-gcc",
            ("--specs=picolibc.specs", "-march=rv32imc", "-mabi=ilp32", "-mcmodel=medany"),
            _VIRT, _RISCV,
        ),
    )
}  # fmt: skip
"""The cores by name."""

DEFAULT: Final = "cortex-m7"
