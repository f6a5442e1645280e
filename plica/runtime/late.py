"""Late imports: names that are looked up when they are first used.

A package that lists its exports under `TYPE_CHECKING` and then calls `lazily(__name__)` costs
nothing to import: each name imports only its own file. The list is read from the source, so type
checkers and the runtime use the same one.

A file that needs some names seldom, or only once it runs, imports them in a block, and the name of
each is a function that imports it when it is first called:

    with lazy_imports(__name__):
        from math import gcd

A class whose method is implemented in a file that depends on the class (a printer, a reader) names
the function with `late`. `python_here` gives the command and environment of another process with
the same imports.

>>> late("math:gcd")(12, 18)
6
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from threading import Lock
from types import ModuleType, SimpleNamespace
from typing import Any, Final


@cache
def late(path: str) -> Callable[..., Any]:
    """The function at `module:name`, imported when it is first called."""
    module, _, name = path.partition(":")
    home: ModuleType | None = None

    def call(*args: Any, **named: Any) -> Any:  # Any: whatever the function takes and gives
        nonlocal home
        if home is None:
            home = import_module(module)
        return getattr(home, name)(*args, **named)

    return call


class _LazyImports:
    """Answers the imports of modules that are inside a `lazy_imports` block.

    It replaces `builtins.__import__` while any module is in such a block, and delegates all other
    modules to the original: several threads may import at once.
    """

    def __init__(self) -> None:
        self._lock, self._modules = Lock(), list[str]()
        self._eager: Callable[..., Any] = builtins.__import__  # Any: modules

    def enter(self, module: str) -> None:
        with self._lock:
            if not self._modules:
                self._eager, builtins.__import__ = builtins.__import__, self._import
            self._modules.append(module)

    def leave(self, module: str) -> None:
        with self._lock:
            self._modules.remove(module)
            if not self._modules:
                builtins.__import__ = self._eager

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:  # Any: a module, or what has its names
        if fromlist and globals is not None and globals.get("__name__") in self._modules:
            return SimpleNamespace(**{each: late(f"{name}:{each}") for each in fromlist})
        return self._eager(name, globals, locals, fromlist, level)


_LAZY_IMPORTS: Final = _LazyImports()


@contextmanager
def lazy_imports(module: str) -> Iterator[None]:
    """Defers the `from … import …` statements inside the block until a name is first called."""
    _LAZY_IMPORTS.enter(module)
    try:
        yield
    finally:
        _LAZY_IMPORTS.leave(module)


class Lazy(ModuleType):
    """A package whose exports are imported one by one."""

    _homes: dict[str, str]  # where each export is defined

    def __getattr__(self, name: str) -> Any:  # Any: what the file defines under the name
        if (home := self._homes.get(name)) is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if home == self.__name__:
            value: Any = import_module(f"{home}.{name}")
        else:
            value = getattr(import_module(home), name)
        self.__dict__[name] = value  # the next use does not come here
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # Importing a submodule binds its name here, but the export of that name is meant.
        if not (isinstance(value, ModuleType) and name in self._homes):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(self._homes)


def lazily(package: str) -> None:
    """Makes a package import the names of its `TYPE_CHECKING` block on first use."""
    module = sys.modules[package]
    loader: Any = module.__loader__  # Any: typeshed's loaders need not have sources, ours do
    module.__dict__["_homes"] = _homes(loader.get_source(package))
    module.__class__ = Lazy


def require_name_in_plica(package: str) -> None:
    """Refuse a layer that is imported through a link of the repository's root, as `core`.

    Its classes would be made a second time: a `core.term.Term` is no `plica.core.term.Term`.
    """
    if package.partition(".")[0] != "plica":
        message = (
            f"The package {package!r} is a layer of Plica: import plica.{package} instead. "
            f"The link {package} in the root of the repository is for readers; imported by that "
            "name, classes are made a second time, and terms of both do not mix."
        )
        raise ImportError(message, name=package)


def load_all(name: str) -> None:
    """Import every file whose names a module imports when they are used, or a lazy package exports,
    for what they declare."""
    module = import_module(name)
    loader: Any = module.__loader__  # Any: as above
    homes = module.__dict__.get("_homes") or _homes(loader.get_source(name))
    for home in dict.fromkeys(homes.values()):
        import_module(home)


def python_here(*arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of another Python with these arguments, which looks for
    modules where this one does: a file of the folder it runs in is none of them by that alone."""
    folders = [os.path.abspath(each) for each in sys.path]  # "" is the folder it runs in
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(folders))}
    return [sys.executable, "-P", *arguments], environment


def _homes(source: str) -> dict[str, str]:
    homes: dict[str, str] = {}
    for block in ast.parse(source).body:
        if (isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING") or (
            isinstance(block, ast.With) and "lazy_imports" in ast.unparse(block.items[0])
        ):
            for each in block.body:
                if isinstance(each, ast.ImportFrom) and each.module is not None:
                    homes.update((alias.name, each.module) for alias in each.names)
    return homes
