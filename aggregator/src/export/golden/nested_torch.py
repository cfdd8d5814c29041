"""____import os, as a module of PyTorch.

    python3 network.py SAMPLES.npy            the most probable class of each sample

In a program:

    from network import load, predict, prepare

    network = load()
    logits = network(prepare(samples))            # [n, 4, 6, 6] to [n, 2]
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

# The shape of one sample before `prepare`: channels, height, width.
SHAPE = (4, 6, 6)

# The classes in the order of the logits.
CLASSES = tuple(str(number) for number in range(2))

# Samples that `predict` passes through the network together.
BATCH = 64


class Network(nn.Module):
    """____import os: 314 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.extractor = layers(
            block1=Residual(
                body=layers(
                    block1=Residual(
                        body=layers(
                            class_layer=nn.Conv2d(4, 4, 3, padding=1, bias=False),
                            layer_1=nn.BatchNorm2d(4),
                        ),
                    ),
                    relu1=nn.ReLU(),
                    dropout1=nn.Dropout(0.25),
                ),
                shortcut=layers(
                    a_b=nn.Conv2d(4, 4, 3, padding=1, bias=False),
                    a_b_2=nn.BatchNorm2d(4),
                ),
            ),
            pool1=nn.MaxPool2d(3, 2, ceil_mode=True),
            pool2=GlobalAvgPool(),
        )
        self.head = layers(
            forward_layer=nn.Linear(4, 2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits, [n, 2], of samples that `prepare` gives, [n, 4, 6, 6]."""
        return self.head(self.extractor(x))


def layers(**modules: nn.Module) -> nn.Sequential:
    """Modules one after the other, each with its name."""
    return nn.Sequential(OrderedDict(modules))


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


def load(path: Path = WEIGHTS) -> Network:
    """The network with its weights, in evaluation mode."""
    network = Network()
    network.load_state_dict(load_file(path), strict=True)
    return network.eval()


def prepare(samples: np.ndarray | torch.Tensor) -> torch.Tensor:
    """Samples [n, 4, 6, 6], or one of these, as the network takes them, [n, 4, 6, 6].

    Bytes become numbers from 0 to 1; other numbers are taken as they are.
    """
    x = torch.as_tensor(samples)
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    if not {SHAPE} & {tuple(x.shape), tuple(x.shape[1:])}:
        raise ValueError(f"samples are [n, 4, 6, 6], and not {list(x.shape)}")
    x = x.reshape(-1, *SHAPE)
    return x


@torch.inference_mode()
def predict(network: Network, samples: np.ndarray | torch.Tensor) -> np.ndarray:
    """The probabilities of the classes, [n, 2], for samples as they are before `prepare`."""
    device = next(network.parameters()).device
    parts = prepare(samples).to(device).split(BATCH)
    return torch.cat([network(part).softmax(dim=-1) for part in parts]).cpu().numpy()


def read(path: Path) -> np.ndarray:
    """The samples of a file."""
    return np.load(path)


def main() -> None:
    """Prints the most probable classes of each sample."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument(
        "samples", nargs="+", type=Path, metavar="FILE",
        help="arrays of samples (.npy)",
    )
    parser.add_argument("--top", type=int, default=1, metavar="K", help="classes to print of each sample")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, metavar="FILE", help="other weights")
    arguments = parser.parse_args()
    try:
        network = load(arguments.weights)
        for path in arguments.samples:
            for number, answers in enumerate(predict(network, read(path))):
                best = np.argsort(-answers, kind="stable")[: arguments.top]
                said = "  ".join(f"{CLASSES[i]} {100 * answers[i]:.1f} %" for i in best)
                print(f"{path} {number}  {said}")
    except (OSError, ValueError) as error:
        sys.exit(f"{parser.prog}: {error}")


if __name__ == "__main__":
    main()
