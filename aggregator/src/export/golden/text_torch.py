"""char-lstm, as a module of PyTorch.

    python3 network.py TEXT.txt               the most probable next character
    python3 network.py SAMPLES.npy            the same for an array of samples

In a program:

    from network import load, predict, prepare

    network = load()
    logits = network(prepare(samples))            # [n, 80] to [n, 80, 97]
    answers = predict(network, samples)           # probabilities of the classes, a part at a time

It needs torch, numpy and safetensors.
Written by `aggregator export --to torch`, version 0.1.0.
"""

from __future__ import annotations

import argparse
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

# The weights lie beside this file.
WEIGHTS = Path(__file__).with_suffix(".safetensors")

# The shape of one sample before `prepare`: positions.
SHAPE = (80,)

# The characters in the order of their tokens; one more token is for all others.
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))

# The classes in the order of the logits.
CLASSES = (
    "line feed", "space", "!", "\"", "#", "$", "%", "&", "'", "(", ")", "*", "+", ",", "-", ".", "/", "0",
    "1", "2", "3", "4", "5", "6", "7", "8", "9", ":", ";", "<", "=", ">", "?", "@", "A", "B", "C", "D", "E",
    "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S", "T", "U", "V", "W", "X", "Y", "Z",
    "[", "\\", "]", "^", "_", "`", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o",
    "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z", "{", "|", "}", "~", "other",
)

# Samples that `predict` passes through the network together.
BATCH = 64


class Network(nn.Module):
    """char-lstm: 822,377 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.extractor = layers(
            embedding=nn.Embedding(97, 8),
            lstm1=Lstm(8, 256),
            lstm2=Lstm(256, 256),
        )
        self.head = layers(
            fc=nn.Linear(256, 97),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits at each position, [n, 80, 97], of samples that `prepare` gives, [n, 80]."""
        return self.head(self.extractor(x))


def layers(**modules: nn.Module) -> nn.Sequential:
    """Modules one after the other, each with its name."""
    return nn.Sequential(OrderedDict(modules))


class Lstm(nn.LSTM):
    """An LSTM, [n, t, inputs] to [n, t, hidden], that begins with zeros and returns its outputs alone."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(inputs, hidden, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)[0]


def load(path: Path = WEIGHTS) -> Network:
    """The network with its weights, in evaluation mode."""
    network = Network()
    network.load_state_dict(load_file(path), strict=True)
    return network.eval()


def prepare(samples: np.ndarray | torch.Tensor) -> torch.Tensor:
    """Tokens [n, 80], of any number of positions, or those of one sample, as the network takes them."""
    x = torch.as_tensor(samples)
    x = x.long()
    if x.ndim == 1:
        x = x[None]
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"samples are [n, t], and not {list(x.shape)}")
    if x.min() < 0 or x.max() >= 97:
        raise ValueError(f"tokens are from 0 to 96, and there are {x.min()} to {x.max()}")
    return x


@torch.inference_mode()
def predict(network: Network, samples: np.ndarray | torch.Tensor) -> np.ndarray:
    """The probabilities of the classes at each position, [n, 80, 97], for samples as they are before
    `prepare`.
    """
    device = next(network.parameters()).device
    parts = prepare(samples).to(device).split(BATCH)
    return torch.cat([network(part).softmax(dim=-1) for part in parts]).cpu().numpy()


def read_text(path: Path) -> np.ndarray:
    """The last characters of a text as tokens."""
    return tokens(path.read_text(encoding="utf-8"))[-SHAPE[0] :]


def tokens(text: str) -> np.ndarray:
    """The number of each character: its place among CHARACTERS, and one number behind them for all others."""
    # What is not found is at -1, which is the last class.
    return np.array([CHARACTERS.find(character) % len(CLASSES) for character in text], dtype=np.int64)


def read(path: Path) -> np.ndarray:
    """The samples of a file."""
    return np.load(path) if path.suffix == ".npy" else read_text(path)


def main() -> None:
    """Prints the most probable classes of each sample."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument(
        "samples", nargs="+", type=Path, metavar="FILE",
        help="texts in UTF-8, or arrays of tokens (.npy)",
    )
    parser.add_argument("--top", type=int, default=1, metavar="K", help="classes to print of each sample")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, metavar="FILE", help="other weights")
    arguments = parser.parse_args()
    try:
        network = load(arguments.weights)
        for path in arguments.samples:
            for number, answers in enumerate(predict(network, read(path))[:, -1]):
                best = np.argsort(-answers, kind="stable")[: arguments.top]
                said = "  ".join(f"{CLASSES[i]} {100 * answers[i]:.1f} %" for i in best)
                print(f"{path} {number}  {said}")
    except (OSError, ValueError) as error:
        sys.exit(f"{parser.prog}: {error}")


if __name__ == "__main__":
    main()
