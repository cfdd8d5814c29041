"""What `python_package.rs` has Python do.

    python_package.py notebook FILE     runs the cells of a notebook, one after the other
    python_package.py mlflow RUN DIR    writes a run to MLflow in a folder, and compares what can be read there
"""

import json
import pathlib
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


if __name__ == "__main__":
    {"notebook": notebook, "mlflow": mlflow}[sys.argv[1]](*sys.argv[2:])
