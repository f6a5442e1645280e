"""Tasks: generators that call one another without Python's stack (a trampoline).

A task yields the task whose result it needs and receives that result, so recursion depth is bounded
by memory only.

>>> def down(n: int) -> Task[int]:
...     if n == 0:
...         return 0
...     below = yield down(n - 1)
...     return below + 1
>>> run(down(10_000))
10000
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
# Any: a task may wait for tasks with results of any type.
Task: TypeAlias = Generator["Task[Any]", Any, T]


def run(task: Task[T]) -> T:
    """The result of a task."""
    stack: list[Task[Any]] = [task]
    value: Any = None
    while stack:
        try:
            inner = stack[-1].send(value)
        except StopIteration as stop:
            stack.pop()
            value = stop.value
        else:
            stack.append(inner)
            value = None
    return value  # type: ignore[no-any-return]  # the first task's own result
