#!/usr/bin/env python3
"""Names and shapes of the tensors of torchvision's and timm's networks, in their order: `names.txt`.

    python3 models/tests/golden/names.py        with torch, torchvision and timm installed

Made with torchvision 0.29.2 and timm 1.0.31. A line has our name of the network, a tensor and its shape. The counters
`num_batches_tracked` of batch normalisation are left out: nothing computes with them.
"""

import pathlib

import timm
import torchvision

MODELS = {
    "mobilenet-v2": torchvision.models.mobilenet_v2,
    "mobilenet-v3-small": torchvision.models.mobilenet_v3_small,
    "resnet-18-imagenet": torchvision.models.resnet18,
    "resnet-50-imagenet": torchvision.models.resnet50,
    "vgg-16-imagenet": torchvision.models.vgg16,
    "vit-tiny": lambda: timm.create_model("vit_tiny_patch16_224"),
}


def main() -> None:
    lines = []
    for model, build in MODELS.items():
        for name, tensor in build().state_dict().items():
            if not name.endswith("num_batches_tracked"):
                shape = "x".join(str(size) for size in tensor.shape)
                lines.append(f"{model} {name} {shape}\n")
    (pathlib.Path(__file__).resolve().parent / "names.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
