"""Bindings: the function of an exported library, as other languages call it; a text each.

    model.hpp      C++: a class that owns its workspace, and throws
    model.rs       Rust: a struct whose `run` gives a Result
    model.go       Go, by cgo
    Model.java     Java, by JNA
    model.mjs      JavaScript for Node, over model_node.c (N-API)

>>> sorted(LANGUAGES)
['.go', '.hpp', '.java', '.mjs', '.rs']
>>> LibraryFunction("m", (("in_x", "float", 3),), (("out_y", "double", 2),)).title
'M'
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final, TypeAlias

from plica.runtime.archive import destination, write
from plica.runtime.artefact import Artefact
from plica.runtime.c_interface import c_dims, c_parameters, checked_word
from plica.runtime.error import Diagnostic, UnsupportedError

Parameter: TypeAlias = tuple[str, str, int]
"""A name, its element type in C, and its number of elements."""

# fmt: off
_TYPES: Final[dict[str, tuple[str, str, str, str]]] = {
    # C:         Rust,  Go,        Java,     JavaScript
    "float":    ("f32", "float32", "float",  "Float32Array"),
    "double":   ("f64", "float64", "double", "Float64Array"),
    "int8_t":   ("i8",  "int8",    "byte",   "Int8Array"),
    "uint8_t":  ("u8",  "uint8",   "byte",   "Uint8Array"),
    "int16_t":  ("i16", "int16",   "short",  "Int16Array"),
    "uint16_t": ("u16", "uint16",  "short",  "Uint16Array"),
    "int32_t":  ("i32", "int32",   "int",    "Int32Array"),
    "uint32_t": ("u32", "uint32",  "int",    "Uint32Array"),
    "int64_t":  ("i64", "int64",   "long",   "BigInt64Array"),
    "uint64_t": ("u64", "uint64",  "long",   "BigUint64Array"),
}
_RUST, _GO, _JAVA, _NODE = range(4)
# fmt: on


@dataclass(frozen=True, slots=True)
class LibraryFunction:
    """The function of a library: its name, parameters and results."""

    word: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]

    @property
    def title(self) -> str:
        """The name of its class."""
        return "".join(part[:1].upper() + part[1:] for part in self.word.split("_"))


def call_of(artefact: Artefact, word: str) -> LibraryFunction:
    """The function that the library of an artefact has; one whose sizes are open is refused."""
    if c_dims(artefact):
        message = "Bindings are made for sizes that are known; those of this model are open."
        hint = "Export a library for C, whose header says how sizes are asked for."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "numbers", None, hint))
    interface = artefact.interface
    names, declared = c_parameters(artefact)
    kinds = [each.removeprefix("const ").partition(" *")[0] for each in declared]
    ports = (*interface.inputs, *interface.outputs)
    every = tuple(
        (name, kind, prod(port.shape)) for name, kind, port in zip(names, kinds, ports, strict=True)
    )
    count = len(interface.inputs)
    return LibraryFunction(word, every[:count], every[count:])


def export_binding(
    artefact: Artefact, path: str | os.PathLike[str], name: str | None = None
) -> None:
    """Write the binding whose language the end of the path says."""
    target = Path(path)
    destination(target)
    word = checked_word(name if name is not None else _snake(target.stem))
    for file, text in LANGUAGES[target.suffix](call_of(artefact, word), target.name).items():
        write(target.with_name(file), text.encode())


def _snake(stem: str) -> str:
    """`MyModel` as the name of a function: classes of Java give files theirs."""
    return "".join(
        f"_{each.lower()}" if each.isupper() and at else each.lower()
        for at, each in enumerate(stem)
    )


def _cpp(of: LibraryFunction, file: str) -> dict[str, str]:
    given = ", ".join(f"const std::vector<{kind}>& {name}" for name, kind, _ in of.inputs)
    checks = [
        f'    if ({name}.size() != {size}) throw std::invalid_argument("{name}: {size} elements");'
        for name, _, size in of.inputs
    ]
    rooms = [f"std::vector<{kind}>({size})" for _, kind, size in of.outputs]
    args = [f"{name}.data()" for name, _, _ in of.inputs]
    args += [f"result.{name}.data()" for name, _, _ in of.outputs]
    lines = [
        f"// c++ main.cpp -std=c++17 -L. -l{of.word} -Wl,-rpath,'$ORIGIN'",
        "#pragma once",
        "#include <memory>",
        "#include <stdexcept>",
        "#include <string>",
        "#include <vector>",
        f'#include "{of.word}.h"',
        "",
        "namespace plica {",
        "",
        "// One call at a time; make one of these for each thread.",
        f"class {of.title} {{",
        " public:",
        "  struct Result {",
        *[f"    std::vector<{kind}> {name};" for name, kind, _ in of.outputs],
        "  };",
        "",
        f"  Result operator()({given}) {{",
        *checks,
        f"    Result result{{{', '.join(rooms)}}};",
        f"    const int64_t code = ::{of.word}({', '.join([*args, 'workspace_.get()'])});",
        f'    if (code) throw std::runtime_error("{of.word} failed with " + std::to_string(code));',
        "    return result;",
        "  }",
        "",
        " private:",
        "  std::unique_ptr<unsigned char[]> workspace_ =",
        f"      std::make_unique<unsigned char[]>({of.word.upper()}_WORKSPACE);",
        "};",
        "",
        "}  // namespace plica",
        "",
    ]
    return {file: "\n".join(lines)}


def _rust(of: LibraryFunction, file: str) -> dict[str, str]:
    def kind(of: str) -> str:
        return _TYPES[of][_RUST]

    given = ", ".join(f"{name}: &[{kind(c)}; {size}]" for name, c, size in of.inputs)
    foreign = [f"{name}: *const {kind(c)}" for name, c, _ in of.inputs]
    foreign += [f"{name}: *mut {kind(c)}" for name, c, _ in of.outputs]
    args = [f"{name}.as_ptr()" for name, _, _ in of.inputs]
    args += [f"result.{name}.as_mut_ptr()" for name, _, _ in of.outputs]
    lines = [
        f"//! rustc -O main.rs -L . -C link-arg=-Wl,-rpath,$ORIGIN   (main.rs: mod {of.word};)",
        "",
        f'#[link(name = "{of.word}")]',
        'extern "C" {',
        f"    fn {of.word}({', '.join([*foreign, 'workspace: *mut u8'])}) -> i64;",
        "}",
        "",
        "/// What the model gives.",
        "pub struct Output {",
        *[f"    pub {name}: Vec<{kind(c)}>," for name, c, _ in of.outputs],
        "}",
        "",
        "/// The model; a library call takes memory of its own.",
        f"pub struct {of.title};",
        "",
        f"impl {of.title} {{",
        "    /// Runs the model; the error is what the header says of the number.",
        f"    pub fn run(&self, {given}) -> Result<Output, i64> {{",
        "        let mut result = Output {",
        *[f"            {name}: vec![0 as {kind(c)}; {size}]," for name, c, size in of.outputs],
        "        };",
        f"        let code = unsafe {{ {of.word}({', '.join([*args, 'std::ptr::null_mut()'])}) }};",
        "        if code == 0 { Ok(result) } else { Err(code) }",
        "    }",
        "}",
        "",
    ]
    return {file: "\n".join(lines)}


def _go(of: LibraryFunction, file: str) -> dict[str, str]:
    def kind(of: str) -> str:
        return _TYPES[of][_GO]

    given = ", ".join(f"{_camel(name)} []{kind(c)}" for name, c, _ in of.inputs)
    results = ", ".join(f"{_camel(name)} []{kind(c)}" for name, c, _ in of.outputs)
    every = [(_camel(name), c, size) for name, c, size in (*of.inputs, *of.outputs)]
    args = [f"(*C.{c})(unsafe.Pointer(&{name}[0]))" for name, c, _ in every]
    lines = [
        f"// Package {of.word} calls lib{of.word}.so, which lies beside this file.",
        f"package {of.word}",
        "",
        "/*",
        f"#cgo LDFLAGS: -L${{SRCDIR}} -l{of.word} -Wl,-rpath,${{SRCDIR}}",
        f'#include "{of.word}.h"',
        "*/",
        'import "C"',
        "",
        "import (",
        '\t"fmt"',
        '\t"unsafe"',
        ")",
        "",
        "// Run runs the model; any number of goroutines may.",
        f"func Run({given}) ({results}, err error) {{",
        *[
            f"\tif len({_camel(name)}) != {size} {{\n"
            f'\t\terr = fmt.Errorf("{name}: %d elements, {size} expected", len({_camel(name)}))\n'
            "\t\treturn\n\t}"
            for name, _, size in of.inputs
        ],
        *[f"\t{_camel(name)} = make([]{kind(c)}, {size})" for name, c, size in of.outputs],
        f"\tif code := C.{of.word}({', '.join([*args, 'nil'])}); code != 0 {{",
        f'\t\terr = fmt.Errorf("{of.word} failed with %d", int64(code))',
        "\t}",
        "\treturn",
        "}",
        "",
    ]
    return {file: "\n".join(lines)}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _java(of: LibraryFunction, file: str) -> dict[str, str]:
    def kind(of: str) -> str:
        return _TYPES[of][_JAVA]

    every = [*of.inputs, *of.outputs]
    given = ", ".join(f"{kind(c)}[] {_camel(name)}" for name, c, _ in every)
    checks = [
        f"    if ({_camel(name)}.length != {size})\n"
        f'      throw new IllegalArgumentException("{name}: {size} elements");'
        for name, _, size in every
    ]
    args = ", ".join([*[_camel(name) for name, _, _ in every], "null"])
    title = Path(file).stem
    lines = [
        "// javac -cp /usr/share/java/jna.jar *.java",
        "// java -cp /usr/share/java/jna.jar:. -Djna.library.path=. Main",
        "import com.sun.jna.Library;",
        "import com.sun.jna.Native;",
        "import com.sun.jna.Pointer;",
        "",
        f"/** The model in lib{of.word}.so; any number of threads may call it. */",
        f"public final class {title} {{",
        "  private interface Functions extends Library {",
        f"    long {of.word}({given}, Pointer workspace);",
        "  }",
        "",
        "  private static final Functions LIBRARY =",
        f'      Native.load("{of.word}", Functions.class);',
        "",
        "  /** Runs the model: inputs, then arrays that its outputs are written to. */",
        f"  public static void run({given}) {{",
        *checks,
        f"    long code = LIBRARY.{of.word}({args});",
        f'    if (code != 0) throw new IllegalStateException("{of.word} failed with " + code);',
        "  }",
        "}",
        "",
    ]
    return {file: "\n".join(lines)}


def _node(of: LibraryFunction, file: str) -> dict[str, str]:
    every = [*of.inputs, *of.outputs]
    native = f"{of.word}_node"
    given = ", ".join(_camel(name) for name, _, _ in of.inputs)
    script = [
        f"// cc -shared -fPIC -I/usr/include/node {native}.c -L. -l{of.word} "
        f"-Wl,-rpath,'$ORIGIN' -o {native}.node",
        'import { createRequire } from "node:module";',
        "",
        f'const native = createRequire(import.meta.url)("./{native}.node");',
        "",
        "/** Runs the model: typed arrays in, an object of typed arrays out. */",
        f"export function run({given}) {{",
        *[
            f"  if (!({_camel(name)} instanceof {_TYPES[c][_NODE]}) ||\n"
            f"      {_camel(name)}.length !== {size})\n"
            f'    throw new TypeError("{name}: a {_TYPES[c][_NODE]} of {size} elements");'
            for name, c, size in of.inputs
        ],
        *[
            f"  const {_camel(name)} = new {_TYPES[c][_NODE]}({size});"
            for name, c, size in of.outputs
        ],
        f"  const code = native.run({', '.join(_camel(name) for name, _, _ in every)});",
        f"  if (code !== 0) throw new Error(`{of.word} failed with ${{code}}`);",
        f"  return {{ {', '.join(_camel(name) for name, _, _ in of.outputs)} }};",
        "}",
        "",
    ]
    places = [f"data[{at}]" for at in range(len(every))]
    addon = [
        "#include <node_api.h>",
        f'#include "{of.word}.h"',
        "",
        "static napi_value run(napi_env env, napi_callback_info info) {",
        f"  size_t count = {len(every)};",
        f"  napi_value args[{len(every)}], result;",
        f"  void *data[{len(every)}];",
        "  if (napi_get_cb_info(env, info, &count, args, 0, 0) != napi_ok) return 0;",
        "  for (size_t i = 0; i < count; i++)",
        "    if (napi_get_typedarray_info(env, args[i], 0, 0, &data[i], 0, 0) != napi_ok)",
        "      return 0;",
        f"  int64_t code = {of.word}({', '.join([*places, '0'])});",
        "  napi_create_int64(env, code, &result);",
        "  return result;",
        "}",
        "",
        "NAPI_MODULE_INIT() {",
        "  napi_value function;",
        '  napi_create_function(env, "run", NAPI_AUTO_LENGTH, run, 0, &function);',
        '  napi_set_named_property(env, exports, "run", function);',
        "  return exports;",
        "}",
        "",
    ]
    return {file: "\n".join(script), f"{native}.c": "\n".join(addon)}


LANGUAGES: Final[dict[str, Callable[[LibraryFunction, str], dict[str, str]]]] = {
    ".hpp": _cpp,
    ".rs": _rust,
    ".go": _go,
    ".java": _java,
    ".mjs": _node,
}
"""The files of a binding, by the end of the name of the first."""
