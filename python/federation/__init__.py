"""Federated learning with ``edge-client`` and ``aggregator``: trainers of your own, runs and their results.

for task in federation.tasks(samples=len(data)): ...      a trainer, see ``federation.trainer``
run = federation.simulate(settings={"run.rounds": 5})     a run, see ``federation.run``
run.rounds["accuracy"].plot()
"""

from .run import FederationError, Run, Server, compare, program, runs, serve, simulate
from .trainer import Task, save, tasks

__all__ = [
    "FederationError",
    "Run",
    "Server",
    "Task",
    "compare",
    "program",
    "runs",
    "save",
    "serve",
    "simulate",
    "tasks",
]
__version__ = "0.1.0"
