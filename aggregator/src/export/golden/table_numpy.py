"""linear, in numpy.

    python3 network.py TABLE.csv              the most probable class of each row
    python3 network.py SAMPLES.npy            the same for an array of samples

In a program:

    from network import load, predict, prepare

    network = load()
    logits = network(prepare(samples))            # [n, 4] to [n, 3]
    answers = predict(network, samples)           # probabilities of the classes, a part at a time

It needs numpy.
Written by `aggregator export --to numpy`, version 0.1.0.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

import numpy as np

# The weights lie beside this file.
WEIGHTS = Path(__file__).with_suffix(".safetensors")

# The shape of one sample before `prepare`: features.
SHAPE = (4,)

# The columns of a table that are no features, and those that are, in order; all others if none are named.
TARGETS = ("kind \"x\"",)
FEATURES = ()

# The classes in the order of the logits.
CLASSES = tuple(str(number) for number in range(3))

# Samples that `predict` passes through the network together.
BATCH = 64


class Network:
    """linear: 15 parameters."""

    def __init__(self, weights: dict[str, dict[str, np.ndarray]]) -> None:
        self.weights = weights

    def extractor(self, x: np.ndarray) -> np.ndarray:
        """[n, 4] to [n, 4]."""
        x = flatten(x)
        return x

    def head(self, x: np.ndarray) -> np.ndarray:
        """[n, 4] to [n, 3]."""
        w = self.weights
        x = linear(x, **w["head.fc"])
        return x

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The logits, [n, 3], of samples that `prepare` gives, [n, 4]."""
        return self.head(self.extractor(x))


def linear(x, weight, bias=None):
    """`x W^T + b` over the last axis."""
    y = x @ weight.T
    return y if bias is None else y + bias


def flatten(x):
    """All axes of a sample as one."""
    return x.reshape(len(x), -1)


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
    """Samples [n, 4], or one of these, as the network takes them, [n, 4].

    Bytes become numbers from 0 to 1; other numbers are taken as they are.
    """
    x = np.asarray(samples)
    x = x.astype(np.float32) / 255 if x.dtype == np.uint8 else x.astype(np.float32)
    if not {SHAPE} & {tuple(x.shape), tuple(x.shape[1:])}:
        raise ValueError(f"samples are [n, 4], and not {list(x.shape)}")
    x = x.reshape(-1, *SHAPE)
    return x


def predict(network: Network, samples: np.ndarray) -> np.ndarray:
    """The probabilities of the classes, [n, 3], for samples as they are before `prepare`."""
    x = prepare(samples)
    parts = [x[begin : begin + BATCH] for begin in range(0, len(x), BATCH)]
    return np.concatenate([softmax(network(part)) for part in parts])


def read_table(path: Path) -> np.ndarray:
    """The rows of a CSV table with a header: the columns FEATURES, or all without TARGETS if they are there."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        header, *rows = [row for row in csv.reader(file) if row] or [[]]
    if any(len(row) != len(header) for row in rows):
        raise ValueError(f"{path}: a row has another number of fields than the header, {len(header)}")
    names = [name.strip() for name in header]
    for name in FEATURES:
        if names.count(name) != 1:
            raise ValueError(f"{path}: {names.count(name)} columns are named {name}")
    kept = [names.index(name) for name in FEATURES]
    kept = kept or [column for column, name in enumerate(names) if name not in TARGETS]
    return np.array([[float(row[column]) for column in kept] for row in rows], dtype=np.float32)


def read(path: Path) -> np.ndarray:
    """The samples of a file."""
    return np.load(path) if path.suffix == ".npy" else read_table(path)


def main() -> None:
    """Prints the most probable classes of each sample."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument(
        "samples", nargs="+", type=Path, metavar="FILE",
        help="CSV tables with a header, or arrays of samples (.npy)",
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
