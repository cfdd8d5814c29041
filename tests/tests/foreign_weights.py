"""Weights of another library's networks, and what these say of 64 images.

    python3 foreign_weights.py LIBRARY FOLDER

For each network of the library, drawn at random with running statistics of their own: `NAME.safetensors`, its `state_dict`, and
`NAME-answers.safetensors` with `images` and `logits`. Prints the names, one a line.
"""

import pathlib
import shutil
import sys
import tempfile

import torch
from safetensors.torch import save_file


def torchvision() -> dict:
    import torchvision.models as models

    return {
        "resnet-18-imagenet": (models.resnet18, 64),
        "resnet-50-imagenet": (models.resnet50, 64),
        "mobilenet-v2": (models.mobilenet_v2, 64),
        "mobilenet-v3-small": (models.mobilenet_v3_small, 64),
        "vgg-16-imagenet": (lambda: models.vgg16(num_classes=1000), 32),
    }


def timm() -> dict:
    import timm

    return {"vit-tiny": (lambda: timm.create_model("vit_tiny_patch16_224"), 224)}


def transformers() -> dict:
    from transformers import ResNetConfig, ResNetForImageClassification, ViTConfig, ViTForImageClassification

    vit = ViTConfig(
        hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768,
        layer_norm_eps=1e-6, image_size=64, num_labels=1000,
    )  # fmt: skip
    resnet_18 = ResNetConfig(
        hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=1000
    )
    return {
        "vit-tiny": (lambda: Logits(ViTForImageClassification(vit)), 64),
        "resnet-18-imagenet": (lambda: Logits(ResNetForImageClassification(resnet_18)), 64),
        "resnet-50-imagenet": (lambda: Logits(ResNetForImageClassification(ResNetConfig(num_labels=1000))), 64),
    }


class Logits(torch.nn.Module):
    """A network of transformers, which answers with more than logits, and whose files have other names than its tensors."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x).logits

    def save(self, file: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.network.save_pretrained(folder)
            shutil.move(pathlib.Path(folder) / "model.safetensors", file)


def main() -> None:
    library, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.manual_seed(11)
    for name, (build, side) in {"torchvision": torchvision, "timm": timm, "transformers": transformers}[library]().items():
        network = build().eval()
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.uniform_(-0.5, 0.5)
                module.running_var.uniform_(0.5, 2.0)
        images = torch.rand(64, 3, side, side)
        if name == "vgg-16-imagenet":
            # There, any image is brought to 7x7 before the head; ours has the head of 32x32 images.
            network.avgpool = torch.nn.Identity()
            network.classifier[0] = torch.nn.Linear(512, 4096)
        with torch.no_grad():
            logits = network(images)
        file = folder / f"{name}.safetensors"
        if isinstance(network, Logits):
            network.save(file)
        else:
            save_file({key: value.contiguous() for key, value in network.state_dict().items()}, file)
        save_file({"images": images, "logits": logits}, folder / f"{name}-answers.safetensors")
        print(name)


if __name__ == "__main__":
    main()
