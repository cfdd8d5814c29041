#!/usr/bin/env python3
"""Trains the same networks with PyTorch and with `edge-client bench`, in turns, and prints one table.

    cargo build --release -p edge-client
    python3 tests/peers/compare.py                                   everything, at 1 and 2 threads
    python3 tests/peers/compare.py --models mlp-2nn lenet-5 --batches 10 --threads 1 --turns 3
    python3 tests/peers/compare.py --only pytorch                    without our program
    python3 tests/peers/compare.py --device cuda --python python3 --binary target/cuda/build/release/edge-client
                                                                     on a GPU, with a PyTorch that has CUDA

The first run makes a virtual environment with PyTorch under `target/peers/` (`environment.py`: how, and which
build of PyTorch it is). This needs Python 3.11, Linux, and a machine with nothing else to do.

How it measures
  A turn is one process that trains one network on one batch of noise with plain SGD: forward, cross-entropy,
  backward, update. It warms up, then reports the median duration of a step. The turns of the two sides
  alternate: PyTorch, ours, PyTorch, ours, over all rows, and then again, so that whatever else the machine
  does meets both.

What the columns say
  ms         milliseconds per step, the median of the turns' medians
  ratio      PyTorch's ms over ours, so above 1 where ours is faster: the median of the ratios of turns that
             followed each other
  range      the least and the greatest of those ratios
  MB         the most memory the training process has had resident (VmHWM: program, libraries and all), in
             10^6 bytes, the median of the turns
  first ms   from the start of the process to the end of its first step, the median of the turns. PyTorch's
             is counted from just before the process is started; ours is what `edge-client bench` reports

What is trained
  The networks of `models/src/architecture`, whose counts of parameters are checked (`networks.py`). PyTorch
  runs in eager mode with its default layout and its default SGD. `lenet-5` has 1x28x28 samples, `lenet-5-rgb`
  is the same network on 3x32x32, its shape in our registry. `char-lstm` reads samples of 80 characters, `word-lstm`
  of 10 words, `text-transformer` of 128 characters; `resnet-50` is the one for 3x32x32. `depthwise` has six depthwise
  3x3 convolutions in a row over 96 channels of 48x48 pixels, and what makes classes of them.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

import depthwise
import environment

SIDES = ("pytorch", "ours")
# What is reported of a turn by both sides.
FIGURES = ("ms_per_step", "peak_mb", "first_step_ms")
# A turn that takes longer hangs.
PATIENCE = 600


class Failure(Exception):
    """A turn went wrong; the text says why and what to do."""


@dataclass(frozen=True)
class Model:
    """A row's network: our arguments for it and the batch sizes it is compared at."""

    ours: tuple[str, ...]
    batches: tuple[int, ...]


MODELS = {
    "mlp-2nn": Model(("--model", "mlp-2nn"), (10, 64)),
    "lenet-5": Model(("--model", "lenet-5", "--input", "1x28x28"), (10, 64)),
    "lenet-5-rgb": Model(("--model", "lenet-5"), (10, 64)),
    "cnn-mnist": Model(("--model", "cnn-mnist"), (10, 64)),
    "resnet-9": Model(("--model", "resnet-9"), (64,)),
    "char-lstm": Model(("--model", "char-lstm"), (10,)),
    "word-lstm": Model(("--model", "word-lstm"), (10,)),
    "mobilenet-v2": Model(("--model", "mobilenet-v2", "--input", "3x96x96"), (32,)),
    "resnet-50": Model(("--model", "resnet-50"), (32,)),
    "vit-tiny": Model(("--model", "vit-tiny", "--input", "3x64x64"), (32,)),
    "text-transformer": Model(("--model", "text-transformer", "--input", "128"), (16,)),
    "depthwise": Model(("--model", str(depthwise.FILE)), (32,)),
}


@dataclass
class Row:
    """One line of the table, and what its turns reported."""

    model: str
    batch: int
    threads: int
    turns: dict[str, list[dict]] = field(default_factory=lambda: {side: [] for side in SIDES})

    def median(self, side: str, figure: str) -> float | None:
        values = [turn[figure] for turn in self.turns[side] if turn.get(figure) is not None]
        return statistics.median(values) if values else None

    def ratios(self) -> list[float]:
        pairs = zip(self.turns["pytorch"], self.turns["ours"], strict=False)
        return [pytorch["ms_per_step"] / ours["ms_per_step"] for pytorch, ours in pairs]


def main() -> None:
    arguments = parse()
    rows = [
        Row(model, batch, threads)
        for model in arguments.models
        for batch in arguments.batches or MODELS[model].batches
        for threads in arguments.threads
    ]
    sides = [arguments.only] if arguments.only else SIDES
    if "ours" in sides and not arguments.binary.is_file():
        raise Failure(f"{arguments.binary} is not there; build it: cargo build --release -p edge-client")
    if "depthwise" in arguments.models:
        depthwise.write()
    python = (arguments.python or environment.interpreter()) if "pytorch" in sides else None
    for turn in range(arguments.turns):
        for row in rows:
            for side in sides:
                environment.say(f"turn {turn + 1} of {arguments.turns}: {row.model}, batch {row.batch}, "
                                f"{row.threads} threads, {side}")  # fmt: skip
                if side == "pytorch":
                    report = pytorch_turn(python, row, arguments.device, arguments.seconds)
                else:
                    report = our_turn(arguments.binary, row, arguments.device)
                row.turns[side].append(report)
    print(as_json(rows) if arguments.json else table(rows))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    binary = environment.ROOT / "target" / "release" / "edge-client"
    add(
        "--models",
        nargs="+",
        choices=list(MODELS),
        default=list(MODELS),
        metavar="MODEL",
        help=", ".join(MODELS),
    )
    add(
        "--batches",
        nargs="+",
        type=positive(int),
        help="instead of each model's own: 10 and 64, or one of them",
    )
    add("--threads", nargs="+", type=positive(int), default=[1, 2])
    add("--turns", type=positive(int), default=5, help="of either side, per row (5)")
    add(
        "--seconds",
        type=positive(float),
        default=2.0,
        help="measured per turn of PyTorch's, after warming up (2)",
    )
    add("--binary", type=pathlib.Path, default=binary, help="our program (target/release/edge-client)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where both sides train (cpu)")
    add(
        "--python",
        type=pathlib.Path,
        help="an interpreter that has PyTorch, for its build for CUDA (the environment's, which has the CPU's)",
    )
    add("--only", choices=SIDES, help="measure one side alone")
    add("--json", action="store_true", help="a JSON array of rows with every turn, instead of the table")
    return parser.parse_args()


def positive(kind: type):
    """A parser of numbers above zero."""

    def parse_one(text: str):
        value = kind(text)
        if value <= 0:
            raise ValueError
        return value

    parse_one.__name__ = f"positive {kind.__name__}"
    return parse_one


def pytorch_turn(python: pathlib.Path, row: Row, device: str, seconds: float) -> dict:
    script = pathlib.Path(__file__).with_name("pytorch_turn.py")
    options = {"model": row.model, "batch": row.batch, "threads": row.threads, "device": device, "seconds": seconds}
    options["started"] = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return turn([python, script] + [f"--{name}={value}" for name, value in options.items()], row)


def our_turn(binary: pathlib.Path, row: Row, device: str) -> dict:
    counts = ["--batch", row.batch, "--threads", row.threads]
    options = [*counts, "--device", device, "--json"]
    return turn([binary.resolve(), "bench", *MODELS[row.model].ours, *options], row)


def turn(command: list, row: Row) -> dict:
    """Runs one turn and gives its one line of JSON, checked to be about this row."""
    command = [str(word) for word in command]
    shown = " ".join(command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"no answer after {PATIENCE} s from `{shown}`") from error
    except OSError as error:
        raise Failure(f"cannot run `{shown}`: {error}") from error
    if done.returncode != 0:
        raise Failure(f"`{shown}` ended with exit code {done.returncode}:\n{done.stderr.strip()}")
    try:
        (report,) = map(json.loads, done.stdout.splitlines())
        found = report["batch"], report["threads"]
        numbers = [report["ms_per_step"], report["peak_mb"]]
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(
            f"`{shown}` gave not one line of JSON with the keys of a turn:\n{done.stdout}"
        ) from error
    if found != (row.batch, row.threads):
        raise Failure(f"`{shown}` measured batch and threads {found}, not {(row.batch, row.threads)}")
    if not all(isinstance(number, (int, float)) and number > 0 for number in numbers):
        raise Failure(f"`{shown}` gave a time or a peak that is not above 0:\n{done.stdout}")
    return report


def table(rows: list[Row]) -> str:
    header = ["model", "batch", "threads", "PyTorch ms", "ours ms", "ratio", "range",
              "PyTorch MB", "ours MB", "PyTorch first ms", "ours first ms"]  # fmt: skip
    lines = [header]
    for row in rows:
        ratios = row.ratios()
        ratio = (
            [f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f}-{max(ratios):.2f}"]
            if ratios
            else ["-", "-"]
        )
        step, peak, first = [[figure_text(row.median(side, figure)) for side in SIDES] for figure in FIGURES]
        lines.append([row.model, str(row.batch), str(row.threads), *step, *ratio, *peak, *first])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        [lines[i][0].ljust(widths[0]), *map(str.rjust, lines[i][1:], widths[1:])] for i in range(len(lines))
    ]
    return "\n".join("  ".join(line) for line in aligned)


def figure_text(value: float | None) -> str:
    """Three digits that matter."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def as_json(rows: list[Row]) -> str:
    def one(row: Row) -> dict:
        ratios = row.ratios()
        medians = {side: {figure: row.median(side, figure) for figure in FIGURES} for side in SIDES}
        settings = {"model": row.model, "batch": row.batch, "threads": row.threads}
        return {
            **settings,
            "ratio": statistics.median(ratios) if ratios else None,
            **medians,
            "turns": row.turns,
        }

    return json.dumps([one(row) for row in rows], indent=1)


if __name__ == "__main__":
    try:
        main()
    except (Failure, environment.EnvironmentFailure) as failure:
        sys.exit(f"compare.py: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
