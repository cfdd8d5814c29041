"""One turn of PyTorch's side: trains one network in this process and prints one line of JSON.

The keys are those of `edge-client bench --json`. Eager mode, f32, the default memory layout,
`torch.optim.SGD` with its defaults, gradients set to none: what a user would write. `compare.py` runs it with
the environment's Python.
"""

import argparse
import json
import statistics
import time


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seconds", type=float, required=True, help="how long to measure, after warming up")
    parser.add_argument(
        "--started", type=int, required=True, help="CLOCK_MONOTONIC at the process's start, in ns"
    )
    arguments = parser.parse_args()

    # Part of the time to the first step, so not at the top.
    import torch

    import networks

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    device = torch.device(arguments.device)
    network = networks.build(arguments.model).to(device)
    x, y = (part.to(device) for part in networks.batch(arguments.model, arguments.batch))
    loss_of = torch.nn.CrossEntropyLoss()
    # Small, so that noise never diverges.
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-3)

    def step() -> float:
        start = time.perf_counter()
        optimiser.zero_grad(set_to_none=True)
        loss_of(network(x), y).backward()
        optimiser.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    step()
    first = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - arguments.started
    repeat(step, at_least=3, seconds=arguments.seconds / 4)
    median = statistics.median(repeat(step, at_least=5, seconds=arguments.seconds))
    result = {
        "model": arguments.model,
        "batch": arguments.batch,
        "threads": torch.get_num_threads(),
        "ms_per_step": median * 1e3,
        "samples_per_s": arguments.batch / median,
        "peak_mb": peak_mb(),
        "first_step_ms": first / 1e6,
        "torch": torch.__version__,
    }
    print(json.dumps(result))


def repeat(step, at_least: int, seconds: float) -> list[float]:
    """The durations of steps made until the time is up."""
    durations, end = [], time.perf_counter() + seconds
    while len(durations) < at_least or time.perf_counter() < end:
        durations.append(step())
    return durations


def peak_mb() -> float:
    """The most memory this process has had resident, in 10^6 bytes."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6


if __name__ == "__main__":
    main()
