"""Networks of torch over words, sound and tables, with random weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Heads of attention over a sequence."""

    def __init__(self, width: int, heads: int, causal: bool = False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(2, 3) * (c // self.heads) ** -0.5
        if self.causal:
            later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, torch.finfo(x.dtype).min)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    """A layer of a transformer, with norms before its two parts."""

    def __init__(self, width: int, heads: int, causal: bool = False):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Vision(nn.Module):
    """A vision transformer."""

    def __init__(self, width: int = 192, depth: int = 12, heads: int = 3):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.rest = nn.Sequential(*[Layer(width, heads) for _ in range(depth)], nn.LayerNorm(width))
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat((self.token.expand(x.shape[0], -1, -1), y), 1) + self.places
        return self.head(self.rest(y)[:, 0])


class Text(nn.Module):
    """A transformer over words; a decoder where it is causal."""

    def __init__(self, width: int = 256, depth: int = 6, heads: int = 4, causal: bool = False):
        super().__init__()
        self.words, self.places = nn.Embedding(8000, width), nn.Embedding(512, width)
        layers = [Layer(width, heads, causal) for _ in range(depth)]
        self.rest = nn.Sequential(*layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, 8000 if causal else 2)

    def forward(self, ids: Tensor) -> Tensor:
        y = self.rest(self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device)))
        return self.head(y[:, -1] if self.head.out_features > 2 else y[:, 0])


class Step(nn.Module):
    """One word of a decoder: keys and values of those before are given, and grow by one."""

    def __init__(self, width: int = 512, depth: int = 4, heads: int = 8):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ks, vs = [], []
        for at, each in enumerate(self.layers):
            of = each.attention
            b, t, c = x.shape
            q, k, v = of.qkv(each.first(x)).view(b, t, 3, of.heads, -1).permute(2, 0, 3, 1, 4)
            k, v = torch.cat((keys[at], k), 2), torch.cat((values[at], v), 2)
            scores = (q @ k.transpose(2, 3) * (c // of.heads) ** -0.5).softmax(-1)
            x = x + of.out((scores @ v).transpose(1, 2).reshape(b, t, c))
            x = x + each.mlp(each.second(x))
            ks.append(k)
            vs.append(v)
        return x, torch.stack(ks), torch.stack(vs)


class Speech(nn.Module):
    """Convolutions along time, then a transformer."""

    def __init__(self, width: int = 256, depth: int = 4):
        super().__init__()
        self.first, self.second = nn.Conv1d(80, width, 3, 1, 1), nn.Conv1d(width, width, 3, 2, 1)
        self.rest = nn.Sequential(*[Layer(width, 4) for _ in range(depth)])

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.second(F.gelu(self.first(x))))
        return self.rest(y.transpose(1, 2))


class Dilated(nn.Module):
    """One-dimensional convolutions that see ever further, gated."""

    def __init__(self, width: int = 48, depth: int = 10):
        super().__init__()
        self.into = nn.Conv1d(1, width, 1)
        far = [2**at for at in range(depth)]
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, 1, by, by) for by in far)
        self.outs = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        y = self.into(x)
        for gate, out in zip(self.gates, self.outs, strict=True):
            a, b = gate(y).chunk(2, 1)
            y = y + out(torch.tanh(a) * torch.sigmoid(b))
        return y


class Recurrent(nn.Module):
    """A recurrent network and a product over its results."""

    def __init__(self, of: nn.Module, width: int):
        super().__init__()
        self.of, self.out = of, nn.Linear(width, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.of(x)[0])


class Recommender(nn.Module):
    """Embeddings of a few tables, their products with each other, and dense numbers."""

    def __init__(self, tables: int = 16, width: int = 32):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(5000, width) for _ in range(tables))
        self.dense = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, width), nn.ReLU())
        pairs = (tables + 1) ** 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        d = self.dense(numbers)
        rows = torch.stack([d, *[each(ids[:, at]) for at, each in enumerate(self.tables)]], 1)
        return torch.sigmoid(self.top(torch.cat((d, (rows @ rows.transpose(1, 2)).flatten(1)), 1)))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
