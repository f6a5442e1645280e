"""Terms: immutable, hash-consed values whose grammar is their declaration.

A term is an attrs frozen class over `Term`; its fields are terms, tuples of terms, or plain
hashable data.  Building an equal term gives the same object, so equality is identity.

>>> from attrs import frozen
>>> @frozen(eq=False)
... class Leaf(Term):
...     value: float
>>> @frozen(eq=False)
... class Pair(Term):
...     left: Term
...     right: Term
>>> Pair(Leaf(1.0), Leaf(2.0)) is Pair(Leaf(1.0), Leaf(2.0))
True
>>> Leaf(0.0) is Leaf(-0.0), Leaf(1) is Leaf(True)
(False, False)

Not here: traversals (`fold`), variables and scopes (`binding`), identity up to renaming (`digest`).
"""

from __future__ import annotations

import struct
import sys
import threading
import types
import typing
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, Union, cast

import attrs

from plica.runtime.late import late

T = TypeVar("T", bound="Term")

ONE, MANY, MIXED, PLAIN = "one", "many", "mixed", "plain"
"""The content of a field: a term; a tuple of terms; terms nested in a container; no term."""

_pack_double: Final = struct.Struct("<d").pack
_lock: Final = threading.RLock()  # reentrant: a collection may run a callback while we hold it
_new: Final = cast(Any, object.__new__)
_set_children: Callable[[Any, Any], None]
_set_free: Callable[[Any, Any], None]


class _Entry(weakref.ref):  # type: ignore[type-arg]  # generic only in stubs
    """A weak reference that knows its key, so that a dead node can leave its table."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


FrozenBytes: TypeAlias = bytes | memoryview
"""Immutable bytes. Long ones may be a view of an array, without a copy."""

LARGE_BYTES: Final = 1 << 16  # byte strings from this length on are compared by a sample first


class _LargeBytes:
    """Many bytes as part of a key: hashing all of them would take as long as making them did."""

    __slots__ = ("data", "few")

    def __init__(self, data: FrozenBytes) -> None:
        self.data = data
        some = data[:64], data[-64:], data[:: len(data) // 64]
        self.few = hash((len(data), *map(bytes, some)))

    def __hash__(self) -> int:
        return self.few

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _LargeBytes) or len(self.data) != len(other.data):
            return False
        if self.data.__class__ is bytes is other.data.__class__:
            return self.data == other.data
        mine, theirs = memoryview(self.data), memoryview(other.data)
        words = len(mine) // 8 * 8  # views are compared number by number: eight bytes are one
        return mine[words:] == theirs[words:] and mine[:words].cast("Q") == theirs[:words].cast("Q")


def _forget_from(table: dict[Any, _Entry]) -> Callable[[_Entry], None]:
    """Returns the weakref callback that removes a dead node's entry from the table."""
    lock = _lock  # bound early: at exit terms outlive this module's globals

    def forget(entry: _Entry) -> None:
        key = entry.key
        with lock:
            if table.get(key) is entry:
                del table[key]

    return forget


class TermMeta(type):
    """The one place where terms are interned.

    Each class has its own weak table keyed by the arguments.  Where a class has plain fields the
    key also tells 1 from True from 1.0, and -0.0 from 0.0, which Python's `==` does not.
    """

    # Any: the arguments are whatever the fields of the class being built are.
    _arity: int
    _required: int  # how many arguments have no default
    _defaults: tuple[Any, ...]
    _plan: tuple[Any, ...]
    _table: dict[Any, _Entry]
    _fields: tuple[str, ...]
    _kinds: tuple[str, ...]
    _simple: bool
    normal: Callable[..., tuple[Any, ...]] | None

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any
    ) -> TermMeta:
        if bases:
            # In the class's own namespace attrs leaves it alone: a generated repr would recurse.
            namespace.setdefault("__repr__", late("plica.core.sketch:sketch"))
        cls = super().__new__(mcs, name, bases, namespace, **kwargs)
        cls._arity = -1  # no call has this many arguments: the first one prepares the class
        if bases:
            _classes[cls.tag()] = cls
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != cls._arity:
            args = _bind(cls, args, kwargs)
        table, normal, key_of, fill, forget = cls._plan
        if normal is not None:
            args = normal(*args)
        key = args if key_of is None else key_of(args)
        try:
            entry = table.get(key)
        except TypeError:  # a list, a dict: no key, so no field either
            raise _unhashable(cls, args) from None
        if entry is not None and (node := entry()) is not None:
            return node
        node = _new(cls)
        fill(node, args)
        entry = _Entry(node, forget)
        entry.key = key
        while True:
            first = table.setdefault(key, entry)
            if first is entry:
                return node
            other = first()
            if other is not None:  # another thread was quicker
                return other
            forget(first)  # a dead node has not left yet

    def tag(cls) -> str:
        """The name under which the class is written down, in files and in digests.

        It is the path of its file without `plica.` and its own name; a class that was renamed says
        the name it had (`written`), a file that was moved the path it had (`WRITTEN`).
        """
        if "written" in cls.__dict__:
            return str(cls.__dict__["written"])
        file = getattr(sys.modules.get(cls.__module__), "WRITTEN", None)
        return f"{file or cls.__module__.removeprefix('plica.')}.{cls.__qualname__}"


_classes: Final[dict[str, TermMeta]] = {}


def class_of(tag: str) -> TermMeta | None:
    """The term class written down as `tag`, if some imported module declares it."""
    term_meta = _classes.get(tag)
    return term_meta if term_meta is not None and "__attrs_attrs__" in term_meta.__dict__ else None


class Term(metaclass=TermMeta):
    """What every term is: interned, weakly referable, with its children at hand."""

    __slots__ = ("__weakref__", "_children", "_free", "_told")
    _children: tuple[Term, ...]
    _free: frozenset[Any] | None  # the free variables, once somebody asked
    _told: tuple[bytes, tuple[Any, ...]]  # what a digest knows of it; not there before

    hole: ClassVar[bool] = False
    """Whether terms of this class stand for others in a pattern."""

    variable: ClassVar[bool] = False
    """Whether terms of this class are variables, identified by their `name` field."""

    mentioned: ClassVar[bool] = False
    """Whether a term of this class in a binding field (a constructor in a pattern) is only
    mentioned there: no variable in it is introduced."""

    normal: ClassVar[Callable[..., tuple[Any, ...]] | None] = None
    """Brings the arguments into normal form before they are interned, and checks them; a class
    that has one declares it as a static method."""

    binds: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()
    """Pairs (field that holds variables, fields in which they are bound)."""

    @classmethod
    def not_a_term(cls, given: object) -> TypeError:
        """The error for an object where a term is required."""
        kind = type(given).__name__
        return TypeError(f"{cls.__name__} expects terms, found {given!r} of type {kind}.")

    def canonical(self) -> Term:
        """An equal term whose digest does not depend on names: most terms are their own."""
        return self

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For pretty printers (IPython's, hypothesis's), which would walk the fields for ever."""
        printer.text(repr(self))

    def __copy__(self: T) -> T:
        return self

    def __deepcopy__(self: T, memo: object) -> T:
        return self

    def _repr_html_(self) -> str:
        """What a notebook shows: a module as its script, a trace as its do-block."""
        return str(late("plica.runtime.notebook:preformatted")(str(self)))

    __reduce__ = late("plica.core.encode:reduced")  # pickling is rare, and encode needs Term


# Through the slot's own setter, since the classes are frozen.
_set_children = cast(Any, Term.__dict__["_children"]).__set__
_set_free = cast(Any, Term.__dict__["_free"]).__set__


def children(term: Term) -> tuple[Term, ...]:
    """The terms directly inside `term`, in field order."""
    return term._children


def rebuild(term: T, kids: tuple[Term, ...]) -> T:
    """`term` with other children.  `rebuild(t, children(t)) is t`."""
    if kids == term._children:  # tuples of interned terms: compared by identity
        return term
    cls = type(term)
    if cls._simple:
        return cls(*kids)
    rest = iter(kids)
    args: list[Any] = []
    for name, kind in zip(cls._fields, cls._kinds, strict=True):
        value = getattr(term, name)
        if kind is ONE:
            args.append(next(rest))
        elif kind is MANY:
            args.append(tuple([next(rest) for _ in value]))
        elif kind is MIXED:
            args.append(_refill(value, rest))
        else:
            args.append(value)
    return cls(*args)


def field_names(cls: TermMeta) -> tuple[str, ...]:
    """The names of the fields of a term class, in order."""
    if cls._arity < 0:
        _prepare(cls)
    return cls._fields


def field_kinds(cls: TermMeta) -> tuple[str, ...]:
    """The content of each field of a term class: ONE, MANY, MIXED or PLAIN."""
    if cls._arity < 0:
        _prepare(cls)
    return cls._kinds


def field_types(cls: TermMeta) -> tuple[Any, ...]:
    """The declared types of the fields of a term class, in order.

    `typing.get_type_hints` of a class would evaluate all class variables of its bases, too.
    """
    names = [field.name for field in attrs.fields(cast(Any, cls))]
    hints: dict[str, Any] = {}
    for owner in reversed(cls.__mro__):
        stated = vars(owner).get("__annotations__", {})
        if own := {name: stated[name] for name in names if name in stated}:
            holder = types.SimpleNamespace(__annotations__=own)
            where = vars(sys.modules[owner.__module__])
            hints |= typing.get_type_hints(holder, where, dict(vars(owner)))
    return tuple([hints[name] for name in names])


def leaf_key(value: Any) -> Any:
    """A stand-in for a plain value under which `==` tells apart what Python's conflates.

    Texts and whole numbers stand for themselves, since all that might equal them does not.
    """
    kind = value.__class__
    if kind is str or kind is int or kind.__class__ is TermMeta:
        return value
    if kind is bytes or kind is memoryview:
        return bytes(value) if len(value) < LARGE_BYTES else _LargeBytes(value)
    if kind is float:
        return (float, _pack_double(value))
    if kind is tuple:
        return tuple(
            [
                item if (of := item.__class__) is str or of is int else leaf_key(item)
                for item in value
            ]
        )
    return (kind, value)


def _unhashable(cls: TermMeta, args: Iterable[Any]) -> TypeError:
    names = zip(cls._fields, args, strict=True)
    name = next((n for n, arg in names if isinstance(arg, list | dict | set)), "a field")
    return TypeError(f"{cls.__name__}.{name} cannot change later: give a tuple, not a list.")


def _not_a_term(cls: TermMeta, args: Iterable[Any]) -> TypeError:
    bad = next(arg for arg in args if not isinstance(arg, Term))
    return cast(type[Term], cls).not_a_term(bad)


def _bind(cls: TermMeta, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments in field order, keywords and defaults filled in."""
    if cls._arity < 0:
        _prepare(cls)
    if not kwargs and cls._required <= len(args) <= cls._arity:
        return args + cls._defaults[len(args) :]
    values = dict(zip(cls._fields, args, strict=False))
    if len(args) > cls._arity or not values.keys().isdisjoint(kwargs):
        raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}.")
    values |= kwargs
    filled = []
    for name, default in zip(cls._fields, cls._defaults, strict=True):
        if name in values:
            filled.append(values.pop(name))
        elif default is not attrs.NOTHING:
            filled.append(default)
        else:
            raise TypeError(f"{cls.__name__} misses the field {name}.")
    if values:
        raise TypeError(f"{cls.__name__} has no field {', '.join(values)}.")
    return tuple(filled)


def _prepare(cls: TermMeta) -> None:
    """Derive from the declaration what building, walking and rebuilding need."""
    with _lock:  # two threads must not make two tables
        if cls._arity < 0:
            _prepare_once(cls)


def _prepare_once(cls: TermMeta) -> None:
    if "__attrs_attrs__" not in cls.__dict__:
        raise TypeError(f"{cls.__name__} is not a term one can build: declare it with @frozen.")
    fields = attrs.fields(cast(Any, cls))
    cls._fields = tuple(field.name for field in fields)
    cls._kinds = tuple(map(_kind_of, field_types(cls)))
    cls._defaults = tuple(field.default for field in fields)
    stated = [at for at, default in enumerate(cls._defaults, 1) if default is attrs.NOTHING]
    cls._required = max(stated, default=0)
    cls._simple = bool(cls._kinds) and all(kind is ONE for kind in cls._kinds)
    bare = all(kind is ONE or kind is MANY for kind in cls._kinds)
    cls._table = {}
    setters = tuple(_setter(cls, name) for name in cls._fields)
    fill = _fill_pair if cls._simple and len(setters) == 2 else _fill_any
    cls._plan = (
        cls._table,
        cls.normal,
        None if bare else _key_by(cls._kinds),
        fill(cls, setters),
        _forget_from(cls._table),
    )
    cls._arity = len(fields)  # last: from now on nobody waits


def _key_by(kinds: tuple[str, ...]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """The key of a node from its arguments: terms are their own, only plain data needs another."""
    doubtful = tuple([at for at, kind in enumerate(kinds) if kind is PLAIN or kind is MIXED])

    def key_of(args: tuple[Any, ...]) -> tuple[Any, ...]:
        key = list(args)
        for at in doubtful:
            value = key[at]
            if (kind := value.__class__) is not str and kind is not int:
                key[at] = leaf_key(value)
        return tuple(key)

    return key_of


_Setter = Callable[[Any, Any], None]
_Filler = Callable[[Any, tuple[Any, ...]], None]


def _fill_pair(cls: TermMeta, setters: tuple[_Setter, ...]) -> _Filler:
    """Writes the fields of a new node that is made of two terms, as most are."""
    put_left, put_right = setters
    put_children, put_free, meta = _set_children, _set_free, TermMeta

    def fill(node: Any, args: tuple[Any, ...]) -> None:
        left, right = args
        if left.__class__.__class__ is not meta or right.__class__.__class__ is not meta:
            raise _not_a_term(cls, args)
        put_left(node, left)
        put_right(node, right)
        put_children(node, args)
        put_free(node, None)

    return fill


def _fill_any(cls: TermMeta, setters: tuple[_Setter, ...]) -> _Filler:
    """Writes the fields of a new node."""
    kinds, put_children, put_free, meta = cls._kinds, _set_children, _set_free, TermMeta

    def fill(node: Any, args: tuple[Any, ...]) -> None:
        kids: list[Term] = []
        for put, kind, value in zip(setters, kinds, args, strict=True):
            if kind is PLAIN:
                pass
            elif kind is ONE:
                if value.__class__.__class__ is not meta:
                    raise _not_a_term(cls, (value,))
                kids.append(value)
            elif kind is MANY:
                if value.__class__ is not tuple:
                    raise TypeError(f"{cls.__name__} expects a tuple of terms, found {value!r}.")
                for kid in value:
                    if kid.__class__.__class__ is not meta:
                        raise _not_a_term(cls, (kid,))
                kids += value
            else:
                _gather(value, kids)
            put(node, value)
        put_children(node, tuple(kids))
        put_free(node, None)

    return fill


def _setter(cls: TermMeta, name: str) -> _Setter:
    """Writes a field of a new node, past the guard of frozen classes and in half the time.

    It replaces the `__init__` generated by attrs, so fields have no converters and validators; use
    `normal` instead.
    """
    field = attrs.fields_dict(cast(Any, cls))[name]
    if field.converter is not None or field.validator is not None:
        raise TypeError(f"{cls.__name__}.{name} must be checked in `normal`, not by attrs.")
    slot = next((each.__dict__[name] for each in cls.__mro__ if name in each.__dict__), None)
    if not isinstance(slot, types.MemberDescriptorType):
        raise TypeError(f"{cls.__name__}.{name} has no slot: declare the class with @frozen.")
    return slot.__set__


def _kind_of(hint: Any) -> str:
    if _is_term_type(hint):
        return ONE
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis and _is_term_type(inner[0]):
        return MANY
    return MIXED if _mentions_term(hint) else PLAIN


def _is_term_type(hint: Any) -> bool:
    if isinstance(hint, TermMeta):
        return True
    if typing.get_origin(hint) in (Union, types.UnionType):
        return all(_is_term_type(part) for part in typing.get_args(hint))
    return False


def _mentions_term(hint: Any) -> bool:
    return (
        hint is Any
        or hint is object
        or _is_term_type(hint)
        or any(_mentions_term(part) for part in typing.get_args(hint))
    )


def _gather(value: Any, kids: list[Term]) -> None:
    kind = value.__class__
    if kind.__class__ is TermMeta:
        kids.append(value)
    elif kind is tuple or isinstance(value, tuple):
        for item in value:
            if (of := item.__class__) is not str and of is not int:
                _gather(item, kids)


def _refill(value: Any, rest: Iterator[Term]) -> Any:
    if isinstance(value, Term):
        return next(rest)
    if value.__class__ is tuple:
        return tuple([_refill(item, rest) for item in value])
    return value
