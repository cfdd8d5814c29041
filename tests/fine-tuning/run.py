#!/usr/bin/env python3
"""Shows what fine-tuning is worth: a network that knows five classes of CIFAR-10 learns the other five from 500 samples.

    cargo build --release -p aggregator
    python3 tests/fine-tuning/run.py --cifar DIR --out FOLDER        about ten minutes on two cores

DIR holds CIFAR-10's binary files (data_batch_1.bin to data_batch_5.bin, test_batch.bin). FOLDER takes the samples, the pretrained
model and the runs; called again, the script goes on where it was.

1. A network of five convolutions learns the first five classes, on one machine, as `aggregator simulate` with one client.
2. `aggregator compare` has ten devices with 50 samples each learn the other five, with three paired seeds, from random
   parameters (all layers), from the pretrained model (all layers), and from the pretrained model with its extractor frozen
   (the head alone). The table has accuracy and bytes; seconds of training follow it.

Needs Python's standard library alone.
"""

import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# A record of CIFAR-10: a label and 32x32 pixels of three colours.
RECORD = 1 + 3 * 32 * 32
FIRST, OTHERS = range(0, 5), range(5, 10)
# What the ten devices have together: the same for every seed.
DEVICES, SAMPLES_EACH = 10, 50

DATA = """set = "safetensors", shape = [3, 32, 32], classes = 5, normalise = "channels", \
mean = [0.491, 0.482, 0.447], std = [0.247, 0.243, 0.262]"""

NETWORK = """
[{table}]
layers.extractor = [
    {{ conv = {{ out = 32, kernel = 3, padding = 1 }} }}, "batch-norm", "relu", {{ max-pool = 2 }},
    {{ conv = {{ out = 64, kernel = 3, padding = 1 }} }}, "batch-norm", "relu",
    {{ conv = {{ out = 64, kernel = 3, padding = 1 }} }}, "batch-norm", "relu", {{ max-pool = 2 }},
    {{ conv = {{ out = 128, kernel = 3, padding = 1 }} }}, "batch-norm", "relu",
    {{ conv = {{ out = 128, kernel = 3, padding = 1 }} }}, "batch-norm", "relu", "global-avg-pool", "flatten",
]
layers.head = [{{ linear = "classes" }}]
"""

PRETRAINING = f"""# A network for the first five classes of CIFAR-10.
data = {{ path = "first", clients = 1, {DATA} }}
augment = {{ random-shift = 4, horizontal-flip = 0.5 }}
run = {{ name = "pretrained", rounds = 8 }}
evaluate.batch = 250

[training]
epochs = 1
batch = 64
optimizer.sgd = {{ learning-rate = 0.05, momentum = 0.9, weight-decay = 5e-4 }}
schedule.cosine = {{}}
{NETWORK.format(table="model")}"""

EXPERIMENT = f"""title = "The other five classes of CIFAR-10 from {DEVICES * SAMPLES_EACH} samples on {DEVICES} devices"
about = "The pretrained model has seen none of these classes. Frozen: the extractor is sent once, and only the head is learned and sent."
seeds = {{seeds}}
baseline = "from-scratch"

[base]
data = {{{{ path = "others", clients = {DEVICES}, {DATA.replace("{", "{{").replace("}", "}}")} }}}}
run.rounds = 10
evaluate.batch = 250
training = {{{{ epochs = 5, batch = 10, optimizer.sgd = {{{{ learning-rate = 0.01, momentum = 0.9 }}}} }}}}

{NETWORK.format(table="base.model").replace("{", "{{").replace("}", "}}")}
[variants.from-scratch]

[variants.all-layers]
model = {{{{ from.file = "{{model}}", fresh = ["head.*"] }}}}

[variants.head-alone]
model = {{{{ from.file = "{{model}}", fresh = ["head.*"], freeze = ["extractor.*"] }}}}
training.optimizer.sgd.learning-rate = 0.1
"""


def records(paths: list[pathlib.Path], classes: range) -> list[tuple[int, bytes]]:
    """The labels, counted from the first of these classes, and the pixels of their samples."""
    found = []
    for path in paths:
        content = path.read_bytes()
        if len(content) % RECORD:
            sys.exit(f"{path} is no binary file of CIFAR-10: its length is no multiple of {RECORD}")
        for start in range(0, len(content), RECORD):
            label = content[start]
            if label in classes:
                found.append((label - classes.start, content[start + 1 : start + RECORD]))
    return found


def write(path: pathlib.Path, samples: list[tuple[int, bytes]]) -> None:
    """Writes tensors `x` (bytes) and `y` in the safetensors format."""
    pixels = b"".join(sample for _, sample in samples)
    labels = b"".join(struct.pack("<H", label) for label, _ in samples)
    end = len(pixels)
    header = {
        "x": {"dtype": "U8", "shape": [len(samples), 3, 32, 32], "data_offsets": [0, end]},
        "y": {"dtype": "U16", "shape": [len(samples)], "data_offsets": [end, end + len(labels)]},
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + pixels + labels)


def prepare(cifar: pathlib.Path, out: pathlib.Path) -> None:
    """Divides CIFAR-10 by classes; of the other five, few samples are left to train on."""
    train = [cifar / f"data_batch_{number}.bin" for number in range(1, 6)]
    test = [cifar / "test_batch.bin"]
    write(out / "first" / "train.safetensors", records(train, FIRST))
    write(out / "first" / "test.safetensors", records(test, FIRST))
    others = records(train, OTHERS)
    chosen = random.Random(20).sample(others, DEVICES * SAMPLES_EACH)
    write(out / "others" / "train.safetensors", chosen)
    write(out / "others" / "test.safetensors", records(test, OTHERS))


def run(*command: str | pathlib.Path, cwd: pathlib.Path) -> None:
    print("$", *command, flush=True)
    ended = subprocess.run(list(map(str, command)), cwd=cwd, check=False)
    if ended.returncode:
        sys.exit(f"{command[0]} ended with code {ended.returncode}")


def seconds(experiment: pathlib.Path) -> None:
    """Prints how long the rounds of each variant took, without tests of the model."""
    for variant in ("from-scratch", "all-layers", "head-alone"):
        runs = sorted(experiment.glob(f"runs/{variant}--*/rounds.jsonl"))
        rounds = [[json.loads(line)["seconds"] for line in run.read_text().splitlines()] for run in runs]
        print(f"{variant:14} {sum(map(sum, rounds)) / len(rounds):8.2f} s of training in a run of {len(rounds[0])} rounds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar", type=pathlib.Path, required=True, metavar="DIR", help="folder of CIFAR-10's binary files")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FOLDER", help="folder for samples, models and runs")
    parser.add_argument("--seeds", default="3", help="number of seeds, or a list as in [11, 12, 13] (default: 3)")
    parser.add_argument("--aggregator", type=pathlib.Path, default=ROOT / "target" / "release" / "aggregator", metavar="PROGRAM")
    arguments = parser.parse_args()
    out, program = arguments.out.resolve(), arguments.aggregator.resolve()
    if not program.exists():
        sys.exit(f"{program} is not there: build it with `cargo build --release -p aggregator`")
    if not (out / "others" / "test.safetensors").exists():
        prepare(arguments.cifar, out)
    (out / "pretraining.toml").write_text(PRETRAINING)
    model = out / "runs" / "pretrained" / "model.safetensors"
    if not model.exists():
        run(program, "simulate", "pretraining.toml", cwd=out)
    experiment = EXPERIMENT.format(seeds=arguments.seeds, model=model.as_posix())
    (out / "fine-tuning.toml").write_text(experiment)
    run(program, "compare", "fine-tuning.toml", cwd=out)
    seconds(out / "experiments" / "fine-tuning-reduced")


if __name__ == "__main__":
    main()
