"""The trainer's side of ``edge-client join --trainer`` and of ``simulation.trainer``.

A trainer is a program that reads its own samples and trains a network of any framework::

    for task in federation.tasks(samples=len(data)):
        model.load_state_dict(task.state())
        if task.is_test:
            loss, accuracy = evaluate(model)
            task.tested(samples=len(tests), loss=loss, accuracy=accuracy)
        else:
            loss = train(model, epochs=task.epochs, rate=task.learning_rate)
            task.finish(model.state_dict(), loss=loss)

What the program prints goes to standard error: standard output belongs to the answers.
"""

from __future__ import annotations

import json
import math
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

State = dict[str, Any]


class Task:
    """One request: to train a model, or to test one."""

    def __init__(self, request: dict[str, Any], is_test: bool, link: _Link) -> None:
        self._request, self._link = request, link
        self._answered = False
        #: Whether the model is to be tested, and not trained.
        self.is_test = is_test
        #: The round, counted from 1.
        self.round: int = request["round"]
        #: The number of the client in a simulation, counted from 0; on a device 0 of 1.
        self.client: int = request.get("client", 0)
        #: The number of clients in a simulation.
        self.clients: int = request.get("clients", 1)
        #: The file of the model.
        self.model: str = request["model"]
        #: For all that is drawn: the same in every repetition of the run.
        self.seed: int = request.get("seed", 0)
        #: The run's ``[training]``, with the names of its configuration.
        self.training: dict[str, Any] = request.get("training", {})
        #: The learning rate in this round, by the run's schedule.
        self.learning_rate: float = request.get("learning_rate", 0.0)
        #: Local epochs.
        self.epochs: int = self.training.get("epochs", 1)
        #: Samples of a batch; 0 is all of them.
        self.batch: int = self.training.get("batch", 0)

    def state(self) -> State:
        """The model as tensors of PyTorch, for ``load_state_dict``."""
        from safetensors.torch import load_file

        return load_file(self.model)

    def arrays(self) -> State:
        """The model as arrays of numpy."""
        from safetensors.numpy import load_file

        return load_file(self.model)

    @property
    def cancelled(self) -> bool:
        """Whether the work is no longer wanted."""
        return self._link.cancelled.is_set()

    def progress(self, done: int, total: int = 0) -> bool:
        """Tells how far the work is. ``False`` if it is no longer wanted: break then."""
        self._link.say({"progress": {"done": int(done), "total": int(total)}})
        return not self.cancelled

    def finish(self, state: Mapping[str, Any], *, loss: float, steps: int = 1, accuracy: float | None = None) -> None:
        """Gives back the trained model: tensors of PyTorch or arrays of numpy.

        ``loss`` is the mean training loss, ``steps`` the number of the optimiser's steps, and ``accuracy`` the
        share of the training samples that were classified correctly, if that is known.
        """
        if self.is_test:
            raise ValueError("the task is a test: answer with tested()")
        if not math.isfinite(loss):
            return self.fail(f"the training diverged: its loss is {loss}")
        if not self.cancelled:
            save(state, self._request["out"])
        metrics = {} if accuracy is None else {"accuracy": float(accuracy)}
        self._answer({"finished": {"loss": float(loss), "steps": int(steps), "metrics": metrics}})

    def tested(self, *, samples: int, loss: float, accuracy: float | None = None) -> None:
        """Tells what the model was found to have on the test samples."""
        if not self.is_test:
            raise ValueError("the task is to train: answer with finish()")
        if not math.isfinite(loss):
            return self.fail(f"the model's loss is {loss}")
        found = {"samples": int(samples), "loss": float(loss)}
        self._answer({"tested": found if accuracy is None else found | {"accuracy": float(accuracy)}})

    def fail(self, reason: str) -> None:
        """Tells why this task is not possible. Its device is without this round, and asked again in the next."""
        self._answer({"failed": {"reason": reason}})

    def _answer(self, answer: dict[str, Any]) -> None:
        if self._answered:
            raise ValueError("the task was answered already")
        self._answered = True
        self._link.say({"cancelled": {}} if self.cancelled else answer)

    def _close(self) -> None:
        if not self._answered:
            self.fail("the program went on to the next task without finish(), tested() or fail()")


def tasks(samples: int | Callable[[int, int], int]) -> Iterator[Task]:
    """The tasks of this process, until its client ends.

    ``samples`` is the number of training samples, or a function that gives it for a client of a simulation: for
    its number, counted from 0, and the number of clients.
    """
    link = _Link()
    while (request := link.next()) is not None:
        kind, content = next(iter(request.items()))
        if kind == "describe":
            who = content.get("client", 0), content.get("clients", 1)
            count = samples(*who) if callable(samples) else samples
            link.say({"described": {"samples": int(count)}})
        elif kind in ("train", "test"):
            task = Task(content, kind == "test", link)
            yield task
            task._close()
        else:
            link.say({"failed": {"reason": f"this trainer does not know the request {kind!r}"}})


def save(state: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes tensors of PyTorch or arrays of numpy as safetensors."""
    if any(hasattr(value, "detach") for value in state.values()):
        from safetensors.torch import save_file

        # Copies: tensors that share their memory are refused by the format.
        save_file({name: value.detach().cpu().contiguous().clone() for name, value in state.items()}, path)
    else:
        import numpy
        from safetensors.numpy import save_file

        save_file({name: numpy.asarray(value, order="C") for name, value in state.items()}, path)


class _Link:
    """The lines to and from the client."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self._requests: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._out = self._take_stdout()
        self._in = self._take_stdin()
        threading.Thread(target=self._read, daemon=True).start()

    @staticmethod
    def _take_stdout() -> TextIO:
        out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        # What is printed is for people, also what was printed before and is not written yet.
        os.dup2(2, 1)
        sys.stdout.flush()
        return out

    @staticmethod
    def _take_stdin() -> TextIO:
        # Processes that the program forks close their `sys.stdin`, which must not be the one that a thread reads.
        requests = os.fdopen(os.dup(0), encoding="utf-8")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        return requests

    def _read(self) -> None:
        for line in self._in:
            request = json.loads(line)
            if "cancel" in request:
                self.cancelled.set()
            else:
                # Here, and not when it is taken up: its cancellation may come before that.
                self.cancelled.clear()
                self._requests.put(request)
        # The client is gone.
        self.cancelled.set()
        self._requests.put(None)

    def next(self) -> dict[str, Any] | None:
        return self._requests.get()

    def say(self, answer: dict[str, Any]) -> None:
        try:
            self._out.write(json.dumps(answer, allow_nan=False) + "\n")
            self._out.flush()
        except BrokenPipeError:
            # Nobody wants the work, and an error would hide that.
            os._exit(0)
