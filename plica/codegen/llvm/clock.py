"""The clock: how long each launch takes, noted by the code itself when somebody asks.

    void plica_profile_use(i64 *notes)      from now on; null, as at first, for never

After launch `n` the code adds the time since the last note to `notes[1 + 2n]`, and 1 to
`notes[2 + 2n]`; `notes[0]` is when the last note was made.  While nobody asks, a launch costs one
call and one look at a pointer more.

>>> "clock_gettime" in text("x86_64-unknown-linux-gnu"), "clock_gettime" in text("armv7-none-eabi")
(True, False)
"""

from __future__ import annotations

from typing import Final

from plica.codegen.llvm.pool import has_pool
from plica.runtime.profile import USE

_SILENT: Final = """\
define internal void @plica.tick(i64 %launch) nounwind {
  ret void
}
"""

_CLOCK: Final = """\
declare i32 @clock_gettime(i32, ptr)

@plica.notes = internal global ptr null, align 8

define hidden void @<USE>(ptr %notes) nounwind {
  store atomic ptr %notes, ptr @plica.notes release, align 8
  ret void
}

define internal void @plica.tick(i64 %launch) nounwind {
entry:
  %notes = load atomic ptr, ptr @plica.notes acquire, align 8
  %none = icmp eq ptr %notes, null
  br i1 %none, label %end, label %note
note:
  %time = alloca [2 x i64], align 8
  %code = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %at, align 8
  %big = mul i64 %seconds, 1000000000
  %now = add i64 %big, %rest
  %then = load i64, ptr %notes, align 8
  %spent = sub i64 %now, %then
  store i64 %now, ptr %notes, align 8
  %twice = mul i64 %launch, 2
  %first = add i64 %twice, 1
  %second = add i64 %twice, 2
  %total = getelementptr i64, ptr %notes, i64 %first
  %old = load i64, ptr %total, align 8
  %new = add i64 %old, %spent
  store i64 %new, ptr %total, align 8
  %count = getelementptr i64, ptr %notes, i64 %second
  %was = load i64, ptr %count, align 8
  %is = add i64 %was, 1
  store i64 %is, ptr %count, align 8
  br label %end
end:
  ret void
}
"""


def text(triple: str) -> str:
    """The clock for a machine; one that notes nothing where it is not written for it."""
    return _CLOCK.replace("<USE>", USE) if has_pool(triple) else _SILENT
