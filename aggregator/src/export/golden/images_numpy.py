"""lenet-5, in numpy.

    python3 network.py IMAGE.png ...          the most probable class of each image
    python3 network.py SAMPLES.npy            the same for an array of samples

In a program:

    from network import load, predict, prepare

    network = load()
    logits = network(prepare(samples))            # [n, 1, 32, 30] to [n, 2]
    answers = predict(network, samples)           # probabilities of the classes, a part at a time

It needs numpy; images take Pillow, too.
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
SHAPE = (1, 32, 30)

# Of the training data, by channel.
MEAN = (0.1307,)
DEVIATION = (0.3081,)

# The classes in the order of the logits.
CLASSES = ("cat \"Tom\"", "dog\\\n\u202e")

# Samples that `predict` passes through the network together.
BATCH = 64


class Network:
    """lenet-5: 61,026 parameters."""

    def __init__(self, weights: dict[str, dict[str, np.ndarray]]) -> None:
        self.weights = weights

    def extractor(self, x: np.ndarray) -> np.ndarray:
        """[n, 1, 28, 28] to [n, 400]."""
        w = self.weights
        x = conv2d(x, **w["extractor.conv1"], padding=2)
        x = relu(x)
        x = max_pool(x, 2, 2)
        x = conv2d(x, **w["extractor.conv2"])
        x = relu(x)
        x = max_pool(x, 2, 2)
        x = flatten(x)
        return x

    def head(self, x: np.ndarray) -> np.ndarray:
        """[n, 400] to [n, 2]."""
        w = self.weights
        x = linear(x, **w["head.fc1"])
        x = relu(x)
        x = linear(x, **w["head.fc2"])
        x = relu(x)
        x = linear(x, **w["head.fc3"])
        return x

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The logits, [n, 2], of samples that `prepare` gives, [n, 1, 28, 28]."""
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


def flatten(x):
    """All axes of a sample as one."""
    return x.reshape(len(x), -1)


def max_pool(x, size, stride, partial=False):
    """The maximum over windows, with those that begin in the image and reach beyond it if `partial`."""
    if partial:
        beyond = [(size - side) % stride for side in x.shape[2:]]
        more = [(0, rows if rows < size else 0) for rows in beyond]
        x = np.pad(x, ((0, 0), (0, 0), *more), constant_values=-np.inf)
    return sliding_window_view(x, (size, size), axis=(2, 3))[:, :, ::stride, ::stride].max(axis=(4, 5))


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
    """Samples [n, 1, 32, 30], or one of these, with or without the axis of the channel, as the network
    takes them, [n, 1, 28, 28].

    Bytes become numbers from 0 to 1; other numbers are taken as they are. The centre of 28 x 28 pixels is
    cut out of 32 x 30. Each channel is normalised by MEAN and DEVIATION.
    """
    x = np.asarray(samples)
    x = x.astype(np.float32) / 255 if x.dtype == np.uint8 else x.astype(np.float32)
    if not {SHAPE, SHAPE[1:]} & {tuple(x.shape), tuple(x.shape[1:])}:
        raise ValueError(f"samples are [n, 1, 32, 30], and not {list(x.shape)}")
    x = x.reshape(-1, *SHAPE)
    x = x[:, :, 2:30, 1:29]
    mean, deviation = (np.array(of, np.float32).reshape(-1, 1, 1) for of in (MEAN, DEVIATION))
    x = (x - mean) / deviation
    return x


def predict(network: Network, samples: np.ndarray) -> np.ndarray:
    """The probabilities of the classes, [n, 2], for samples as they are before `prepare`."""
    x = prepare(samples)
    parts = [x[begin : begin + BATCH] for begin in range(0, len(x), BATCH)]
    return np.concatenate([softmax(network(part)) for part in parts])


def read_image(path: Path) -> np.ndarray:
    """An image as bytes of SHAPE: the centre with its ratio of sides, scaled bilinearly or by averaging."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        sys.exit("images are read with Pillow: pip install pillow")
    channels, height, width = SHAPE
    with Image.open(path) as file:
        if file.mode.startswith("I"):
            # Grey in 16 bits, of which Pillow would make white above 255.
            grey = (np.array(file).astype(np.int64) + 128) // 257
            file = Image.fromarray(grey.astype(np.uint8))
        image = file.convert("RGB")
    if image.size != (width, height):
        wide = min(max(int(image.height * width / height + 0.5), 1), image.width)
        tall = min(max(int(image.width * height / width + 0.5), 1), image.height)
        left, top = (image.width - wide) // 2, (image.height - tall) // 2
        image = image.crop((left, top, left + wide, top + tall))
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.array(image)
    if channels == 1:
        # The luma of sRGB, rounded.
        luma = pixels.astype(np.int64) @ (2126, 7152, 722)
        pixels = ((luma + 5000) // 10000).astype(np.uint8)[:, :, None]
    return pixels.transpose(2, 0, 1)


def read(path: Path) -> np.ndarray:
    """The samples of a file."""
    return np.load(path) if path.suffix == ".npy" else read_image(path)


def main() -> None:
    """Prints the most probable classes of each sample."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument(
        "samples", nargs="+", type=Path, metavar="FILE",
        help="images (PNG, JPEG), or arrays of samples (.npy)",
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
