"""Networks of torch for the benchmarks: what people bring, with random weights.

    python benchmarks/torch_zoo.py FOLDER [NAME …] [--batch 1]      as ONNX files

>>> network, inputs = TORCH_NETWORKS["unet"](1)
>>> [tuple(each.shape) for each in inputs]
[(1, 3, 128, 128)]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.torch_pictures import (
    Unet,
    Yolo,
    efficient,
    generator,
    next_,
    residual,
    sharper,
    video,
)  # fmt: skip
from benchmarks.torch_sequences import (
    Dilated,
    Recommender,
    Recurrent,
    Speech,
    Step,
    Text,
    Vision,
    mlp,
)  # fmt: skip

Made = tuple[nn.Module, tuple[Tensor, ...]]
Maker = Callable[[int], Made]


def _of(make: Callable[[], nn.Module], *shapes: Sequence[int]) -> Maker:
    """A network of numbers, whose inputs have the batch before their shapes."""
    return lambda batch: (make().eval(), tuple(torch.randn(batch, *each) for each in shapes))


def _words(make: Callable[[], nn.Module], length: int) -> Maker:
    return lambda batch: (make().eval(), (torch.randint(0, 5000, (batch, length)),))


def _step(batch: int) -> Made:
    cache = [torch.randn(4, batch, 8, 255, 64) for _ in range(2)]
    return Step().eval(), (torch.randn(batch, 1, 512), *cache)


def _recommender(batch: int) -> Made:
    batch *= 32
    return Recommender().eval(), (torch.randn(batch, 13), torch.randint(0, 5000, (batch, 16)))


def _gru() -> nn.Module:
    return nn.GRU(128, 128, bidirectional=True, batch_first=True)


PICTURE = (3, 224, 224)
# fmt: off
TORCH_NETWORKS: dict[str, Maker] = {
    "resnet50":     _of(residual, PICTURE),
    "resnext50":    _of(partial(residual, 32, 2), PICTURE),
    "efficientnet": _of(efficient, PICTURE),
    "convnext":     _of(next_, PICTURE),
    "unet":         _of(Unet, (3, 128, 128)),
    "yolo":         _of(Yolo, (3, 320, 320)),
    "sharper":      _of(sharper, (1, 96, 96)),
    "video":        _of(video, (3, 8, 56, 56)),
    "generator":    _of(generator, (100, 1, 1)),
    "vit":          _of(Vision, PICTURE),
    "text":         _words(Text, 128),
    "prefill":      _words(partial(Text, causal=True), 128),
    "decode":       _step,
    "speech":       _of(Speech, (80, 600)),
    "dilated":      _of(Dilated, (1, 2000)),
    "lstm":         _of(lambda: Recurrent(nn.LSTM(128, 256, 2, batch_first=True), 256), (60, 128)),
    "gru":          _of(lambda: Recurrent(_gru(), 256), (60, 128)),
    "recommender":  _recommender,
    "mlp64":        lambda batch: _of(mlp, (784,))(64 * batch),
}
# fmt: on
"""By name: a network and its inputs, of a batch."""


def export(name: str, batch: int, path: Path) -> list[Tensor]:
    """Write a network as ONNX; gives the inputs."""
    torch.manual_seed(0)
    network, inputs = TORCH_NETWORKS[name](batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, inputs, str(path), dynamo=False, opset_version=17)
    return list(inputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(TORCH_NETWORKS))
    parser.add_argument("--batch", type=int, default=1)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.names:
        export(name, given.batch, given.folder / f"{name}.onnx")
        print(name)


if __name__ == "__main__":
    main()
