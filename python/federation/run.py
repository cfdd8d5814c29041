"""Runs: begun, found and read. All of it is in files, and the programs do the work."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import shutil
import subprocess
import threading
import tomllib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    import pandas

Settings = Mapping[str, Any]
Folder = str | os.PathLike[str]


class FederationError(Exception):
    """The program has refused what it was asked; the text is its own."""


class Run:
    """What a run has left so far in its folder, ``runs/NAME``."""

    def __init__(self, folder: Folder) -> None:
        self.folder = pathlib.Path(folder)
        if not (self.folder / "config.toml").is_file():
            raise FederationError(f"{self.folder} is no run: there is no config.toml in it")

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def name(self) -> str:
        """Its name."""
        return self.folder.name

    @property
    def config(self) -> dict[str, Any]:
        """Its configuration, all keys."""
        return tomllib.loads((self.folder / "config.toml").read_text(encoding="utf-8"))

    @property
    def records(self) -> list[dict[str, Any]]:
        """Its closed rounds, as ``rounds.jsonl`` has them."""
        file = self.folder / "rounds.jsonl"
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        # The last line of a run that goes on may be half written.
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    @property
    def rounds(self) -> pandas.DataFrame:
        """Its closed rounds as a table by round; what clients measured is in columns called ``metrics.NAME``."""
        import pandas

        table = pandas.json_normalize(self.records, max_level=1)
        return table.set_index("round") if len(table) else table

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are not the defaults, by their full keys."""
        listed = json.loads(_ask("runs", "show", "--runs", self.folder.parent, self.name, "--json"))
        return listed["changed"]

    @property
    def accuracy(self) -> float | None:
        """The accuracy of the last model that was tested."""
        found = [record["accuracy"] for record in self.records if record.get("accuracy") is not None]
        return found[-1] if found else None

    @property
    def loss(self) -> float | None:
        """The test loss of the last model that was tested: what models of numbers are compared by."""
        found = [record["loss"] for record in self.records if record.get("loss") is not None]
        return found[-1] if found else None

    @property
    def report(self) -> pathlib.Path:
        """Its page."""
        return self.folder / "report.html"

    def model(self, best: bool = False) -> dict[str, numpy.ndarray]:
        """Its model as arrays of numpy: the last one, or the best on the test set."""
        from safetensors.numpy import load_file

        file = self.folder / "best.safetensors"
        # The best one has a file of its own if it is not the last.
        return load_file(file if best and file.is_file() else self.folder / "model.safetensors")

    def state(self, best: bool = False) -> dict[str, Any]:
        """The same as tensors of PyTorch, for ``load_state_dict``."""
        import torch

        return {name: torch.from_numpy(values) for name, values in self.model(best).items()}

    def scalars(self) -> Iterator[tuple[int, dict[str, float]]]:
        """For every round its number and all that is a number of it, by name."""
        for record in self.records:
            numbers = {name: value for name, value in record.items() if name not in ("round", "metrics")}
            numbers |= record.get("metrics", {})
            yield record["round"], {name: float(value) for name, value in numbers.items() if _is_number(value)}

    def to_mlflow(self, experiment: str = "federation", tracking_uri: str | None = None) -> str:
        """Writes it to MLflow: settings, scalars of every round, model and page. Gives the id there."""
        import mlflow

        if tracking_uri is not None:
            mlflow.set_tracking_uri(tracking_uri)
        mlflow.set_experiment(experiment)
        with mlflow.start_run(run_name=self.name) as there:
            mlflow.log_params({key: str(value)[:6000] for key, value in self.settings.items()})
            for number, scalars in self.scalars():
                mlflow.log_metrics(scalars, step=number)
            for file in ("model.safetensors", "report.html", "config.toml"):
                if (self.folder / file).is_file():
                    mlflow.log_artifact(str(self.folder / file))
            return there.info.run_id

    def to_wandb(self, project: str = "federation", **options: Any) -> None:
        """Writes it to Weights & Biases: settings and scalars of every round.

        ``options`` are those of ``wandb.init``.
        """
        import wandb

        with wandb.init(project=project, name=self.name, config=self.settings, **options) as there:
            for number, scalars in self.scalars():
                there.log(scalars, step=number)


class Server:
    """A run that is served to devices by a process of its own."""

    def __init__(self, process: _Process) -> None:
        self._process = process
        #: The run, which can be read while it goes on.
        self.run = process.run()

    def wait(self) -> Run:
        """Waits until the run is over."""
        self._process.check()
        return self.run

    def stop(self) -> Run:
        """Stops it; the same call of ``serve`` goes on with it."""
        self._process.stop()
        return self.run

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.is_running:
            self.stop()


def runs(folder: Folder = "runs") -> list[Run]:
    """The runs in a folder, in the order in which they began."""
    listed = json.loads(_ask("runs", "--runs", folder, "--json"))
    return [Run(run["path"]) for run in listed["runs"]]


def simulate(
    config: Folder | None = None, settings: Settings | None = None, *options: str, runs: Folder = "runs"
) -> Run:
    """Runs a simulation to its end, or goes on with one of the same settings.

    ``config`` is a configuration's file, ``settings`` are keys with their values, as in
    ``{"run.rounds": 5}``, and ``options`` those of the command line, as in ``"--fresh"``.
    """
    process = _begin("simulate", config, settings, options, runs)
    process.check()
    return process.run()


def serve(
    config: Folder | None = None, settings: Settings | None = None, *options: str, runs: Folder = "runs"
) -> Server:
    """Serves a run to devices, beside this program."""
    return Server(_begin("serve", config, settings, options, runs))


def compare(*what: Folder | Run, **settings: Any) -> dict[str, Any]:
    """The comparison of runs, or an experiment's, as ``aggregator compare --json`` has it."""
    names = [one.folder if isinstance(one, Run) else one for one in what]
    return json.loads(_ask("compare", *names, *_set(settings), "--json"))


def program(name: str = "aggregator") -> str:
    """The program: ``FEDERATION_BIN`` names its folder, or it is on the path."""
    folder = os.environ.get("FEDERATION_BIN")
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    if found is None:
        raise FederationError(f"there is no program {name}: put its folder on the path, or name it in FEDERATION_BIN")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _set(settings: Settings | None) -> list[str]:
    # JSON is TOML for texts, numbers, booleans and lists of them.
    given = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in (settings or {}).items()]
    return [word for setting in given for word in ("--set", setting)]


class _Process:
    """The program at work: its sentences are read all the time, and the last ones are kept."""

    def __init__(self, words: list[object]) -> None:
        self._process = subprocess.Popen(
            [str(word) for word in [*words, "--json", "--log-format", "json"]],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._said: collections.deque[str] = collections.deque(maxlen=5)
        self._folder: str | None = None
        self._begun = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stderr or ():
            try:
                told = json.loads(line)
            except ValueError:
                told = None
            if not isinstance(told, dict):
                told = {"text": line.rstrip()}
            if "text" in told:
                self._said.append(told["text"])
            if "folder" in told:
                self._folder = told["folder"]
                self._begun.set()
        self._begun.set()

    def run(self) -> Run:
        """The run that it works on, as soon as it has begun."""
        self._begun.wait()
        if self._folder is None:
            self.check()
            raise FederationError("it has ended without a run")
        return Run(self._folder)

    def check(self) -> None:
        """Waits for its end, and raises what it says if that is none that was wanted."""
        try:
            status = self._process.wait()
        except BaseException:
            self.stop()
            raise
        self._reader.join()
        if status != 0:
            raise FederationError("\n".join(self._said) or f"it has ended with {status}")

    def stop(self) -> None:
        """Asks it to end, and waits."""
        self._process.terminate()
        self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None


def _begin(
    command: str, config: Folder | None, settings: Settings | None, options: tuple[str, ...], runs: Folder
) -> _Process:
    return _Process([program(), command, *([config] if config else []), "--runs", runs, *_set(settings), *options])


def _ask(*words: object) -> str:
    done = subprocess.run([program(), *map(str, words)], capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise FederationError(done.stderr.strip())
    return done.stdout
