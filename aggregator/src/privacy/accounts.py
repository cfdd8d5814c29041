"""Prints the epsilons of the tests beside this file. Needs dp-accounting 0.6.0 from PyPI: `pip install dp-accounting==0.6.0`."""

import math

from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.special import log_ndtr


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
    print(f"z = {noise}, q = {rate:g}, {rounds} rounds, delta = {delta:g}: ", end="")
    print(f"Renyi {renyi(noise, rate, rounds, delta):.6f}", end="")
    for interval in [1e-4, 1e-5]:
        print(f", losses by {interval:g} {losses(noise, rate, rounds, delta, interval):.7f}", end="", flush=True)
    print(f", closed form {closed_form(noise, rounds, delta):.10f}" if rate == 1.0 else "")
