"""A trainer with PyTorch: a small convolutional network on images in the files of MNIST.

    python3 pytorch_digits.py --init init.safetensors                      writes the initial model
    edge-client join TICKET --trainer 'python3 pytorch_digits.py --data DIR'
    aggregator simulate --set model.parameters=init.safetensors \\
        --set simulation.trainer='python3 pytorch_digits.py --data DIR' \\
        --set evaluate.command='python3 pytorch_digits.py --data DIR'

In a simulation client k of n has every n-th image, from the k-th on.
"""

import argparse
import gzip
import pathlib

import numpy
import torch
from torch import nn

import federation


def network() -> nn.Module:
    """The network that all devices train."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 10),
    )


def images(folder: pathlib.Path, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images in [0, 1] and their labels."""
    pixels = numpy.frombuffer(content(folder / f"{split}-images-idx3-ubyte"), numpy.uint8, offset=16)
    labels = numpy.frombuffer(content(folder / f"{split}-labels-idx1-ubyte"), numpy.uint8, offset=8)
    x = torch.from_numpy(pixels.reshape(-1, 1, 28, 28).astype(numpy.float32) / 255)
    return x, torch.from_numpy(labels.astype(numpy.int64))


def content(file: pathlib.Path) -> bytes:
    """The bytes of a file, which may be compressed."""
    return file.read_bytes() if file.exists() else gzip.decompress(pathlib.Path(f"{file}.gz").read_bytes())


def share(whole: tuple[torch.Tensor, torch.Tensor], client: int, clients: int) -> tuple[torch.Tensor, ...]:
    """What one client of a simulation has."""
    return tuple(part[client::clients] for part in whole)


def main() -> None:
    """Writes the initial model, or does what it is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, help="the folder of the images")
    parser.add_argument("--init", type=pathlib.Path, help="write the initial model to this file, and end")
    parser.add_argument("--samples", type=int, default=None, help="use only so many training images")
    given = parser.parse_args()
    torch.manual_seed(1)
    model = network()
    if given.init:
        federation.save(model.state_dict(), given.init)
        return
    torch.set_num_threads(1)
    x, y = images(given.data, "train")
    train = (x[: given.samples], y[: given.samples])
    tests = images(given.data, "t10k")
    loss_of = nn.CrossEntropyLoss()
    for task in federation.tasks(samples=lambda client, clients: len(share(train, client, clients)[0])):
        model.load_state_dict(task.state())
        if task.is_test:
            with torch.no_grad():
                logits = model(tests[0])
            right = (logits.argmax(1) == tests[1]).float().mean().item()
            task.tested(samples=len(tests[1]), loss=loss_of(logits, tests[1]).item(), accuracy=right)
            continue
        x, y = share(train, task.client, task.clients)
        batch = task.batch or len(y)
        draws = torch.Generator().manual_seed(task.seed)
        optimizer = torch.optim.SGD(model.parameters(), lr=task.learning_rate)
        losses = []
        for _ in range(task.epochs):
            for chosen in torch.randperm(len(y), generator=draws).split(batch):
                optimizer.zero_grad()
                loss = loss_of(model(x[chosen]), y[chosen])
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            if not task.progress(len(losses)):
                break
        task.finish(model.state_dict(), loss=sum(losses) / len(losses), steps=len(losses))


if __name__ == "__main__":
    main()
