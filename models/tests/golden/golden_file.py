"""Files of golden numbers: their tensors, the noise that goes in, writing and checking."""

import json
import math
import pathlib
import struct

import numpy
import torch

FOLDER = pathlib.Path(__file__).resolve().parent
# How far a recomputed number may be from the file's, relative to the tensor's largest.
CLOSE = {torch.float64: 1e-12, torch.float32: 1e-6, torch.int64: 0.0}
KINDS = {torch.float64: "F64", torch.float32: "F32", torch.int64: "I64"}


class Family:
    """The cases of one file."""

    def __init__(self, name: str) -> None:
        self.path = FOLDER / f"{name}.safetensors"
        self.tensors: dict[str, torch.Tensor] = {}
        self.settings: dict[str, str] = {"torch": torch.__version__.split("+")[0]}
        self.stream = 0

    def noise(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        """Noise that no other tensor of the family has."""
        self.stream += 1
        values = torch.from_numpy(noise(self.stream, math.prod(shape))).double()
        return (values * scale).reshape(shape)

    def add(self, case: str, settings: dict, **tensors: torch.Tensor) -> None:
        """Adds tensors to a case."""
        self.settings[case] = json.dumps(settings, sort_keys=True)
        for name, tensor in tensors.items():
            copy = tensor.detach().contiguous().clone()
            single = case.endswith("_f32") and copy.dtype == torch.float64
            self.tensors[f"{case}.{name}"] = copy.float() if single else copy

    def differentiate(self, case: str, settings: dict, function, **inputs: torch.Tensor) -> None:
        """Adds a case with inputs, output, an incoming gradient and the inputs' gradients."""
        leaves = {name: tensor.detach().clone() for name, tensor in inputs.items() if tensor is not None}
        wanted = [name for name, tensor in leaves.items() if tensor.dtype == torch.float64]
        for name in wanted:
            leaves[name].requires_grad_()
        output = function(**leaves)
        grad_output = self.noise(*output.shape)
        grads = torch.autograd.grad(output, [leaves[name] for name in wanted], grad_output)
        named = {f"grad_{name}": grad for name, grad in zip(wanted, grads, strict=True)}
        self.add(case, settings, **leaves, output=output, grad_output=grad_output, **named)


def noise(stream: int, count: int) -> numpy.ndarray:
    """`count` multiples of 2^-23 in [-1, 1), from a hash of the position, which any language can repeat.

    For each position i, with all arithmetic on 32 bits:

        x = (stream << 20) + i
        x ^= x >> 16;  x *= 0x7feb352d;  x ^= x >> 15;  x *= 0x846ca68b;  x ^= x >> 16
        value = (x >> 8) * 2^-23 - 1

    The first x >> 8 are 0, 6850960, 13701921 in stream 0 and 6630343, 10651407, 2068317 in stream 100.
    """
    x = (numpy.arange(count, dtype=numpy.uint64) + (stream << 20)).astype(numpy.uint32)
    x ^= x >> 16
    x *= numpy.uint32(0x7FEB352D)
    x ^= x >> 15
    x *= numpy.uint32(0x846CA68B)
    x ^= x >> 16
    return (x >> 8).astype(numpy.float32) * numpy.float32(2.0**-23) - numpy.float32(1.0)


def write(family: Family) -> None:
    """Writes the file, always with the same bytes: the library's own writer orders no metadata."""
    header: dict = {"__metadata__": dict(sorted(family.settings.items()))}
    content = b""
    for name, tensor in sorted(family.tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        start = len(content)
        content += tensor.numpy().astype(tensor.numpy().dtype.newbyteorder("<")).tobytes()
        kind, shape = KINDS[tensor.dtype], list(tensor.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, len(content)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    family.path.write_bytes(struct.pack("<Q", len(text)) + text + content)


def disagreements(family: Family) -> list[str]:
    """The tensors of an existing file that are not what is computed now, and why."""
    from safetensors import safe_open

    with safe_open(family.path, framework="pt") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}
        settings = {name: text for name, text in file.metadata().items() if name != "torch"}
    found = [f"{name}: in one only" for name in sorted(stored.keys() ^ family.tensors.keys())]
    if settings != {name: text for name, text in family.settings.items() if name != "torch"}:
        found.append("the cases' settings")
    for name in sorted(stored.keys() & family.tensors.keys()):
        old, new = stored[name], family.tensors[name]
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            found.append(f"{name}: {list(old.shape)} of {old.dtype}, now {list(new.shape)} of {new.dtype}")
        elif (apart := (old - new).abs().max()) > CLOSE[new.dtype] * max(1.0, float(new.abs().max())):
            found.append(f"{name}: {float(apart):.1e} apart")
    return found
