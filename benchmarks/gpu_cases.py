"""What is run on a GPU beside torch, by name: networks, products, and work that memory bounds.

    zoo:vit:f16:1          a network of `benchmarks/torch_zoo.py`, its dtype and its batch
    seq:gru f32 50x1x128   one of `benchmarks/gpu_torch.py`
    mem:softmax f32 8x100  an operator, a dtype, the shape of what it reads
    prod:f16 1 8 16 32 gelu      a product: dtype, batch, rows, terms, columns, and what follows

Weights are the same in every process; inputs come from a seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any

SIZES = (16, 2048)

MEMORY = (
    "softmax f32 8192x8192", "softmax f16 8192x8192", "softmax f32 1280x50257",
    "softmax f32 65536x1023", "softmax0 f32 8192x8192", "softmax0 f16 8192x8192",
    "softmax f32 1024x1000",
    "layer_norm f32 8192x8192", "layer_norm f16 65536x1024", "layer_norm f32 2048x777",
    "rms_norm f16 16384x4096",
    "batch_norm f32 64x64x128x128", "group_norm f16 32x64x128x128",
    "instance_norm f32 16x64x256x256",
    "sum-1 f32 8192x8192", "sum0 f32 8192x8192", "sum0 f16 100000x777", "sum f32 8192x8192",
    "sum1 f32 64x1024x1024", "sum0,2 f32 64x1024x1024", "amax-1 f16 8191x8193",
    "argmax f32 8192x8192", "sum-1 f32 1000x1000", "mean2,3 f32 256x256x32x32",
    "turn1,0 f32 8192x8192", "turn1,0 f16 8192x8192", "turn0,2,1 f32 64x1024x1024",
    "turn2,1,0 f32 256x512x512", "turn1,0 f32 8191x8193", "turn0,2,1,3 f16 32x1024x16x128",
    "gelu f32 67108864", "add f16 8192x8192", "cat f32 8192x4096", "gather f32 65536x1024",
    "cumsum f32 8192x8192", "cumsum0 f32 8192x8192", "cumsum f32 67108864",
    "topk8 f32 4096x4096", "topk20 f32 4096x4096", "topk50 f32 500x8000",
    "sort f32 4096x4096", "sort f32 20x1000000", "sort f32 4000000", "sort f16 65536x200",
)  # fmt: skip


def cases(group: str, seed: int, drawn: int) -> Iterator[str]:
    """The names of a group, those that take longest to compile first."""
    from benchmarks.gpu_torch import networks
    from benchmarks.torch_zoo import TORCH_NETWORKS

    match group:
        case "zoo":
            slow = ("resnext50", "efficientnet", "resnet50", "gru", "lstm", "yolo", "convnext")
            every = [*slow, *[name for name in TORCH_NETWORKS if name not in slow]]
            yield from (f"zoo:{name}:{kind}:1" for name in every for kind in ("f16", "f32"))
        case "resnet50":
            yield from ("zoo:resnet50:f16:32", "zoo:resnet50:f16:256", "zoo:resnet50:f32:32")
        case "sequences":
            yield from (f"seq:{name}" for name in networks())
        case "memory":
            yield from (f"mem:{name}" for name in MEMORY)
        case "products":
            yield from (f"prod:{name}" for name in products(seed, drawn))
        case _:
            raise SystemExit(f"There is no group {group!r}.")


def products(seed: int, drawn: int) -> Iterator[str]:
    """The products that are named, then this many of any size, a quarter of them batches."""
    for size in (2048, 4096, 8192):
        yield from (f"f16 1 {size} {size} {size} gelu", f"f32 1 {size} {size} {size} none")
    yield from ("bf16 1 4096 4096 4096 gelu", "f16 1 512 768 3072 none", "f16 1 1 4096 4096 none")
    yield from ("i8 1 4096 4096 4096 none", "i8 1 512 768 3072 none")
    random = Random(f"products/{seed}")
    low, high = (math.log(each) for each in SIZES)
    for at in range(drawn):
        sizes = [round(math.exp(random.uniform(low, high))) for _ in range(3)]
        if at % 3 == 0:
            sizes = [max(8, size // 8 * 8) for size in sizes]
        batch = random.randrange(2, 25) if at % 4 == 3 else 1
        numbers = " ".join(map(str, (batch, *sizes)))
        yield f"{('f16', 'bf16')[at // 2 % 2]} {numbers} {'none' if at % 2 else 'gelu'}"


def made(name: str, seed: int) -> tuple[Any, list[Any], str]:
    """A case on the GPU: the network, inputs, and its dtype."""
    network, given, kind = on_host(name, seed)
    return network.cuda(), [each.cuda() for each in given], kind


def on_host(name: str, seed: int) -> tuple[Any, list[Any], str]:
    """The same where there need be no GPU."""
    import torch

    torch.manual_seed(0)
    group, rest = name.split(":", 1)
    kind, network, inputs = {
        "zoo": _of_zoo, "seq": _of_sequences, "mem": _of_memory, "prod": _of_products,
    }[group](rest, seed)  # fmt: skip
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[kind]
    given = [each.to(dtype) if each.is_floating_point() else each for each in inputs]
    return network.eval().to(dtype), given, kind


def _of_zoo(name: str, seed: int) -> tuple[str, Any, Any]:
    import torch

    from benchmarks.torch_zoo import TORCH_NETWORKS

    word, kind, batch = name.split(":")
    network, _ = TORCH_NETWORKS[word](int(batch))
    torch.manual_seed(seed)
    return kind, network, TORCH_NETWORKS[word](int(batch))[1]


def _of_sequences(name: str, seed: int) -> tuple[str, Any, Any]:
    import torch

    from benchmarks.gpu_torch import networks

    network, shape = networks()[name]()
    shapes: Any = shape if isinstance(shape[0], tuple) else (shape,)
    torch.manual_seed(seed)
    return name.split()[1], network, [torch.randn(each) * 0.5 for each in shapes]


def _of_products(name: str, seed: int) -> tuple[str, Any, Any]:
    import torch
    from torch import nn

    kind, *numbers, end = name.split()
    batch, rows, terms, columns = map(int, numbers)
    if kind == "i8":
        return "f32", *_of_bytes(rows, terms, columns, seed)

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(terms, columns, bias=end == "gelu") if batch == 1 else None

        def forward(self, x: Any, *other: Any) -> Any:
            found = x @ other[0] if self.linear is None else self.linear(x)
            return nn.functional.gelu(found) if end == "gelu" else found

    network = Product()
    torch.manual_seed(seed)
    if batch == 1:
        return kind, network, [torch.randn(rows, terms)]
    shapes = (batch, rows, terms), (batch, terms, columns)
    return kind, network, [torch.randn(each) * terms**-0.25 for each in shapes]


def _of_bytes(rows: int, terms: int, columns: int, seed: int) -> tuple[Any, Any]:
    """A product of bytes by a weight of bytes."""
    import torch
    from torch import nn

    class Bytes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            size = (columns, terms)
            self.register_buffer("weight", torch.randint(-128, 128, size, dtype=torch.int8))

        def forward(self, x: Any) -> Any:
            return torch._int_mm(x, self.weight.t())

    network = Bytes()
    torch.manual_seed(seed)
    return network, [torch.randint(-128, 128, (rows, terms), dtype=torch.int8)]


def _of_memory(name: str, seed: int) -> tuple[str, Any, Any]:
    import torch
    from torch import nn

    word, kind, sizes = name.split()
    shape = tuple(map(int, sizes.split("x")))
    operator = word.rstrip("0123456789,-")
    axes = tuple([int(each) for each in word[len(operator) :].split(",") if each])
    width = shape[1] if operator.split("_")[0] in {"batch", "group", "instance"} else shape[-1]

    class Memory(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.shift = (nn.Parameter(torch.randn(width)) for _ in range(2))
            self.register_buffer("mean", torch.rand(width))
            self.register_buffer("square", torch.rand(width) + 1)

        def forward(self, x: Any, *other: Any) -> Any:
            of, ends = nn.functional, (self.scale, self.shift)
            return {
                "softmax": lambda: torch.softmax(x, axes[0] if axes else -1),
                "layer_norm": lambda: of.layer_norm(x, (width,), *ends),
                "rms_norm": lambda: of.rms_norm(x, (width,), self.scale, 1e-6),
                "batch_norm": lambda: of.batch_norm(x, self.mean, self.square, *ends),
                "group_norm": lambda: of.group_norm(x, 8, *ends),
                "instance_norm": lambda: of.instance_norm(x, None, None, *ends),
                "sum": lambda: x.sum(axes) if axes else x.sum(),
                "mean": lambda: x.mean(axes),
                "amax": lambda: x.amax(axes),
                "argmax": lambda: x.argmax(-1),
                "turn": lambda: x.permute(axes).contiguous(),
                "gelu": lambda: of.gelu(x),
                "add": lambda: x + other[0],
                "cat": lambda: torch.cat((x, other[0]), 1),
                "gather": lambda: of.embedding(other[0], x),
                "cumsum": lambda: x.cumsum(axes[0] if axes else -1),
                "topk": lambda: x.topk(axes[0])[0],
                "sort": lambda: x.sort()[0],
            }[operator]()

    network = Memory()
    torch.manual_seed(seed)
    inputs = [torch.randn(shape)]
    if operator in {"add", "cat"}:
        inputs.append(torch.randn(shape))
    if operator == "gather":
        inputs.append(torch.randint(0, shape[0], (shape[0],)))
    return kind, network, inputs
