"""The networks of `models/src/architecture` as a user of PyTorch would write them, and their batches."""

import pathlib
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

import depthwise

# The larger networks are those that golden numbers are made of.
sys.path.append(str(pathlib.Path(__file__).parents[2] / "models" / "tests" / "golden"))
import models as golden

CLASSES = 10
# Characters that models of characters tell apart, and characters of one sample of a char-lstm and of a transformer.
VOCABULARY = 80
UNROLL = 80
POSITIONS = 128
# Words that a word-lstm tells apart, and words of one sample.
WORDS = 10_000
UNROLLED_WORDS = 10


@dataclass(frozen=True)
class Peer:
    """A network and the shape of one sample; `parameters` keeps the definition from drifting from ours."""

    build: Callable[[], nn.Module]
    input: tuple[int, ...]
    parameters: int


def mlp_2nn() -> nn.Module:
    """2NN of McMahan et al. 2017."""
    hidden = [nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(200, CLASSES))


def lenet_5(channels: int, padding: int) -> nn.Module:
    """LeNet-5 of Guo et al. 2021; 28x28 images are padded to 32x32 by the first convolution."""
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES),
    )  # fmt: skip


def cnn_mnist() -> nn.Module:
    """The CNN of McMahan et al. 2017 for MNIST."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, CLASSES),
    )  # fmt: skip


class Residual(nn.Module):
    """`x + f(x)`."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def resnet_9() -> nn.Module:
    """ResNet-9 without biases and without normalisation."""

    def conv(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.ReLU()]

    return nn.Sequential(
        *conv(3, 64), *conv(64, 128), nn.MaxPool2d(2), Residual(*conv(128, 128), *conv(128, 128)),
        *conv(128, 256), nn.MaxPool2d(2), *conv(256, 512), nn.MaxPool2d(2),
        Residual(*conv(512, 512), *conv(512, 512)), nn.MaxPool2d(4), nn.Flatten(),
        nn.Linear(512, CLASSES, bias=False),
    )  # fmt: skip


class CharLstm(nn.Module):
    """The character model of McMahan et al. 2017: predicts every next character.

    PyTorch's LSTM adds two bias vectors per layer, of which one would do: 2,048 parameters more than the
    count in the literature, 796,672 + 265 per character, and no time that could be measured.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.output = nn.Linear(256, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(self.embedding(x))
        return self.output(hidden).flatten(0, 1)


class WordLstm(nn.Module):
    """The word model of McMahan et al. 2017, with one layer: predicts every next word. Biases as in [`CharLstm`]."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 192)
        self.lstm = nn.LSTM(192, 256, batch_first=True)
        self.output = nn.Linear(256, WORDS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(self.embedding(x))
        return self.output(hidden).flatten(0, 1)


class TextTransformer(nn.Module):
    """Four causal blocks of 256 features and 4 heads, normalised before, which predict every next character."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 256)
        self.register_buffer("waves", golden.Waves()(torch.zeros(1, POSITIONS, 256)).float())
        self.blocks = nn.Sequential(*golden.blocks(4, 256, 4, True, 1e-5))
        self.output = nn.Linear(256, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(self.blocks(self.embedding(x) + self.waves)).flatten(0, 1)


def depthwise_convolutions() -> nn.Module:
    """The network of `depthwise.py`."""
    channels = depthwise.CHANNELS
    layers = [nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False) for _ in range(depthwise.LAYERS)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def of_golden(name: str) -> nn.Module:
    """A network of `models/tests/golden/models.py`."""
    _, _, extractor, _, head = golden.MODELS[name]
    return nn.Sequential(*extractor(), *head())


PEERS = {
    "mlp-2nn": Peer(mlp_2nn, (1, 28, 28), 199_210),
    "lenet-5": Peer(lambda: lenet_5(1, 2), (1, 28, 28), 61_706),
    "lenet-5-rgb": Peer(lambda: lenet_5(3, 0), (3, 32, 32), 62_006),
    "cnn-mnist": Peer(cnn_mnist, (1, 28, 28), 1_663_370),
    "resnet-9": Peer(resnet_9, (3, 32, 32), 6_568_640),
    "char-lstm": Peer(CharLstm, (UNROLL,), 796_672 + 265 * VOCABULARY + 2_048),
    "word-lstm": Peer(WordLstm, (UNROLLED_WORDS,), 4_949_776 + 1_024),
    "mobilenet-v2": Peer(lambda: of_golden("mobilenet-v2"), (3, 96, 96), 2_236_682),
    "resnet-50": Peer(lambda: of_golden("resnet-50 group"), (3, 32, 32), 23_520_842),
    "vit-tiny": Peer(lambda: of_golden("vit-tiny"), (3, 64, 64), 5_491_786),
    "text-transformer": Peer(TextTransformer, (POSITIONS,), 3_200_592),
    "depthwise": Peer(depthwise_convolutions, depthwise.INPUT, depthwise.LAYERS * 9 * 96 + 970),
}


def build(name: str) -> nn.Module:
    """The network, checked to have as many parameters as ours."""
    peer = PEERS[name]
    network = peer.build()
    count = sum(parameter.numel() for parameter in network.parameters())
    if count != peer.parameters:
        raise ValueError(f"{name} has {count} parameters here and {peer.parameters} in our registry")
    return network


def batch(name: str, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise of the right shape, with labels; those of characters are one per position."""
    shape = (samples, *PEERS[name].input)
    if len(shape) == 2:
        tokens = WORDS if name == "word-lstm" else VOCABULARY
        return torch.randint(tokens, shape), torch.randint(tokens, (samples * shape[1],))
    return torch.rand(shape), torch.arange(samples) % CLASSES
