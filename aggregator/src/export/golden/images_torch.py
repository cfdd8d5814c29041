"""lenet-5, as a module of PyTorch.

    python3 network.py IMAGE.png ...          the most probable class of each image
    python3 network.py SAMPLES.npy            the same for an array of samples

In a program:

    from network import load, predict, prepare

    network = load()
    logits = network(prepare(samples))            # [n, 1, 32, 30] to [n, 2]
    answers = predict(network, samples)           # probabilities of the classes, a part at a time

It needs torch, numpy and safetensors; images take Pillow, too.
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
SHAPE = (1, 32, 30)

# Of the training data, by channel.
MEAN = (0.1307,)
DEVIATION = (0.3081,)

# The classes in the order of the logits.
CLASSES = ("cat \"Tom\"", "dog\\\n\u202e")

# Samples that `predict` passes through the network together.
BATCH = 64


class Network(nn.Module):
    """lenet-5: 61,026 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.extractor = layers(
            conv1=nn.Conv2d(1, 6, 5, padding=2),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(6, 16, 5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten1=nn.Flatten(),
        )
        self.head = layers(
            fc1=nn.Linear(400, 120),
            relu1=nn.ReLU(),
            fc2=nn.Linear(120, 84),
            relu2=nn.ReLU(),
            fc3=nn.Linear(84, 2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits, [n, 2], of samples that `prepare` gives, [n, 1, 28, 28]."""
        return self.head(self.extractor(x))


def layers(**modules: nn.Module) -> nn.Sequential:
    """Modules one after the other, each with its name."""
    return nn.Sequential(OrderedDict(modules))


def load(path: Path = WEIGHTS) -> Network:
    """The network with its weights, in evaluation mode."""
    network = Network()
    network.load_state_dict(load_file(path), strict=True)
    return network.eval()


def prepare(samples: np.ndarray | torch.Tensor) -> torch.Tensor:
    """Samples [n, 1, 32, 30], or one of these, with or without the axis of the channel, as the network
    takes them, [n, 1, 28, 28].

    Bytes become numbers from 0 to 1; other numbers are taken as they are. The centre of 28 x 28 pixels is
    cut out of 32 x 30. Each channel is normalised by MEAN and DEVIATION.
    """
    x = torch.as_tensor(samples)
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    if not {SHAPE, SHAPE[1:]} & {tuple(x.shape), tuple(x.shape[1:])}:
        raise ValueError(f"samples are [n, 1, 32, 30], and not {list(x.shape)}")
    x = x.reshape(-1, *SHAPE)
    x = x[:, :, 2:30, 1:29]
    mean, deviation = (torch.tensor(of, device=x.device).reshape(-1, 1, 1) for of in (MEAN, DEVIATION))
    x = (x - mean) / deviation
    return x


@torch.inference_mode()
def predict(network: Network, samples: np.ndarray | torch.Tensor) -> np.ndarray:
    """The probabilities of the classes, [n, 2], for samples as they are before `prepare`."""
    device = next(network.parameters()).device
    parts = prepare(samples).to(device).split(BATCH)
    return torch.cat([network(part).softmax(dim=-1) for part in parts]).cpu().numpy()


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
