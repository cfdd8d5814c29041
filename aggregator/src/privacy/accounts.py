"""Compares the epsilons of `aggregator privacy spent` with those of dp-accounting and of scipy; exits with 1 where one differs.

    pip install dp-accounting==0.6.0
    python aggregator/src/privacy/accounts.py [PROGRAM]

PROGRAM is `aggregator` by default. The golden numbers of the tests beside this file are those of the columns.
"""

import json
import math
import subprocess
import sys

from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.special import log_ndtr

# The greatest difference: relative, and absolute where epsilon is below 1, since the program counts what its sums cut off against the run.
MOST = 1e-6


def renyi(noise, rate, rounds, delta):
    event = dp_event.GaussianDpEvent(noise)
    if rate < 1.0:
        event = dp_event.PoissonSampledDpEvent(rate, event)
    account = RdpAccountant()
    account.compose(event, rounds)
    return account.get_epsilon(delta)


def losses(noise, rate, rounds, delta, interval):
    one = privacy_loss_distribution.from_gaussian_mechanism(
        noise, value_discretization_interval=interval, sampling_prob=rate
    )
    return one.self_compose(rounds).get_epsilon_for_delta(delta)


def closed_form(noise, rounds, delta):
    mu = math.sqrt(rounds) / noise

    def above(epsilon):
        first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        return math.exp(first) - math.exp(second) - delta

    return brentq(above, 0, 1e4, xtol=1e-14, rtol=1e-14)


def ours(noise, rate, rounds, delta):
    asked = {"noise": noise, "rate": rate, "rounds": rounds, "delta": delta}
    options = [part for key, value in asked.items() for part in (f"--{key}", repr(value))]
    program = sys.argv[1] if len(sys.argv) > 1 else "aggregator"
    said = subprocess.run([program, "privacy", "spent", "--json", *options], check=True, capture_output=True)
    return json.loads(said.stdout)


def main():
    worst = 0.0
    for noise, rate, rounds, delta in [
        (1.0, 0.01, 1000, 1e-5),
        (1.1, 0.01, 10_000, 1e-5),
        (1.0, 0.1, 100, 1e-5),
        (2.0, 0.05, 500, 1e-6),
        (0.8, 100 / 342_477, 1600, 1e-6),
        (5.0, 1.0, 20, 1e-5),
        (5.0, 1.0, 10, 1e-6),
        (7.0, 1.0, 50, 1e-5),
        (1.0, 1.0, 1, 1e-5),
        (0.5, 1.0, 1, 1e-5),
        (100.0, 1.0, 1, 1e-4),
    ]:
        found = ours(noise, rate, rounds, delta)
        # dp-accounting knows no discrete noise: what that adds is left out on both sides.
        epsilon = found["epsilon"] - found["rounded"]
        compared = [("Renyi", found["renyi"], renyi(noise, rate, rounds, delta))]
        if rate < 1.0:
            compared.append(("losses", epsilon, losses(noise, rate, rounds, delta, found["interval"])))
        else:
            compared.append(("closed form", epsilon, closed_form(noise, rounds, delta)))
        shown = []
        for name, here, there in compared:
            apart = abs(here - there) / max(there, 1.0)
            worst = max(worst, apart)
            shown.append(f"{name} {here:.7f} and {there:.7f}{'' if apart <= MOST else ' DIFFER'}")
        print(f"z = {noise}, q = {rate:g}, {rounds} rounds, delta = {delta:g}: {', '.join(shown)}", flush=True)
    print(f"largest difference {worst:.1e}, at most {MOST:g}")
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
