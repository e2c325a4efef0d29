"""Networks that advice is followed on: of different kinds, written as people write them, none of them in the zoo.

Each takes about 1 to 20 ms on a server core. `Random0` and so on are drawn from a seed.
"""

import random
from typing import Any

import torch
from torch import nn

functional = nn.functional


class Network(nn.Module):  # type: ignore[misc]
    """A network that brings its example input: an image, unless it says otherwise."""

    shape: tuple[int, ...] = (1, 3, 96, 96)

    def get_example_inputs(self) -> tuple[Any, ...]:
        return (torch.randn(self.shape),)


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups)


def normed(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: Any = nn.ReLU) -> Any:
    return nn.Sequential(conv(inputs, outputs, kernel, stride, groups), nn.BatchNorm2d(outputs), act())


class Attention(nn.Module):  # type: ignore[misc]
    """Self-attention as PyTorch's function does it."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):  # type: ignore[misc]
    """A transformer's block, norm first."""

    def __init__(self, width: int, heads: int, act: Any = nn.GELU, causal: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), act(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class ViT(Network):
    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 12, 12)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, 65, width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width, 4) for _ in range(3)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, image: Any) -> Any:
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.norm(self.blocks(x))[:, 0])


class Decoder(Network):
    """A decoder with RMS norms, rotary positions and gated layers, over a whole sentence."""

    def __init__(self, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(500, width)
        self.heads = heads
        self.norms = nn.ModuleList([nn.RMSNorm(width) for _ in range(5)])
        self.qkv = nn.ModuleList([nn.Linear(width, 3 * width, bias=False) for _ in range(2)])
        self.out = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in range(2)])
        self.gate = nn.ModuleList([nn.Linear(width, 3 * width, bias=False) for _ in range(2)])
        self.up = nn.ModuleList([nn.Linear(width, 3 * width, bias=False) for _ in range(2)])
        self.down = nn.ModuleList([nn.Linear(3 * width, width, bias=False) for _ in range(2)])
        angles = torch.outer(torch.arange(48.0), 0.01 ** torch.linspace(0, 1, width // heads // 2))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def turned(self, x: Any) -> Any:
        even, odd = x.chunk(2, -1)
        return torch.cat([even * self.cos - odd * self.sin, even * self.sin + odd * self.cos], -1)

    def forward(self, words: Any) -> Any:
        x = self.words(words)
        b, t, c = x.shape
        for i in range(2):
            q, k, v = self.qkv[i](self.norms[2 * i](x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            y = functional.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
            x = x + self.out[i](y.transpose(1, 2).reshape(b, t, c))
            y = self.norms[2 * i + 1](x)
            x = x + self.down[i](functional.silu(self.gate[i](y)) * self.up[i](y))
        return functional.linear(self.norms[4](x), self.words.weight)

    def get_example_inputs(self) -> tuple[Any, ...]:
        return (torch.randint(0, 500, (1, 48)),)


class Conformer(Network):
    """Half a step of layers, attention, a gated depthwise convolution over time, half a step of layers."""

    shape = (1, 100, 40)

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.enter = nn.Linear(40, width)
        self.first, self.last = self.layers(width), self.layers(width)
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, 4)
        self.before, self.wide = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.depth, self.batch = nn.Conv1d(width, width, 15, padding=7, groups=width), nn.BatchNorm1d(width)
        self.narrow, self.end = nn.Conv1d(width, width, 1), nn.LayerNorm(width)

    @staticmethod
    def layers(width: int) -> Any:
        return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        x = self.enter(x)
        x = x + 0.5 * self.first(x)
        x = x + self.attention(self.norm(x))
        y = functional.glu(self.wide(self.before(x).transpose(1, 2)), 1)
        x = x + self.narrow(functional.silu(self.batch(self.depth(y)))).transpose(1, 2)
        return self.end(x + 0.5 * self.last(x))


class Detector(Network):
    """A feature pyramid with heads whose results are put together as a list of boxes."""

    def __init__(self, width: int = 32, act: Any = nn.SiLU) -> None:
        super().__init__()
        self.stem = normed(3, 16, stride=2, act=act)
        self.down = nn.ModuleList([normed(16, 32, stride=2, act=act), normed(32, 64, stride=2, act=act)])
        self.last = normed(64, 96, stride=2, act=act)
        self.side = nn.ModuleList([conv(c, width, 1) for c in (32, 64, 96)])
        self.fuse = nn.ModuleList([normed(2 * width, width, act=act) for _ in range(2)])
        self.boxes = nn.ModuleList([conv(width, 3 * 4) for _ in range(3)])
        self.scores = nn.ModuleList([conv(width, 3 * 5) for _ in range(3)])

    def forward(self, image: Any) -> Any:
        c3 = self.down[0](self.stem(image))
        c4 = self.down[1](c3)
        c5 = self.last(c4)
        p5 = self.side[2](c5)
        p4 = self.fuse[1](torch.cat([self.side[1](c4), functional.interpolate(p5, scale_factor=2)], 1))
        p3 = self.fuse[0](torch.cat([self.side[0](c3), functional.interpolate(p4, scale_factor=2)], 1))
        found = []
        for level, (box, score) in enumerate(zip(self.boxes, self.scores, strict=True)):
            x = (p3, p4, p5)[level]
            b = x.shape[0]
            boxes = box(x).permute(0, 2, 3, 1).reshape(b, -1, 4)
            scores = score(x).permute(0, 2, 3, 1).reshape(b, -1, 5).sigmoid()
            found.append(torch.cat([boxes, scores], 2))
        return torch.cat(found, 1)


class Anchors(Network):
    """A detector of the YOLO kind: split and joined stages, pooled pyramid, one map per level split into anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.down = normed(3, 16, stride=2, act=nn.SiLU), normed(16, 32, stride=2, act=nn.SiLU)
        self.part = nn.ModuleList([normed(16, 16, act=nn.SiLU) for _ in range(2)])
        self.join, self.next = normed(64, 64, 1, act=nn.SiLU), normed(64, 64, stride=2, act=nn.SiLU)
        self.pool, self.after = nn.MaxPool2d(5, 1, 2), normed(256, 64, 1, act=nn.SiLU)
        self.heads = nn.ModuleList([conv(64, 3 * 9, 1), conv(64, 3 * 9, 1)])

    def forward(self, image: Any) -> Any:
        x = self.down(self.stem(image))
        one, two = x.chunk(2, 1)
        three = self.part[0](two)
        fine = self.join(torch.cat([one, two, three, self.part[1](three)], 1))
        y = self.next(fine)
        pooled = [y, self.pool(y)]
        pooled += [self.pool(pooled[-1])]
        pooled += [self.pool(pooled[-1])]
        coarse = self.after(torch.cat(pooled, 1))
        found = []
        for x, head in zip((fine, coarse), self.heads, strict=True):
            b, _, h, w = x.shape
            z = head(x).view(b, 3, 9, h, w).permute(0, 1, 3, 4, 2)
            found.append(z.sigmoid().reshape(b, -1, 9))
        return torch.cat(found, 1)


class Swin(Network):
    """Attention in windows, then in shifted ones, then patches are merged."""

    def __init__(self, width: int = 64, window: int = 6) -> None:
        super().__init__()
        self.patch, self.window = nn.Conv2d(3, width, 4, 4), window
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(4)])
        self.attention = nn.ModuleList([Attention(width, 4) for _ in range(2)])
        self.mlp = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(2)]
        )
        self.merge = nn.Linear(4 * width, 2 * width)

    def forward(self, image: Any) -> Any:
        x = self.patch(image).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        s = self.window
        for i in range(2):
            y = self.norms[2 * i](x)
            y = torch.roll(y, (-3, -3), (1, 2)) if i else y
            y = y.view(b, h // s, s, w // s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, s * s, c)
            y = self.attention[i](y).view(b, h // s, w // s, s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
            x = x + (torch.roll(y, (3, 3), (1, 2)) if i else y)
            x = x + self.mlp[i](self.norms[2 * i + 1](x))
        return self.merge(torch.cat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1))


class ConvNeXt(Network):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.depth = nn.ModuleList([conv(width, width, 7, groups=width) for _ in range(3)])
        self.norm = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.wide = nn.ModuleList([nn.Linear(width, 4 * width) for _ in range(3)])
        self.narrow = nn.ModuleList([nn.Linear(4 * width, width) for _ in range(3)])
        self.scale = nn.Parameter(torch.full((3, width), 0.1))

    def forward(self, image: Any) -> Any:
        x = self.patch(image)
        for i in range(3):
            y = self.norm[i](self.depth[i](x).permute(0, 2, 3, 1))
            y = self.scale[i] * self.narrow[i](functional.gelu(self.wide[i](y)))
            x = x + y.permute(0, 3, 1, 2)
        return x.mean((2, 3))


class Residual(nn.Module):  # type: ignore[misc]
    """A block of a diffusion model, which adds the step's embedding."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.one = nn.GroupNorm(8, inputs), conv(inputs, outputs)
        self.second, self.two = nn.GroupNorm(8, outputs), conv(outputs, outputs)
        self.time, self.skip = nn.Linear(64, outputs), conv(inputs, outputs, 1)

    def forward(self, x: Any, time: Any) -> Any:
        y = self.one(functional.silu(self.first(x))) + self.time(functional.silu(time))[:, :, None, None]
        return self.two(functional.silu(self.second(y))) + self.skip(x)


class Diffusion(Network):
    """A U-Net with group norms, SiLU, attention in the middle and a time embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 64))
        self.enter, self.a, self.down = conv(4, 32), Residual(32, 32), conv(32, 48, stride=2)
        self.b, self.norm, self.attention = Residual(48, 48), nn.GroupNorm(8, 48), Attention(48, 4)
        self.up, self.c, self.leave = conv(48, 32), Residual(64, 32), conv(32, 4)
        self.register_buffer("steps", torch.exp(torch.linspace(0, -6, 16)))

    def forward(self, image: Any, step: Any) -> Any:
        angles = step[:, None] * self.steps
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        x = self.a(self.enter(image), time)
        y = self.b(self.down(x), time)
        b, c, h, w = y.shape
        tokens = self.norm(y).flatten(2).transpose(1, 2)
        y = y + self.attention(tokens).transpose(1, 2).reshape(b, c, h, w)
        y = self.up(functional.interpolate(y, scale_factor=2, mode="nearest"))
        return self.leave(functional.silu(self.c(torch.cat([x, y], 1), time)))

    def get_example_inputs(self) -> tuple[Any, ...]:
        return (torch.randn(1, 4, 32, 32), torch.tensor([3.0]))


class Recurrent(Network):
    """An LSTM cell, written out over time."""

    shape = (1, 24, 40)

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.width, self.enter, self.again = width, nn.Linear(40, 4 * width), nn.Linear(width, 4 * width)
        self.head = nn.Linear(width, 20)

    def forward(self, x: Any) -> Any:
        state = memory = torch.zeros(x.shape[0], self.width, dtype=x.dtype)
        given = self.enter(x)
        states = []
        for t in range(x.shape[1]):
            i, f, g, o = (given[:, t] + self.again(state)).chunk(4, 1)
            memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
            state = o.sigmoid() * memory.tanh()
            states.append(state)
        return self.head(torch.stack(states, 1))


class GatedUnits(Network):
    """A GRU cell, written out over time, after two convolutions over time."""

    shape = (1, 40, 96)

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.one, self.two = nn.Conv1d(40, 64, 5, 2, 2), nn.Conv1d(64, 64, 5, 2, 2)
        self.width, self.enter, self.again = width, nn.Linear(64, 3 * width), nn.Linear(width, 3 * width)

    def forward(self, x: Any) -> Any:
        x = functional.relu(self.two(functional.relu(self.one(x)))).transpose(1, 2)
        state = torch.zeros(x.shape[0], self.width, dtype=x.dtype)
        given = self.enter(x)
        for t in range(x.shape[1]):
            (a, b, c), (r, z, n) = given[:, t].chunk(3, 1), self.again(state).chunk(3, 1)
            z = torch.sigmoid(b + z)
            state = (1 - z) * torch.tanh(c + torch.sigmoid(a + r) * n) + z * state
        return state


class Recommender(Network):
    """Embeddings of many features, their products with each other, and layers."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(1000, 32) for _ in range(8)])
        self.below = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
        self.above = nn.Sequential(nn.Linear(32 + 81, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU())
        self.head = nn.Linear(128, 1)

    def forward(self, dense: Any, features: Any) -> Any:
        x = self.below(dense)
        parts = [x, *(table(features[:, i]) for i, table in enumerate(self.tables))]
        stacked = torch.stack(parts, 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.head(self.above(torch.cat([x, products], 1))))

    def get_example_inputs(self) -> tuple[Any, ...]:
        return (torch.randn(64, 13), torch.randint(0, 1000, (64, 8)))


class Mobile(Network):
    """Inverted residuals with squeeze and excitation, hardswish and hardsigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = normed(3, 16, stride=2, act=nn.Hardswish)
        self.wide = nn.ModuleList([normed(c, 4 * c, 1, act=nn.Hardswish) for c in (16, 24, 24)])
        self.depth = nn.ModuleList(
            [normed(4 * c, 4 * c, 5, s, 4 * c, nn.Hardswish) for c, s in ((16, 2), (24, 1), (24, 2))]
        )
        self.less = nn.ModuleList([nn.Conv2d(4 * c, c, 1) for c in (16, 24, 24)])
        self.more = nn.ModuleList([nn.Conv2d(c, 4 * c, 1) for c in (16, 24, 24)])
        self.narrow = nn.ModuleList([nn.Conv2d(4 * c, out, 1) for c, out in ((16, 24), (24, 24), (24, 40))])

    def forward(self, image: Any) -> Any:
        x = self.stem(image)
        for wide, depth, less, more, narrow in zip(
            self.wide, self.depth, self.less, self.more, self.narrow, strict=True
        ):
            y = depth(wide(x))
            y = y * functional.hardsigmoid(more(functional.relu(less(y.mean((2, 3), keepdim=True)))))
            y = narrow(y)
            x = x + y if x.shape == y.shape else y
        return x.mean((2, 3))


class Separable(Network):
    """Depthwise and pointwise convolutions, with SiLU and squeezing by adaptive pooling and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = normed(3, 24, stride=2, act=nn.SiLU)
        self.depth = nn.ModuleList([normed(24, 24, 3, 1, 24, nn.SiLU), normed(48, 48, 3, 2, 48, nn.SiLU)])
        self.point = nn.ModuleList([normed(24, 48, 1, act=nn.SiLU), normed(48, 96, 1, act=nn.SiLU)])
        self.gate = nn.ModuleList(
            [nn.Sequential(nn.Linear(c, c // 4), nn.ReLU(), nn.Linear(c // 4, c), nn.Sigmoid()) for c in (48, 96)]
        )
        self.head = nn.Linear(96, 50)

    def forward(self, image: Any) -> Any:
        x = self.stem(image)
        for depth, point, gate in zip(self.depth, self.point, self.gate, strict=True):
            x = point(depth(x))
            x = x * gate(functional.adaptive_avg_pool2d(x, 1).flatten(1))[:, :, None, None]
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Dense(Network):
    """Each layer takes what all before it made."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 32, stride=2)
        self.norms = nn.ModuleList([nn.BatchNorm2d(32 + 16 * i) for i in range(4)])
        self.layers = nn.ModuleList([conv(32 + 16 * i, 16) for i in range(4)])
        self.head = nn.Linear(96, 20)

    def forward(self, image: Any) -> Any:
        parts = [self.stem(image)]
        for norm, layer in zip(self.norms, self.layers, strict=True):
            parts.append(layer(functional.relu(norm(torch.cat(parts, 1)))))
        return self.head(torch.cat(parts, 1).mean((2, 3)))


class Shuffled(Network):
    """Grouped convolutions with channels shuffled between."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = normed(3, 48, stride=2)
        self.one = nn.ModuleList([normed(24, 24, 1) for _ in range(3)])
        self.two = nn.ModuleList([normed(24, 24, 3, 1, 24) for _ in range(3)])
        self.head = conv(48, 64, 1)

    def forward(self, image: Any) -> Any:
        x = self.stem(image)
        for one, two in zip(self.one, self.two, strict=True):
            left, right = x.chunk(2, 1)
            x = torch.cat([left, two(one(right))], 1)
            b, c, h, w = x.shape
            x = x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)
        return self.head(x).amax((2, 3))


class Inception(Network):
    def __init__(self) -> None:
        super().__init__()
        self.stem = normed(3, 32, stride=2)
        self.one, self.three = normed(32, 16, 1), nn.Sequential(normed(32, 16, 1), normed(16, 24))
        self.five, self.pooled = nn.Sequential(normed(32, 8, 1), normed(8, 16, 5)), normed(32, 8, 1)
        self.head = nn.Linear(64, 10)

    def forward(self, image: Any) -> Any:
        x = self.stem(image)
        pooled = self.pooled(functional.avg_pool2d(x, 3, 1, 1))
        x = torch.cat([self.one(x), self.three(x), self.five(x), pooled], 1)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Waves(Network):
    """Dilated convolutions over samples, with gates and skips."""

    shape = (1, 1, 2000)

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.enter = nn.Conv1d(1, width, 1)
        self.layers = nn.ModuleList([nn.Conv1d(width, 2 * width, 3, padding=2**i, dilation=2**i) for i in range(4)])
        self.skips = nn.ModuleList([nn.Conv1d(width, width, 1) for _ in range(4)])
        self.leave = nn.Conv1d(width, 1, 1)

    def forward(self, x: Any) -> Any:
        x = self.enter(x)
        total = torch.zeros_like(x)
        for layer, skip in zip(self.layers, self.skips, strict=True):
            a, b = layer(x).chunk(2, 1)
            y = skip(torch.tanh(a) * torch.sigmoid(b))
            x, total = x + y, total + y
        return self.leave(functional.relu(total))


class Temporal(Network):
    """Convolutions over time that see only the past, with instance norms."""

    shape = (1, 32, 400)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(32, 32, 5, dilation=d) for d in (1, 2, 4)])
        self.norms = nn.ModuleList([nn.InstanceNorm1d(32, affine=True) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + functional.leaky_relu(norm(layer(functional.pad(x, (4 * layer.dilation[0], 0)))))
        return x.mean(2)


class Mixer(Network):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 12, 12)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(6)])
        self.tokens = nn.ModuleList(
            [nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(3)]
        )
        self.channels = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, width)) for _ in range(3)]
        )

    def forward(self, image: Any) -> Any:
        x = self.patch(image).flatten(2).transpose(1, 2)
        for i, (tokens, channels) in enumerate(zip(self.tokens, self.channels, strict=True)):
            x = x + tokens(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * i + 1](x))
        return x.mean(1)


class GatedMLP(Network):
    """Layers whose one half gates the other after a projection over tokens."""

    shape = (1, 96, 64)

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(64) for _ in range(3)])
        self.inner = nn.ModuleList([nn.LayerNorm(128) for _ in range(3)])
        self.enter = nn.ModuleList([nn.Linear(64, 256) for _ in range(3)])
        self.space = nn.ModuleList([nn.Conv1d(96, 96, 1) for _ in range(3)])
        self.leave = nn.ModuleList([nn.Linear(128, 64) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        for norm, inner, enter, space, leave in zip(
            self.norms, self.inner, self.enter, self.space, self.leave, strict=True
        ):
            u, v = functional.gelu(enter(norm(x))).chunk(2, -1)
            x = x + leave(u * space(inner(v)))
        return x


class SuperResolution(Network):
    shape = (1, 3, 48, 48)

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = conv(3, 32), conv(32, 12)
        self.layers = nn.ModuleList([conv(32, 32) for _ in range(2)])
        self.slopes = nn.ModuleList([nn.PReLU(32) for _ in range(2)])

    def forward(self, image: Any) -> Any:
        x = self.enter(image)
        for layer, slope in zip(self.layers, self.slopes, strict=True):
            x = x + slope(layer(x))
        base = functional.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False)
        return functional.pixel_shuffle(self.leave(x), 2) + base


class Segments(Network):
    """Features of two sizes, resized and classified at every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = normed(3, 24, stride=2), normed(24, 48, stride=2), normed(48, 64, stride=2)
        self.context, self.head = normed(64, 48, 1), conv(96, 8, 1)

    def forward(self, image: Any) -> Any:
        fine = self.two(self.one(image))
        x = self.three(fine)
        x = self.context(x) * torch.sigmoid(self.context(functional.adaptive_avg_pool2d(x, 1)))
        x = functional.interpolate(x, fine.shape[2:], mode="bilinear", align_corners=False)
        x = self.head(torch.cat([x, fine], 1))
        x = functional.interpolate(x, image.shape[2:], mode="bilinear", align_corners=False)
        return x.softmax(1)


class Autoencoder(Network):
    """Down with strides, through a layer, and up with transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(conv(3, 16, 3, 2), nn.ELU(), conv(16, 32, 3, 2), nn.ELU(), conv(32, 32, 3, 2))
        self.less, self.more = nn.Linear(32 * 12 * 12, 64), nn.Linear(64, 32 * 12 * 12)
        self.up = nn.Sequential(
            nn.ConvTranspose2d(32, 32, 2, 2), nn.ELU(), nn.ConvTranspose2d(32, 16, 2, 2), nn.ELU(),
            nn.ConvTranspose2d(16, 3, 2, 2),
        )  # fmt: skip

    def forward(self, image: Any) -> Any:
        x = self.less(self.down(image).flatten(1))
        return torch.tanh(self.up(self.more(x).view(-1, 32, 12, 12)))


class Generator(Network):
    """From a vector to an image, with transposed convolutions."""

    shape = (1, 64)

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(64, 48 * 12 * 12)
        self.up = nn.ModuleList([nn.ConvTranspose2d(48, 32, 4, 2, 1), nn.ConvTranspose2d(32, 16, 4, 2, 1)])
        self.leave = conv(16, 16)

    def forward(self, noise: Any) -> Any:
        x = functional.relu(self.enter(noise)).view(-1, 48, 12, 12)
        for up in self.up:
            x = functional.leaky_relu(up(x))
        return torch.tanh(self.leave(x))


class Denoiser(Network):
    """Little work on large images, in and out."""

    shape = (1, 16, 96, 96)

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = conv(16, 16, 3, groups=16), conv(16, 16, 3, groups=16)

    def forward(self, image: Any) -> Any:
        return self.leave(functional.hardswish(self.enter(image)))


class Keywords(Network):
    """Depthwise separable convolutions over a spectrogram of one channel."""

    shape = (1, 98, 40)

    def __init__(self) -> None:
        super().__init__()
        self.stem = normed(1, 48, 5, 2)
        self.layers = nn.Sequential(*[nn.Sequential(normed(48, 48, 3, 1, 48), normed(48, 48, 1)) for _ in range(3)])
        self.head = nn.Linear(48, 12)

    def forward(self, spectrum: Any) -> Any:
        x = self.layers(self.stem(spectrum.unsqueeze(1)))
        return self.head(x.mean((2, 3))).log_softmax(1)


class Points(Network):
    """A cloud of points: the same layers for each, then the largest of each feature."""

    shape = (1, 512, 3)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(a, b, 1) for a, b in ((3, 48), (48, 96), (192, 128))])
        self.norms = nn.ModuleList([nn.BatchNorm1d(c) for c in (48, 96, 128)])
        self.head = nn.Linear(128, 10)

    def forward(self, points: Any) -> Any:
        x = points.transpose(1, 2)
        for layer, norm in zip(self.layers[:2], self.norms[:2], strict=True):
            x = functional.relu(norm(layer(x)))
        x = torch.cat([x, x.amax(2, keepdim=True).expand(-1, -1, x.shape[2])], 1)
        return self.head(functional.relu(self.norms[2](self.layers[2](x))).amax(2))


class GraphLayers(Network):
    """Layers over the nodes of a graph, given by its adjacency."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 16)])
        self.norms = nn.ModuleList([nn.LayerNorm(64), nn.LayerNorm(64)])

    def forward(self, nodes: Any, edges: Any) -> Any:
        edges = edges / edges.sum(-1, keepdim=True)
        x = functional.relu(self.norms[0](torch.matmul(edges, self.layers[0](nodes))))
        x = functional.relu(self.norms[1](torch.matmul(edges, self.layers[1](x))))
        return torch.matmul(edges, self.layers[2](x)).log_softmax(-1)

    def get_example_inputs(self) -> tuple[Any, ...]:
        return (torch.randn(1, 200, 32), torch.rand(1, 200, 200))


class Style(Network):
    """Instance norms, padding by reflection, and nearest resizing, as of style transfer."""

    shape = (1, 3, 64, 64)

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.down = nn.Conv2d(3, 16, 5), nn.Conv2d(16, 32, 3, 2)
        self.layer, self.leave = nn.Conv2d(32, 32, 3), nn.Conv2d(32, 3, 3)
        self.norms = nn.ModuleList([nn.InstanceNorm2d(c, affine=True) for c in (16, 32, 32)])

    def forward(self, image: Any) -> Any:
        x = functional.relu(self.norms[0](self.enter(functional.pad(image, (2, 2, 2, 2), "reflect"))))
        x = functional.relu(self.norms[1](self.down(functional.pad(x, (1, 1, 1, 1), "reflect"))))
        x = x + self.norms[2](self.layer(functional.pad(x, (1, 1, 1, 1), "reflect")))
        x = functional.interpolate(x, scale_factor=2, mode="nearest")
        return torch.tanh(self.leave(functional.pad(x, (1, 1, 1, 1), "reflect")))


# What a drawn network may have at each step, and the layer that it takes.
STEPS = {
    "conv": lambda: conv(24, 24),
    "depthwise": lambda: conv(24, 24, 5, groups=24),
    "rows": lambda: nn.LayerNorm(24),
    "groups": lambda: nn.GroupNorm(4, 24),
    "pixels": lambda: nn.Linear(24, 24),
    "squeeze": lambda: nn.Linear(24, 24),
    "attention": lambda: Attention(24, 2),
    "shuffle": nn.Identity,
    "resize": nn.Identity,
}


class Drawn(Network):
    """Steps drawn from a seed: convolutions, norms, activations, permutes, attention, gates and resizes."""

    shape = (1, 24, 32, 32)

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.steps = [draw.choice(sorted(STEPS)) for _ in range(draw.randint(5, 9))]
        self.layers = nn.ModuleList([STEPS[step]() for step in self.steps])
        self.enter, self.leave = conv(24, 24), conv(24, 24, 1)
        acts = (functional.relu, functional.silu, functional.gelu, torch.sigmoid, functional.hardswish)
        self.acts = [draw.choice(acts) for _ in self.steps]

    def forward(self, x: Any) -> Any:
        x = self.enter(x)
        for step, layer, act in zip(self.steps, self.layers, self.acts, strict=True):
            b, c, h, w = x.shape
            if step in ("conv", "depthwise", "groups"):
                y = act(layer(x))
            elif step in ("rows", "pixels"):
                y = act(layer(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
            elif step == "squeeze":
                y = x * torch.sigmoid(layer(x.mean((2, 3))))[:, :, None, None]
            elif step == "attention":
                small = functional.avg_pool2d(x, 4).flatten(2).transpose(1, 2)
                y = layer(small).transpose(1, 2).reshape(b, c, h // 4, w // 4)
                y = functional.interpolate(y, scale_factor=4, mode="nearest")
            elif step == "shuffle":
                y = x.view(b, 4, c // 4, h, w).transpose(1, 2).reshape(b, c, h, w)
            else:
                y = functional.interpolate(functional.max_pool2d(x, 2), scale_factor=2, mode="bilinear")
            x = x + y
        return self.leave(x)


class Random0(Drawn):
    def __init__(self) -> None:
        super().__init__(0)


class Random1(Drawn):
    def __init__(self) -> None:
        super().__init__(1)


class Random2(Drawn):
    def __init__(self) -> None:
        super().__init__(2)


class Random3(Drawn):
    def __init__(self) -> None:
        super().__init__(3)


NETWORKS = (
    *("ViT", "Decoder", "Conformer", "Detector", "Anchors", "Swin", "ConvNeXt", "Diffusion", "Recurrent", "GatedUnits"),
    *("Recommender", "Mobile", "Separable", "Dense", "Shuffled", "Inception", "Waves", "Temporal", "Mixer", "GatedMLP"),
    *("SuperResolution", "Segments", "Autoencoder", "Generator", "Denoiser", "Keywords", "Points", "GraphLayers"),
    *("Style", "Random0", "Random1", "Random2", "Random3"),
)
