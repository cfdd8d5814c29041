"""A trainer with PyTorch for the network of `own_trainer.rs`, through the package `federation`.

    own_trainer.py --convert OURS THEIRS    writes a model of the aggregator's as this network's state
    own_trainer.py --data DIR               trains on the images in DIR
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import numpy
import torch
from safetensors.torch import load_file
from torch import nn

import federation


def network() -> nn.Module:
    """A convolution and a linear layer."""
    return nn.Sequential(nn.Conv2d(1, 4, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 12 * 12, 10))


def convert(ours: str, theirs: str) -> None:
    """Writes our tensors, which are in the order of their names, under PyTorch's names, which are as well."""
    names = sorted(network().state_dict())
    tensors = sorted(load_file(ours).items())
    federation.save(dict(zip(names, (tensor for _, tensor in tensors), strict=True)), theirs)


def train(folder: pathlib.Path) -> None:
    """Does what it is asked."""
    pixels = numpy.fromfile(folder / "train-images-idx3-ubyte", dtype=numpy.uint8, offset=16)
    labels = numpy.fromfile(folder / "train-labels-idx1-ubyte", dtype=numpy.uint8, offset=8)
    x = torch.from_numpy(pixels.reshape(-1, 1, 28, 28).astype(numpy.float32) / 255)
    y = torch.from_numpy(labels.astype(numpy.int64))
    model = network()
    for task in federation.tasks(samples=len(y)):
        model.load_state_dict(task.state())
        optimizer = torch.optim.SGD(model.parameters(), lr=task.learning_rate)
        for _ in range(task.epochs):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        print("what a trainer prints is for people")
        task.finish(model.state_dict(), loss=loss.item(), steps=task.epochs)


if __name__ == "__main__":
    if sys.argv[1] == "--convert":
        convert(*sys.argv[2:])
    else:
        train(pathlib.Path(sys.argv[2]))
