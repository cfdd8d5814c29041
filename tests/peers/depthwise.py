"""Depthwise convolutions and little else: a network that is in no registry, as a model's file for `edge-client bench`."""

import json
import math
import struct

import environment

CHANNELS, SIDE, LAYERS, CLASSES = 96, 48, 6, 10
INPUT = (CHANNELS, SIDE, SIDE)
# Not in the environment's folder, which is made anew now and then.
FILE = environment.ROOT / "target" / "depthwise.safetensors"


def architecture() -> dict:
    """The network in our stored form."""
    conv = {"out": CHANNELS, "kernel": 3, "stride": 1, "padding": 1, "groups": CHANNELS, "bias": False}
    return {
        "name": "depthwise",
        "input": INPUT,
        "classes": CLASSES,
        "extractor": [
            *({"grouped-conv": {"name": f"depthwise{number}", **conv}} for number in range(LAYERS)),
            "global-avg-pool",
        ],
        "projection": [],
        "head": [{"linear": {"name": "fc", "out": CLASSES, "bias": True}}],
    }


def write() -> None:
    """Writes the file, with zeros: what is measured draws its own values."""
    shapes = {f"extractor.depthwise{number}.weight": [CHANNELS, 1, 3, 3] for number in range(LAYERS)}
    shapes |= {"head.fc.weight": [CLASSES, CHANNELS], "head.fc.bias": [CLASSES]}
    header, end = {"__metadata__": {"architecture": json.dumps(architecture())}}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))
