"""____import os, in numpy.

    python3 network.py SAMPLES.npy            the most probable class of each sample

In a program:

    from network import load, predict, prepare

    network = load()
    logits = network(prepare(samples))            # [n, 4, 6, 6] to [n, 2]
    answers = predict(network, samples)           # probabilities of the classes, a part at a time

It needs numpy.
Written by `aggregator export --to numpy`, version 0.1.0.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

# The weights lie beside this file.
WEIGHTS = Path(__file__).with_suffix(".safetensors")

# The shape of one sample before `prepare`: channels, height, width.
SHAPE = (4, 6, 6)

# The classes in the order of the logits.
CLASSES = tuple(str(number) for number in range(2))

# Samples that `predict` passes through the network together.
BATCH = 64

# Added to variances.
EPSILON = 1e-5


class Network:
    """____import os: 314 parameters."""

    def __init__(self, weights: dict[str, dict[str, np.ndarray]]) -> None:
        self.weights = weights

    def extractor(self, x: np.ndarray) -> np.ndarray:
        """[n, 4, 6, 6] to [n, 4]."""
        w = self.weights
        block = x
        block2 = x
        x = conv2d(x, **w["extractor.class"], padding=1)
        x = batch_norm(x, **w["extractor.1"])
        x = x + block2
        x = relu(x)
        body, x = x, block
        x = conv2d(x, **w["extractor.a-b"], padding=1)
        x = batch_norm(x, **w["extractor.a_b"])
        x = body + x
        x = max_pool(x, 3, 2, partial=True)
        x = global_avg_pool(x)
        return x

    def head(self, x: np.ndarray) -> np.ndarray:
        """[n, 4] to [n, 2]."""
        w = self.weights
        x = linear(x, **w["head.forward"])
        return x

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The logits, [n, 2], of samples that `prepare` gives, [n, 4, 6, 6]."""
        return self.head(self.extractor(x))


def conv2d(x, weight, bias=None, stride=1, padding=0, groups=1):
    """Cross-correlation of [n, c, h, w] with a weight [out, c / groups, k, k]."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = sliding_window_view(x, weight.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    parts = zip(np.split(windows, groups, axis=1), np.split(weight, groups))
    parts = [np.tensordot(part, own, axes=((1, 4, 5), (1, 2, 3))) for part, own in parts]
    y = np.concatenate(parts, axis=3).transpose(0, 3, 1, 2)
    return y if bias is None else y + bias[:, None, None]


def linear(x, weight, bias=None):
    """`x W^T + b` over the last axis."""
    y = x @ weight.T
    return y if bias is None else y + bias


def relu(x):
    """`max(x, 0)`."""
    return np.maximum(x, 0)


def max_pool(x, size, stride, partial=False):
    """The maximum over windows, with those that begin in the image and reach beyond it if `partial`."""
    if partial:
        beyond = [(size - side) % stride for side in x.shape[2:]]
        more = [(0, rows if rows < size else 0) for rows in beyond]
        x = np.pad(x, ((0, 0), (0, 0), *more), constant_values=-np.inf)
    return sliding_window_view(x, (size, size), axis=(2, 3))[:, :, ::stride, ::stride].max(axis=(4, 5))


def global_avg_pool(x):
    """The mean over all pixels of a channel, [n, c, h, w] to [n, c]."""
    return x.mean(axis=(2, 3))


def batch_norm(x, weight, bias, running_mean, running_var, epsilon=EPSILON):
    """Each channel by the statistics of training (Ioffe and Szegedy 2015)."""
    axes = (-1,) + (1,) * (x.ndim - 2)
    scale = weight / np.sqrt(running_var + epsilon)
    return (x - running_mean.reshape(axes)) * scale.reshape(axes) + bias.reshape(axes)


def softmax(x):
    """Probabilities of logits, over the last axis."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file, which is the length of a header, the header in JSON, and numbers."""
    content = Path(path).read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    header.pop("__metadata__", None)
    tensors = {}
    for name, about in header.items():
        first, last = about["data_offsets"]
        values = np.frombuffer(content, "<f4", count=(last - first) // 4, offset=begin + first)
        tensors[name] = values.reshape(about["shape"])
    return tensors


def by_layer(tensors: dict[str, np.ndarray], prefix: str = "") -> dict[str, dict[str, np.ndarray]]:
    """The tensors of each layer by their names in it, of the layers whose names begin with `prefix`."""
    layers: dict[str, dict[str, np.ndarray]] = {}
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            layer, kind = name[len(prefix) :].rsplit(".", 1)
            layers.setdefault(layer, {})[kind] = tensor
    return layers


def load(path: Path = WEIGHTS) -> Network:
    """The network with its weights."""
    tensors = read_tensors(path)
    return Network(by_layer(tensors))


def prepare(samples: np.ndarray) -> np.ndarray:
    """Samples [n, 4, 6, 6], or one of these, as the network takes them, [n, 4, 6, 6].

    Bytes become numbers from 0 to 1; other numbers are taken as they are. Each sample is normalised by the
    mean and the deviation of its own values.
    """
    x = np.asarray(samples)
    x = x.astype(np.float32) / 255 if x.dtype == np.uint8 else x.astype(np.float32)
    if not {SHAPE} & {tuple(x.shape), tuple(x.shape[1:])}:
        raise ValueError(f"samples are [n, 4, 6, 6], and not {list(x.shape)}")
    x = x.reshape(-1, *SHAPE)
    mean = x.mean(axis=(1, 2, 3), keepdims=True, dtype=np.float64)
    deviation = x.std(axis=(1, 2, 3), keepdims=True, dtype=np.float64)
    deviation = np.maximum(deviation, 1 / (255 * 144**0.5))
    x = (x - mean.astype(np.float32)) / deviation.astype(np.float32)
    return x


def predict(network: Network, samples: np.ndarray) -> np.ndarray:
    """The probabilities of the classes, [n, 2], for samples as they are before `prepare`."""
    x = prepare(samples)
    parts = [x[begin : begin + BATCH] for begin in range(0, len(x), BATCH)]
    return np.concatenate([softmax(network(part)) for part in parts])


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
