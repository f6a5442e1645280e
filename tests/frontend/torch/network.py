"""Small networks as torch users write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def block(inside: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out),
    )


class Residual(nn.Module):
    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = block(inside, out, 3, stride), block(out, out, 3)
        self.skip = block(inside, out, 1, stride) if stride > 1 or inside != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = F.relu(self.second(F.relu(self.first(x))) + self.skip(x))
        return y


class ResNet18(nn.Module):
    """The network of He et al., its channels divided by `thin`."""

    def __init__(self, thin: int = 1, classes: int = 10) -> None:
        super().__init__()
        widths = [64 // thin, 128 // thin, 256 // thin, 512 // thin]
        self.stem = block(3, widths[0], 7, 2)
        layers: list[nn.Module] = []
        inside = widths[0]
        for at, width in enumerate(widths):
            layers += [Residual(inside, width, 1 if at == 0 else 2), Residual(width, width, 1)]
            inside = width
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(inside, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        y: Tensor = self.head(F.adaptive_avg_pool2d(self.layers(x), 1).flatten(1))
        return y


class Inverted(nn.Module):
    def __init__(self, inside: int, out: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = inside * expand
        parts: list[nn.Module] = [block(inside, wide, 1), nn.ReLU6()] if expand > 1 else []
        parts += [block(wide, wide, 3, stride, groups=wide), nn.ReLU6(), block(wide, out, 1)]
        self.body, self.residual = nn.Sequential(*parts), stride == 1 and inside == out

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.body(x) if self.residual else self.body(x)
        return y


class MobileNetV2(nn.Module):
    """The network of Sandler et al., its channels divided by `thin`, its stages not repeated."""

    PLAN = ((1, 16, 1), (6, 24, 2), (6, 32, 2), (6, 32, 1), (6, 64, 2), (6, 96, 1))

    def __init__(self, thin: int = 1, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = [block(3, 32 // thin, 3, 2), nn.ReLU6()]
        inside = 32 // thin
        for expand, width, stride in self.PLAN:
            layers.append(Inverted(inside, width // thin, stride, expand))
            inside = width // thin
        self.features, self.head = nn.Sequential(*layers), nn.Linear(inside, classes)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.features(x).mean((2, 3)))
        return y


class Recurrent(nn.Module):
    """Words, two layers of LSTM, and the next word's scores."""

    def __init__(self, words: int = 20, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, state = self.lstm(self.embed(x))
        return self.head(y), state


def encoder(width: int = 16, layers: int = 2) -> nn.Module:
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.both, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.both(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        z: Tensor = self.out(y.transpose(1, 2).reshape(batch, length, width))
        return z


class GPT(nn.Module):
    """A small decoder: positions, causal attention, and a head that shares the words' weights."""

    def __init__(self, words: int = 31, width: int = 16, heads: int = 2, layers: int = 2) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(32, width)
        self.attend = nn.ModuleList([Attention(width, heads) for _ in range(layers)])
        self.think = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                for _ in range(layers)
            ]
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers + 1)])
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        y = self.words(x) + self.places(torch.arange(x.shape[1]))
        for at, (attend, think) in enumerate(zip(self.attend, self.think, strict=True)):
            y = y + attend(self.norms[2 * at](y))
            y = y + think(self.norms[2 * at + 1](y))
        z: Tensor = self.head(self.norms[-1](y))
        return z
