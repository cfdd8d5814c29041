"""Prints the epsilons of the tests in account.rs. Needs dp-accounting 0.6.0 from PyPI: `pip install dp-accounting==0.6.0`."""

from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

for noise, rate, rounds, delta in [
    (1.0, 0.01, 1000, 1e-5),
    (1.1, 0.01, 10_000, 1e-5),
    (1.0, 0.1, 100, 1e-5),
    (2.0, 0.05, 500, 1e-6),
    (0.8, 100 / 342_477, 1600, 1e-6),
    (5.0, 1.0, 20, 1e-5),
    (5.0, 1.0, 10, 1e-6),
    (7.0, 1.0, 50, 1e-5),
]:
    event = dp_event.GaussianDpEvent(noise)
    if rate < 1.0:
        event = dp_event.PoissonSampledDpEvent(rate, event)
    account = RdpAccountant()
    account.compose(event, rounds)
    print(f"z = {noise}, q = {rate:g}, {rounds} rounds, delta = {delta:g}: {account.get_epsilon(delta):.6f}")
