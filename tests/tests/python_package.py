"""What `python_package.rs` has Python do.

    python_package.py notebook FILE     runs the cells of a notebook, one after the other
    python_package.py mlflow RUN DIR    writes a run to MLflow in a folder, and compares what can be read there
    python_package.py serve ADDRESS TRAINER
                                        serves a run to devices with a trainer, stops it and goes on with it
"""

import json
import pathlib
import signal
import subprocess
import sys
from contextlib import ExitStack

import federation


def notebook(file: str) -> None:
    """Runs the cells of a notebook in one name space, as Jupyter does."""
    names: dict = {}
    for number, cell in enumerate(json.loads(pathlib.Path(file).read_text())["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{file}, cell {number}", "exec"), names)


def mlflow(folder: str, store: str) -> None:
    """Writes a run there and reads it back."""
    from mlflow.tracking import MlflowClient

    run = federation.Run(folder)
    uri = pathlib.Path(store).absolute().as_uri()
    number = run.to_mlflow(experiment="tests", tracking_uri=uri)
    client = MlflowClient(tracking_uri=uri)
    there = client.get_run(number)
    assert there.data.params == {key: str(value) for key, value in run.settings.items()}, there.data.params
    for name in ("accuracy", "loss", "bytes_up"):
        told = [(metric.step, metric.value) for metric in client.get_metric_history(number, name)]
        expected = [(record["round"], record[name]) for record in run.records if record.get(name) is not None]
        assert told == expected, (name, told, expected)
    files = {file.path for file in client.list_artifacts(number)}
    assert {"model.safetensors", "report.html", "config.toml"} <= files, files


def serve(address: str, trainer: str) -> None:
    """Serves a round to two devices, and three more after a stop."""
    options = ("--listen", address, "--enrolment", "anyone", "--identity", "lab")
    settings = {
        "model.parameters": "init.safetensors",
        "data.clients": 2,
        "round.min-updates": 2,
        "training.epochs": 2,
        "training.optimizer.sgd.learning-rate": 0.1,
        "evaluate.command": trainer,
    }
    # What never ends is an error of its own, and leaves nothing behind.
    signal.signal(signal.SIGALRM, lambda *_: sys.exit("the run did not end in time"))
    signal.alarm(120)

    def begin(rounds: int) -> federation.Server:
        return federation.serve(None, settings | {"run.rounds": rounds}, *options)

    def to_the_end(rounds: int) -> federation.Run:
        join = [federation.program("edge-client"), "join", address, "--trainer", trainer, "--state"]
        with ExitStack() as devices:
            server = devices.enter_context(begin(rounds))
            taking_part = [subprocess.Popen([*join, f"device-{number}"]) for number in range(2)]
            for device in taking_part:
                devices.callback(device.wait)
                devices.callback(device.kill)
            run = server.wait()
            assert [device.wait() for device in taking_part] == [0, 0]
        return run

    run = to_the_end(rounds=1)
    assert [record["accepted"] for record in run.records] == [2], run.records
    with begin(4) as server:
        assert server.run.folder == run.folder, "the same call goes on with the run"
        assert len(server.stop().records) == 1, "no device has come"
    run = to_the_end(rounds=4)
    assert [record["accepted"] for record in run.records] == [2, 2, 2, 2], run.records
    assert run.accuracy > 0.85, run.accuracy
    assert [listed.name for listed in federation.runs()] == [run.name]


if __name__ == "__main__":
    {"notebook": notebook, "mlflow": mlflow, "serve": serve}[sys.argv[1]](*sys.argv[2:])
