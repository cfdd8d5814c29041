"""What `python_package.rs` has Python do.

    python_package.py notebook FILE     runs the cells of a notebook, one after the other
    python_package.py mlflow RUN DIR    writes a run to MLflow in a folder, and compares what can be read there
    python_package.py serve TRAINER     serves a run to devices with a trainer, stops it and goes on with it
"""

import json
import pathlib
import socket
import subprocess
import sys

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


def serve(trainer: str) -> None:
    """Serves a round to two devices, and three more after a stop."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = ("--listen", address, "--enrolment", "anyone", "--identity", "lab")
    settings = {
        "model.parameters": "init.safetensors",
        "data.clients": 2,
        "round.min-updates": 2,
        "training.epochs": 2,
        "training.optimizer.sgd.learning-rate": 0.1,
        "evaluate.command": trainer,
    }

    def begin(rounds: int) -> federation.Server:
        return federation.serve(None, settings | {"run.rounds": rounds}, *options)

    def devices() -> list[subprocess.Popen]:
        join = [federation.program("edge-client"), "join", address, "--trainer", trainer, "--state"]
        return [subprocess.Popen([*join, f"device-{number}"]) for number in range(2)]

    with begin(1) as server:
        taking_part = devices()
        run = server.wait()
    assert [device.wait() for device in taking_part] == [0, 0]
    assert [record["accepted"] for record in run.records] == [2], run.records

    server = begin(4)
    assert server.run.folder == run.folder, "the same call goes on with the run"
    assert len(server.stop().records) == 1, "no device has come"
    with begin(4) as server:
        taking_part = devices()
        run = server.wait()
    assert [device.wait() for device in taking_part] == [0, 0]
    assert [record["accepted"] for record in run.records] == [2, 2, 2, 2], run.records
    assert run.accuracy > 0.85, run.accuracy
    assert [listed.name for listed in federation.runs()] == [run.name]


if __name__ == "__main__":
    {"notebook": notebook, "mlflow": mlflow, "serve": serve}[sys.argv[1]](*sys.argv[2:])
