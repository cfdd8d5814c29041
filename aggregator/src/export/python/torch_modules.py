class Residual(nn.Module):
    """`body(x) + shortcut(x)` (He et al. 2016); the input itself where there is no shortcut."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = nn.Identity() if shortcut is None else shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + self.shortcut(x)


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
