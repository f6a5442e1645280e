"""Well-typed modules that cover every construct of the graph language.

Types are known by construction: every variable is typed, every polymorphic call has its type
arguments, and there is no `Literal`; so generation does not depend on inference, and inference can
be tested against it. Every module terminates on every input.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.ir.generate.builder import Builder
from plica.ir.generate.definition import TEMPLATES, Definitions, data_type, extern, main
from plica.ir.generate.scope import GenerationScope, KnownExpression, typed
from plica.ir.graph.expression import Var
from plica.ir.graph.module import Module, module
from plica.ir.type import FuncType


@st.composite
def modules(draw: DrawFn, externs: bool = False, depth: int = 2) -> Module:
    """Modules with data types, functions of every template, and a main function.

    With `externs` some call functions defined elsewhere: `EXTERNS` gives their meaning.
    """
    builder = Builder(draw)
    builder.settle_palette()
    definitions: Definitions = []
    for _ in range(builder.count(0, 2)):
        made = data_type(builder)
        builder.data.append(made)
        definitions.append(made)
    pool: list[KnownExpression] = []
    if externs:
        definitions += [extern(builder) for _ in range(builder.count(0, 2))]
        pool += [KnownExpression(var, typed(var)) for var, _ in definitions if isinstance(var, Var)]
    for name, definition in builder.data:
        if not definition.types:  # constructors are functions too, where they need no type
            ways = builder.constructors_of(name)
            pool += [
                KnownExpression(way, way.type) for way in ways if isinstance(way.type, FuncType)
            ]
    for _ in range(builder.count(0, 3)):
        template = builder.choose(TEMPLATES)
        found = template(builder, GenerationScope(list(pool)), depth)
        definitions += found
        pool += [KnownExpression(var, typed(var)) for var, _ in found if isinstance(var, Var)]
    root, function = main(builder, GenerationScope(list(pool)), depth)
    definitions.append((root, function))
    return module(dict(definitions), root)
