"""docs/torch.md is the table of operators, written down."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch  # it may be missing

from plica.frontend.torch.row.complex_number import COMPLEX
from plica.frontend.torch.table import TABLE

PAGE = Path(__file__).parents[3] / "docs" / "torch.md"
HEAD = """# PyTorch models

`pip install 'plica[torch]'`; the versions of torch that this page is about: {version}.

## Exported programs

`plica.from_torch(program, dims=None)` takes what `torch.export.export` gives and makes a module,
which `plica.compile` and `plica.interpret` take.

```python
import numpy as np
import torch

import plica

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3)).eval()
example = torch.randn(5, 4)
program = torch.export.export(model, (example,))
exe = plica.compile(plica.from_torch(program))      # or plica.compile(program)
np.testing.assert_allclose(exe(example), model(example).detach().numpy(), rtol=1e-4, atol=1e-5)
```

`plica.compile(model.eval())` takes the module itself: torch exports it when it is first called with
inputs of some shapes, arrays or tensors. `exe.at(example)` is the executable for such inputs with
the weights of now, which can be saved; for one code that serves all sizes, export the program with
`Dim`s. On a GPU a module takes `stream=` and tells `exe.seconds(example)`, as other executables
there do ([gpu.md](gpu.md)). An input that it cannot take is refused with its name, what was
expected and found, and what to do: `x.to(torch.float32)`, `x.detach()`, `x.to_dense()`.

- Inputs may be trees (lists, tuples, dicts, classes registered with torch's pytree). Python values
  in them (`bool`, `int`, `float`, `str`, `None`) are static: each combination is traced and
  compiled once.
- Outputs are flattened in torch's order. The key-value caches of transformers (`DynamicCache`) are
  inputs and outputs like others; a class that torch cannot take apart is refused by name.
- Before each call the state of the module is checked, and the module is traced again after a change
  of: `training` flags; hooks of any submodule, and global ones; submodules; attributes of
  submodules, and what these hold (lists, tuples, dicts, sets, and objects with a `__dict__`, such
  as a config, up to 100,000 of them); the class of a submodule, and the attributes and methods of
  classes that are not torch's; parameters, buffers and other tensors that were replaced, whose
  `.data` was assigned, or which torch reports as written. In training mode the call is refused. Not
  seen: global variables and closures, `__slots__`, elements of numpy arrays, and in-place writes
  that torch does not count (`weight.data.mul_(2)`, shared memory, tensors made in inference mode).
  The check costs 2 to 4 µs a submodule.
- A module that changes its own attributes when it runs (a counter) is refused.

```python
direct = plica.compile(model)
np.testing.assert_allclose(direct(example), model(example).detach().numpy(), rtol=1e-4, atol=1e-5)
```

- Parameters, buffers and constants become constants of the module. Inputs keep their names, also
  those given by keyword; trees of inputs and outputs are flattened in torch's order, and outputs
  that are None are left out. The names of outputs are the attribute `outputs` of the main function.
- A size that is exported as a `Dim` is a symbolic dim of that name; `dims={{"n": 8}}` gives it a
  number. What `plica.compile` makes of a program with symbolic dims is one code for all their sizes
  ([open.md](open.md)). The range that was exported is kept (the attribute `dim_ranges` of the main
  function), and sizes outside of it are refused: what torch traced need not hold for them. For a
  size that torch was left to find out (`Dim.AUTO`) that range begins at 2; a `Dim` that is given
  has 0 and 1 too. Numbers that are
  computed from open sizes (`n ** -0.5`, `int(1.3 * n)` as a size) are computed when the program
  runs; a size that torch writes as `4*n` has a dim of its own, `n_whole`. Slice bounds, steps,
  shifts, diagonals and `k` may be computed from open sizes. A bound such as `-m` may have either
  sign: the slice is as long as the sizes of the call make it, not as torch assumed at export,
  unless the program types with torch's length alone, which is asserted then.
- What the code decided of open sizes while it was exported (`if x.shape[0] % 2 == 0`, a loop over
  `range(n // 4)`, a number that torch had to fix) holds for every call: other sizes are refused,
  and the refusal says the condition and the axes it is about. Sizes that operators needed to agree
  are one (`x[: n // 2] + x[n // 2 :]` asks that n is even). A
  program that `torch.export.load` gives is held to all conditions that torch wrote down with it, as
  torch holds it.
- A program that changes a buffer or an input is refused: export in the mode of inference
  (`model.eval()`).
- Everything that is not supported is listed at once, with the names of the nodes and the lines of
  Python that made them. Sparse tensors and random numbers are refused,
  and complex inputs and outputs; complex numbers inside of a program (`stft`, `fft`, products with
  `polar`) are pairs of tensors.
- Shapes that depend on elements (`x[x > 0]`, `nonzero`, `unique`, `n.item()` as a size) are known
  when the program runs: one code serves them all, and what torch asserts of them is asserted then.
  Inside of branches and loops they are refused.

```python
n = torch.export.Dim("n", min=1, max=64)
program = torch.export.export(model, (example,), dynamic_shapes=({{0: n}},))
module = plica.from_torch(program)
print(module.main_function().params[0].type)        # Tensor[("n", 4), f32]
exe = plica.compile(module)
for size in (1, 7):
    assert exe(np.ones((size, 4), np.float32)).shape == (size, 3)
small = plica.compile(plica.from_torch(program, dims={{"n": 2}}))     # for this size alone

try:
    plica.from_torch(model)
except plica.PlicaError as error:
    print(error)                                    # says to export the model first
```

Of a module that is called, inputs that it has not or that are missing, inputs on which torch cannot
run it (with the layer and the line it came to), tensors on `meta`, TorchScript and decisions by
elements are refused with a code; what the module raises itself is passed on. What `torch.compile`
finds before it asks a backend is torch's to say.

## torch.compile

With Plica installed, torch knows the backend by its name.

```python
fast = torch.compile(model, backend="plica")
with torch.no_grad():
    torch.testing.assert_close(fast(example), model(example))
```

- What Plica has no row for is left to torch, with one warning (`plica.dynamo.TorchFallback`) that
  names these operators; the parts between are compiled.
- Where gradients may be asked for, torch derives a graph forwards and one backwards, and both are
  compiled like any other; `freeze` says nothing then, since training changes parameters.
- `torch.cond` becomes an `if` and `while_loop` a function that calls itself, in graphs of
  `torch.compile` as in exported programs.
- Tensors are read where they are, without a copy where they are contiguous, and torch allocates the
  results, which have the strides that it expects. Torch's own rules (`dynamic=`) decide when a
  graph is traced again. The first sizes of a graph have code of their own; on the processor, code
  with open sizes is compiled at the second and serves all others (a growing cache), unless an
  operator needs its sizes to be numbers.
- What lies on the first GPU is computed there, and the launches are a part of torch's current
  stream. A graph with tensors on both has its
  GPU's part compiled; what goes from one to the other, and the rest, is left to torch.
- Parameters are inputs of the code by default, so that it is right whatever is done to them. With
  `options={{"freeze": True}}` parameters and buffers are constants, which can be folded and packed:
  faster. Code is made anew when a parameter is replaced by another, or when torch reports that
  one was written; a write that torch does not see (through `.data` or shared memory) is not seen
  here either.

```python
frozen = torch.compile(model, backend="plica", options={{"freeze": True}})
with torch.no_grad():
    torch.testing.assert_close(frozen(example), model(example))
```

## What the results mean

Each row is held against torch itself, over types and shapes, nan and infinity among the values.
Where torch leaves something open, Plica chooses: among equals `topk` and `sort` take the first;
what `empty` leaves unset is zero. An index outside its axis raises, as it does in torch.
Scattering and ordering are n log n where sizes are known; where they are open, they compare every
place with every candidate.

The tables are made by `pytest tests/frontend/torch/test_page.py --update-golden`.

"""


def core() -> list[str]:
    """The operators that torch itself calls the core."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if space != "aten":
            continue
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
        if operator is not None and torch.Tag.core in operator.tags:
            found.append(f"{packet}.{overload or 'default'}")
    return sorted(set(found))


# Sizes are read from what torch knows of every tensor, not by a row.
SIZES = ("sym_size.int", "sym_numel.default")


def text() -> str:
    known = core()
    have = [name for name in known if name in {*TABLE, *COMPLEX} or name in SIZES]
    lack = [name for name in known if name not in have]
    more = sorted(name for name in {*TABLE, *COMPLEX} if name not in known)
    parts = {
        f"## Operators of the core that are read ({len(have)} of {len(known)})": have,
        f"## Operators beyond the core that are read ({len(more)})": more,
        f"## Operators of the core that are refused ({len(lack)})": lack,
    }
    head = HEAD.format(version=torch.__version__.partition("+")[0])
    return head + "\n\n".join(f"{title}\n\n{wrapped(each)}" for title, each in parts.items()) + "\n"


def wrapped(names: list[str]) -> str:
    lines, line = [], ""
    for name in names:
        word = f"`{name.removesuffix('.default')}`"
        if len(line) + len(word) + 1 > 100:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def test_the_page_is_the_table(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text())
    page = PAGE.read_text()
    if f"{torch.__version__.partition('+')[0]}." not in page:
        pytest.skip("the page was made with another version of torch")
    assert page == text()
