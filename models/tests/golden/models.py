#!/usr/bin/env python3
"""A golden forward pass of every built-in model, computed by PyTorch in float64.

    python3 tests/peers/environment.py                       makes the environment, prints its interpreter
    target/peers/bin/python models/tests/golden/models.py    writes a missing file, checks an existing one

The networks are written here as a user of PyTorch would write them, from the papers. One file holds, for each of
them, what two samples give in evaluation: the logits, and of the extractor's features the sum of squares. Parameters
and samples are not in the file; either side makes them of `golden_file.noise`:

* tensor number i of the network, counted in the order of its layers and within a layer weight, bias, running mean and
  running variance (of an LSTM the weights of inputs and of state and one bias), is `noise(i, count)`, times
  `sqrt(6 / fan in)` for weights and `1 / sqrt(fan in)` for biases of convolutions and linear layers, times
  `1 / sqrt(hidden)` for LSTMs; scales of normalisation are 1 and their offsets and running means 0, plus a quarter of
  it; running variances are 1 plus half of it; embeddings and positions are the noise itself, class tokens a quarter of it;
* the samples are `noise(1000, count)`, or tokens `floor((value + 1) / 2 * vocabulary)` of it.
"""

import math
import sys

import torch
from golden_file import Family, disagreements, noise, write
from torch import nn

SAMPLES = 2
CLASSES = 10


class Residual(nn.Module):
    """`body(x) + shortcut(x)`."""

    def __init__(self, body: list[nn.Module], shortcut: list[nn.Module]) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)
        self.shortcut = nn.Sequential(*shortcut)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + self.shortcut(x)


class Lstm(nn.LSTM):
    """An LSTM with one bias, that gives its states alone."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(inputs, hidden, batch_first=True)
        nn.init.zeros_(self.bias_hh_l0)
        del self._parameters["bias_hh_l0"]
        self.register_buffer("bias_hh_l0", torch.zeros(4 * hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)[0]


class Words(nn.Embedding):
    """Tokens come as numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.long())


def relu() -> nn.Module:
    return nn.ReLU()


def lenet(channels: int, padding: int) -> list[nn.Module]:
    return [
        nn.Conv2d(channels, 6, 5, padding=padding), relu(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), relu(), nn.MaxPool2d(2), nn.Flatten(),
    ]  # fmt: skip


def vgg_16() -> list[nn.Module]:
    layers: list[nn.Module] = []
    channels = 3
    for out, count in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]:
        for _ in range(count):
            layers += [nn.Conv2d(channels, out, 3, padding=1), relu()]
            channels = out
        layers.append(nn.MaxPool2d(2))
    return [*layers, nn.Flatten()]


def resnet_9() -> list[nn.Module]:
    def conv(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), relu()]

    return [
        *conv(3, 64), *conv(64, 128), nn.MaxPool2d(2), Residual([*conv(128, 128), *conv(128, 128)], []),
        *conv(128, 256), nn.MaxPool2d(2), *conv(256, 512), nn.MaxPool2d(2),
        Residual([*conv(512, 512), *conv(512, 512)], []), nn.MaxPool2d(4), nn.Flatten(),
    ]  # fmt: skip


def resnet(blocks: list[int], bottleneck: bool, norm: str, large: bool = False) -> list[nn.Module]:
    """He et al. 2016 with a stem for small images, or for large ones; blocks of two 3x3 convolutions, or bottlenecks of three."""

    def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
        layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=norm == "none")
        norms = {"none": [], "batch": [nn.BatchNorm2d(outputs)], "group": [nn.GroupNorm(32, outputs)]}
        return [layer, *norms[norm]]

    layers = [*conv(3, 64, 3), relu()]
    if large:
        layers = [*conv(3, 64, 7, 2), relu(), nn.MaxPool2d(3, 2, padding=1)]
    inputs = 64
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        outputs = 4 * width if bottleneck else width
        for number in range(count):
            stride = 2 if stage > 0 and number == 0 else 1
            if bottleneck:
                body = [*conv(inputs, width, 1), relu(), *conv(width, width, 3, stride), relu()]
                body += conv(width, outputs, 1)
            else:
                body = [*conv(inputs, width, 3, stride), relu(), *conv(width, width, 3)]
            shortcut = conv(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else []
            layers += [Residual(body, shortcut), relu()]
            inputs = outputs
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def mobilenet_v2() -> list[nn.Module]:
    """Sandler et al. 2018, as in torchvision."""

    def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
        layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
        return [layer, nn.BatchNorm2d(outputs)]

    layers = [*conv(3, 32, 3, 2), nn.ReLU6()]
    inputs = 32
    for expansion, outputs, count, first_stride in [
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ]:  # fmt: skip
        for number in range(count):
            stride = first_stride if number == 0 else 1
            wide = expansion * inputs
            block = [*conv(inputs, wide, 1), nn.ReLU6()] if expansion > 1 else []
            block += [*conv(wide, wide, 3, stride, wide), nn.ReLU6(), *conv(wide, outputs, 1)]
            layers += [Residual(block, [])] if stride == 1 and inputs == outputs else block
            inputs = outputs
    return [*layers, *conv(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]


class Excite(nn.Module):
    """Squeeze-and-excitation, as in torchvision's MobileNetV3."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        means = nn.functional.adaptive_avg_pool2d(x, 1)
        return x * nn.functional.hardsigmoid(self.fc2(nn.functional.relu(self.fc1(means))))


def mobilenet_v3_small() -> list[nn.Module]:
    """Howard et al. 2019, as in torchvision."""

    def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
        layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
        return [layer, nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)]

    layers = [*conv(3, 16, 3, 2), nn.Hardswish()]
    inputs = 16
    for kernel, wide, outputs, squeezed, activation, stride in [
        (3, 16, 16, 8, nn.ReLU, 2), (3, 72, 24, 0, nn.ReLU, 2), (3, 88, 24, 0, nn.ReLU, 1),
        (5, 96, 40, 24, nn.Hardswish, 2), (5, 240, 40, 64, nn.Hardswish, 1), (5, 240, 40, 64, nn.Hardswish, 1),
        (5, 120, 48, 32, nn.Hardswish, 1), (5, 144, 48, 40, nn.Hardswish, 1), (5, 288, 96, 72, nn.Hardswish, 2),
        (5, 576, 96, 144, nn.Hardswish, 1), (5, 576, 96, 144, nn.Hardswish, 1),
    ]:  # fmt: skip
        block = [*conv(inputs, wide, 1), activation()] if wide != inputs else []
        block += [*conv(wide, wide, kernel, stride, wide), activation()]
        block += [Excite(wide, squeezed)] if squeezed else []
        block += conv(wide, outputs, 1)
        layers += [Residual(block, [])] if stride == 1 and inputs == outputs else block
        inputs = outputs
    return [*layers, *conv(96, 576, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]


class Table(nn.Module):
    """A tensor of a sequence: one more position before the others, or a value added to each."""

    def __init__(self, positions: int, features: int, scale: float) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(1, positions, features))
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table.shape[1] == x.shape[1]:
            return x + self.table
        return torch.cat([self.table.expand(len(x), -1, -1), x], dim=1)


class Waves(nn.Module):
    """Adds the positions of Vaswani et al. 2017."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, positions, features = x.shape
        pair = torch.arange(features // 2).double()
        phase = torch.arange(positions).double()[:, None] / 10_000 ** (2 * pair / features)
        waves = torch.stack([phase.sin(), phase.cos()], dim=2).reshape(positions, features)
        # Rounded as the other side keeps them.
        return x + waves.float().double()


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, features: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(features, 3 * features)
        self.proj = nn.Linear(features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, positions, features = x.shape
        parts = self.qkv(x).reshape(n, positions, 3, self.heads, features // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(*parts, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).reshape(n, positions, features))


class Sequence(nn.Module):
    """The pixels of an image as a sequence."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(2).transpose(1, 2)


class First(nn.Module):
    """The first position."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0]


def blocks(count: int, features: int, heads: int, causal: bool, epsilon: float) -> list[nn.Module]:
    """Blocks of a transformer and the normalisation after them."""
    layers: list[nn.Module] = []
    for _ in range(count):
        wide = 4 * features
        perceptron = [nn.Linear(features, wide), nn.GELU(), nn.Linear(wide, features)]
        layers.append(Residual([nn.LayerNorm(features, epsilon), Attention(features, heads, causal)], []))
        layers.append(Residual([nn.LayerNorm(features, epsilon), *perceptron], []))
    return [*layers, nn.LayerNorm(features, epsilon)]


def vit_tiny() -> list[nn.Module]:
    """Touvron et al. 2021, as in timm, for 3x64x64."""
    front = [nn.Conv2d(3, 192, 16, 16), Sequence(), Table(1, 192, 0.25), Table(17, 192, 1.0)]
    return [*front, *blocks(12, 192, 3, False, 1e-6), First()]


def fully_connected(*sizes: int) -> list[nn.Module]:
    """Linear layers with rectifiers between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(inputs, outputs), relu()]
    return layers[:-1]


def response() -> nn.Module:
    """TensorFlow's `lrn(x, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75)`."""
    return nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)


def ceil_pool() -> nn.Module:
    return nn.MaxPool2d(3, 2, ceil_mode=True)


# Model, what follows its name if it is a variant: input, classes, extractor, projection and head.
MODELS = {
    "char-lstm": ((80,), 80, lambda: [Words(80, 8), Lstm(8, 256), Lstm(256, 256)], [], lambda: [nn.Linear(256, 80)]),
    "cnn-cifar": (
        (3, 24, 24), CLASSES,
        lambda: [
            nn.Conv2d(3, 64, 5, padding=2), relu(), ceil_pool(), response(),
            nn.Conv2d(64, 64, 5, padding=2), relu(), response(), ceil_pool(), nn.Flatten(),
        ],
        [], lambda: fully_connected(2304, 384, 192, CLASSES),
    ),
    "cnn-mnist": (
        (1, 28, 28), CLASSES,
        lambda: [
            nn.Conv2d(1, 32, 5, padding=2), relu(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2), relu(), nn.MaxPool2d(2), nn.Flatten(),
        ],
        [], lambda: fully_connected(3136, 512, CLASSES),
    ),
    "cnn-small": (
        (1, 28, 28), CLASSES,
        lambda: [
            nn.Conv2d(1, 8, 5, 2, padding=2), relu(), nn.Conv2d(8, 16, 3, padding=1), relu(),
            nn.MaxPool2d(2), nn.Flatten(),
        ],
        [], lambda: [nn.Linear(784, CLASSES)],
    ),
    "lenet-5": ((3, 32, 32), CLASSES, lambda: lenet(3, 0), [], lambda: fully_connected(400, 120, 84, CLASSES)),
    "linear": ((1, 28, 28), CLASSES, lambda: [nn.Flatten()], [], lambda: [nn.Linear(784, CLASSES)]),
    "mlp-2nn": (
        (1, 28, 28), CLASSES,
        lambda: [nn.Flatten(), *fully_connected(784, 200, 200), relu()], [], lambda: [nn.Linear(200, CLASSES)],
    ),
    "mlp-25m": (
        (1, 28, 28), CLASSES,
        lambda: [nn.Flatten(), *fully_connected(784, 4620, 4620), relu()], [], lambda: [nn.Linear(4620, CLASSES)],
    ),
    "mobilenet-v2": (
        (3, 96, 96), CLASSES, mobilenet_v2, [], lambda: [nn.Dropout(0.2), nn.Linear(1280, CLASSES)],
    ),
    "mobilenet-v3-small": (
        (3, 96, 96), CLASSES, mobilenet_v3_small,
        [], lambda: [nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, CLASSES)],
    ),
    "moon-cnn": (
        (3, 32, 32), CLASSES,
        lambda: [*lenet(3, 0), *fully_connected(400, 120, 84), relu()],
        [lambda: fully_connected(84, 84, 256)], lambda: [nn.Linear(256, CLASSES)],
    ),
    "resnet-9": ((3, 32, 32), CLASSES, resnet_9, [], lambda: [nn.Linear(512, CLASSES, bias=False)]),
    "resnet-18-imagenet": (
        (3, 96, 64), CLASSES, lambda: resnet([2, 2, 2, 2], False, "batch", True), [], lambda: [nn.Linear(512, CLASSES)],
    ),
    "resnet-50-imagenet": (
        (3, 96, 64), CLASSES, lambda: resnet([3, 4, 6, 3], True, "batch", True), [], lambda: [nn.Linear(2048, CLASSES)],
    ),
    "vgg-16-imagenet": ((3, 32, 32), CLASSES, vgg_16, [], lambda: fully_connected(512, 4096, 4096, CLASSES)),
    "vgg-16": ((3, 32, 32), CLASSES, vgg_16, [], lambda: fully_connected(512, 512, 512, CLASSES)),
    "text-transformer": (
        (80,), 80, lambda: [Words(80, 256), Waves(), *blocks(4, 256, 4, True, 1e-5)],
        [], lambda: [nn.Linear(256, 80)],
    ),
    "vit-tiny": ((3, 64, 64), CLASSES, vit_tiny, [], lambda: [nn.Linear(192, CLASSES)]),
    "word-lstm": (
        (10,), 10_000, lambda: [Words(10_000, 192), Lstm(192, 256)], [], lambda: [nn.Linear(256, 10_000)],
    ),
    **{
        f"resnet-18 {norm}": (
            (3, 32, 32), CLASSES, lambda norm=norm: resnet([2, 2, 2, 2], False, norm),
            [], lambda: [nn.Linear(512, CLASSES)],
        )
        for norm in ("none", "batch", "group")
    },
    **{
        f"resnet-50 {norm}": (
            (3, 32, 32), CLASSES, lambda norm=norm: resnet([3, 4, 6, 3], True, norm),
            [], lambda: [nn.Linear(2048, CLASSES)],
        )
        for norm in ("none", "batch", "group")
    },
}  # fmt: skip


def fill(network: nn.Module) -> None:
    """Gives every tensor its noise."""
    stream = 0

    def put(tensor: torch.Tensor, scale: float, offset: float = 0.0) -> None:
        nonlocal stream
        values = torch.from_numpy(noise(stream, tensor.numel())).double().reshape(tensor.shape)
        # In f32, as the other side computes it.
        scaled = values.float() * torch.tensor(scale, dtype=torch.float32) + torch.tensor(offset)
        tensor.data.copy_(scaled.double())
        stream += 1

    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            fan = layer.weight[0].numel()
            put(layer.weight, math.sqrt(6 / fan))
            if layer.bias is not None:
                put(layer.bias, 1 / math.sqrt(fan))
        elif isinstance(layer, Table):
            put(layer.table, layer.scale)
        elif isinstance(layer, (nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)):
            put(layer.weight, 0.25, 1.0)
            put(layer.bias, 0.25)
            if isinstance(layer, nn.BatchNorm2d):
                put(layer.running_mean, 0.25)
                put(layer.running_var, 0.5, 1.0)
        elif isinstance(layer, nn.Embedding):
            put(layer.weight, 1.0)
        elif isinstance(layer, nn.LSTM):
            for tensor in (layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0):
                put(tensor, 1 / math.sqrt(layer.hidden_size))


def models() -> Family:
    family = Family("models")
    for name, (shape, classes, extractor, projection, head) in MODELS.items():
        parts = [nn.Sequential(*extractor()), nn.Sequential(*(projection[0]() if projection else []))]
        network = nn.Sequential(*parts, nn.Sequential(*head())).double().eval()
        fill(network)
        count = SAMPLES * math.prod(shape)
        values = torch.from_numpy(noise(1000, count)).double()
        if len(shape) == 1:
            values = ((values + 1) / 2 * classes).floor()
        samples = values.reshape(SAMPLES, *shape)
        with torch.no_grad():
            features = network[0](samples)
            logits = network[2](network[1](features)).reshape(-1, classes)
        # Of predictions at every position those of the first and the last: the others would make the file large.
        if logits.shape[0] > SAMPLES:
            logits = logits[[0, -1]][:, :64]
        parameters = sum(parameter.numel() for parameter in network.parameters())
        settings = {"input": list(shape), "classes": classes, "samples": SAMPLES, "parameters": parameters}
        family.add(name, settings, logits=logits, squares=features.square().sum())
    return family


def main() -> None:
    torch.set_num_threads(1)
    family = models()
    if not family.path.exists():
        write(family)
        print(f"{family.path.name}: written, {family.path.stat().st_size} bytes")
    elif found := disagreements(family):
        print(f"{family.path.name}: not what PyTorch {torch.__version__} computes: {'; '.join(found)}")
        sys.exit("models.py: if this file is to change, delete it and run this again")
    else:
        print(f"{family.path.name}: as computed")


if __name__ == "__main__":
    main()
