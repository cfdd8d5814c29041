class Residual(nn.Module):
    """`body(x) + shortcut(x)` (He et al. 2016); the input itself where there is no shortcut."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = nn.Identity() if shortcut is None else shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + self.shortcut(x)


class SqueezeExcite(nn.Module):
    """Each channel times a factor that `body` makes of the means of all channels (Hu et al. 2018)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factors = self.body(x.mean(dim=(2, 3), keepdim=True))
        return x * factors.reshape(*x.shape[:2], 1, 1)


class ToSequence(nn.Module):
    """The pixels of an image as a sequence, [n, c, h, w] to [n, h w, c]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(2).transpose(1, 2)


class ClassToken(nn.Module):
    """A learned position before the others, [n, t, d] to [n, t + 1, d]."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 1, features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.weight.expand(len(x), -1, -1), x], dim=1)


class Positions(nn.Module):
    """Adds what is learned of each position, to as many as there are."""

    def __init__(self, positions: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, positions, features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight[:, : x.shape[1]]


class SimplexEtf(nn.Module):
    """Cosines of the features with the vertices of a regular simplex, times one factor (Li et al. 2023)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        classes = x.shape[-1]
        direction = x / (x.square().sum(dim=-1, keepdim=True) + 1e-12).sqrt()
        cosines = (classes / (classes - 1)) ** 0.5 * (direction - direction.mean(dim=-1, keepdim=True))
        return self.weight * cosines


class SinusoidalPositions(nn.Module):
    """Adds waves, so that positions differ (Vaswani et al. 2017)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, positions, features = x.shape
        feature = torch.arange(features, device=x.device, dtype=torch.float64)
        position = torch.arange(positions, device=x.device, dtype=torch.float64)
        phases = position[:, None] / 10000 ** (feature // 2 * 2 / features)
        return x + torch.where(feature % 2 == 0, phases.sin(), phases.cos()).to(x.dtype)


class Attention(nn.Module):
    """Attention of several heads, [n, t, 3 d] to [n, t, d]: of queries, keys and values."""

    def __init__(self, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in x.chunk(3, dim=2))
        y = nn.functional.scaled_dot_product_attention(*parts, is_causal=self.causal)
        return y.transpose(1, 2).flatten(2)


class FirstPosition(nn.Module):
    """The first position, [n, t, d] to [n, d]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0]


class MeanPositions(nn.Module):
    """The mean over all positions, [n, t, d] to [n, d]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=1)


class GlobalAvgPool(nn.Module):
    """The mean over all pixels of a channel, [n, c, h, w] to [n, c]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=(2, 3))


class Lstm(nn.LSTM):
    """An LSTM, [n, t, inputs] to [n, t, hidden], that begins with zeros and returns its outputs alone."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(inputs, hidden, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)[0]


def layers(**modules: nn.Module) -> nn.Sequential:
    """Modules one after the other, each with its name."""
    return nn.Sequential(OrderedDict(modules))


def cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The cosines of the rows of `a` with those of `b`; 0 with a row of zeros."""
    return nn.functional.normalize(a, dim=1) @ nn.functional.normalize(b, dim=1).T
