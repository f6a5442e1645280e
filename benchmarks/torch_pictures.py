"""Networks of torch over pictures, with random weights."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def conv(
    i: int,
    o: int,
    k: int = 3,
    s: int = 1,
    *,
    groups: int = 1,
    act: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """A convolution that keeps the size, its norm and its activation."""
    layers: list[nn.Module] = [
        nn.Conv2d(i, o, k, s, k // 2, groups=groups, bias=False),
        nn.BatchNorm2d(o),
    ]
    return nn.Sequential(*layers, *([act()] if act else []))


class Around(nn.Module):
    """A path, and what goes around it: the input, through a convolution where sizes differ."""

    def __init__(self, path: nn.Module, i: int, o: int, s: int = 1, after: nn.Module | None = None):
        super().__init__()
        same = i == o and s == 1
        self.path = path
        self.short = nn.Identity() if same else conv(i, o, 1, s, act=None)
        self.after = after or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.path(x) + self.short(x))


def classifier(width: int, classes: int = 1000) -> list[nn.Module]:
    """A mean over the picture and a product."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]


def bottleneck(i: int, o: int, s: int, groups: int = 1, width: int = 0) -> nn.Module:
    inner = width or o // 4
    path = nn.Sequential(
        conv(i, inner, 1), conv(inner, inner, 3, s, groups=groups), conv(inner, o, 1, act=None)
    )
    return Around(path, i, o, s, nn.ReLU())


def residual(groups: int = 1, wider: int = 1) -> nn.Module:
    """ResNet-50, and ResNeXt-50 with groups."""
    blocks: list[nn.Module] = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    i = 64
    for o, count in ((256, 3), (512, 4), (1024, 6), (2048, 3)):
        for at in range(count):
            s = 2 if at == 0 and o > 256 else 1
            blocks.append(bottleneck(i, o, s, groups, o // 4 * wider))
            i = o
    return nn.Sequential(*blocks, *classifier(2048))


class Excite(nn.Module):
    """Channels scaled by what the whole picture says."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        self.down, self.up = nn.Conv2d(width, inner, 1), nn.Conv2d(inner, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.up(F.silu(self.down(F.adaptive_avg_pool2d(x, 1)))))


def inverted(i: int, o: int, k: int, s: int, wider: int) -> nn.Module:
    inner = i * wider
    layers = [conv(i, inner, 1, act=nn.SiLU)] if wider > 1 else []
    layers.append(conv(inner, inner, k, s, groups=inner, act=nn.SiLU))
    path = nn.Sequential(*layers, Excite(inner, max(1, i // 4)), conv(inner, o, 1, act=None))
    return Around(path, i, o) if i == o and s == 1 else path


def efficient() -> nn.Module:
    """EfficientNet-B0."""
    rows = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
            (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3))  # fmt: skip
    blocks: list[nn.Module] = [conv(3, 32, 3, 2, act=nn.SiLU)]
    i = 32
    for wider, o, count, s, k in rows:
        for at in range(count):
            blocks.append(inverted(i, o, k, s if at == 0 else 1, wider))
            i = o
    return nn.Sequential(*blocks, conv(320, 1280, 1, act=nn.SiLU), *classifier(1280))


class Last(nn.Module):
    """A norm over channels that stand second."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width, 1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Next(nn.Module):
    """A block of ConvNeXt."""

    def __init__(self, width: int):
        super().__init__()
        self.deep = nn.Conv2d(width, width, 7, 1, 3, groups=width)
        self.norm = nn.LayerNorm(width, 1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.deep(x).permute(0, 2, 3, 1)
        y = self.down(F.gelu(self.up(self.norm(y)))) * self.scale
        return x + y.permute(0, 3, 1, 2)


def next_() -> nn.Module:
    """ConvNeXt, the size between atto and pico."""
    blocks: list[nn.Module] = [nn.Conv2d(3, 48, 4, 4), Last(48)]
    i = 48
    for o, count in ((48, 2), (96, 2), (192, 6), (384, 2)):
        if o != i:
            blocks += [Last(i), nn.Conv2d(i, o, 2, 2)]
        blocks += [Next(o) for _ in range(count)]
        i = o
    return nn.Sequential(*blocks, *classifier(384))


class Unet(nn.Module):
    """Down, up, and across."""

    def __init__(self, width: int = 24, depth: int = 3):
        super().__init__()
        two = lambda i, o: nn.Sequential(conv(i, o), conv(o, o))  # noqa: E731
        sizes = [width << at for at in range(depth + 1)]
        self.down = nn.ModuleList(map(two, [3, *sizes[:-1]], sizes))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * o, o, 2, 2) for o in sizes[:-1])
        self.mix = nn.ModuleList(two(2 * o, o) for o in sizes[:-1])
        self.out = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        held = []
        for at, each in enumerate(self.down):
            x = each(F.max_pool2d(x, 2) if at else x)
            held.append(x)
        for up, mix, skip in reversed(list(zip(self.up, self.mix, held[:-1], strict=True))):
            x = mix(torch.cat((up(x), skip), 1))
        return self.out(x)


class Yolo(nn.Module):
    """Cross-stage blocks, a pyramid, and a head of boxes for three strides."""

    class Split(nn.Module):
        def __init__(self, i: int, o: int, count: int):
            super().__init__()
            half = o // 2
            self.into = conv(i, o, 1, act=nn.SiLU)
            self.out = conv((count + 2) * half, o, 1, act=nn.SiLU)
            self.each = nn.ModuleList(
                nn.Sequential(*[conv(half, half, act=nn.SiLU) for _ in range(2)])
                for _ in range(count)
            )

        def forward(self, x: Tensor) -> Tensor:
            parts = list(self.into(x).chunk(2, 1))
            for each in self.each:
                parts.append(parts[-1] + each(parts[-1]))
            return self.out(torch.cat(parts, 1))

    def __init__(self, classes: int = 80):
        super().__init__()
        silu = partial(conv, act=nn.SiLU)
        split = Yolo.Split
        self.first = nn.Sequential(
            silu(3, 16, 3, 2), silu(16, 32, 3, 2), split(32, 32, 1), silu(32, 64, 3, 2),
            split(64, 64, 2),
        )  # fmt: skip
        self.second = nn.Sequential(silu(64, 128, 3, 2), split(128, 128, 2))
        self.third = nn.Sequential(silu(128, 256, 3, 2), split(256, 256, 1))
        self.four, self.five = split(384, 128, 1), split(192, 64, 1)
        self.heads = nn.ModuleList(nn.Conv2d(i, 64 + classes, 1) for i in (64, 128, 256))

    def forward(self, x: Tensor) -> Tensor:
        a = self.first(x)
        b = self.second(a)
        c = self.third(b)
        b = self.four(torch.cat((F.interpolate(c, scale_factor=2.0), b), 1))
        a = self.five(torch.cat((F.interpolate(b, scale_factor=2.0), a), 1))
        found = [head(z).flatten(2) for head, z in zip(self.heads, (a, b, c), strict=True)]
        boxes, scores = torch.cat(found, 2).split((64, 80), 1)
        n = boxes.shape[2]
        far = boxes.view(-1, 4, 16, n).softmax(2)
        at = torch.arange(16.0, device=x.device, dtype=x.dtype).view(1, 1, 16, 1)
        far = (far * at).sum(2)
        return torch.cat((far, scores.sigmoid()), 1)


def sharper() -> nn.Module:
    """Super-resolution by three, with a shuffle of pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 5, 1, 2), nn.Tanh(), nn.Conv2d(64, 32, 3, 1, 1), nn.Tanh(),
        nn.Conv2d(32, 9, 3, 1, 1), nn.PixelShuffle(3),
    )  # fmt: skip


def video() -> nn.Module:
    """Convolutions over time and space."""

    def three(i: int, o: int, s: int) -> list[nn.Module]:
        return [nn.Conv3d(i, o, 3, s, 1, bias=False), nn.BatchNorm3d(o), nn.ReLU()]

    return nn.Sequential(
        *three(3, 16, 1), nn.MaxPool3d((1, 2, 2)), *three(16, 32, 1), nn.MaxPool3d(2),
        *three(32, 64, 2), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(64, 101),
    )  # fmt: skip


def generator() -> nn.Module:
    """Transposed convolutions from a vector to a picture."""

    def up(i: int, o: int, s: int, p: int) -> list[nn.Module]:
        return [nn.ConvTranspose2d(i, o, 4, s, p, bias=False), nn.BatchNorm2d(o), nn.ReLU()]

    return nn.Sequential(
        *up(100, 256, 1, 0), *up(256, 128, 2, 1), *up(128, 64, 2, 1),
        nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip
