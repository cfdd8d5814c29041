//! The Python package `federation`: its examples train, its notebook runs, its wheel installs.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use aggregator::round::jsonl;
use federation_tests::process::run;
use federation_tests::programs::programs;
use federation_tests::python;
use federation_tests::testbed::free_port;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python_package.py");

/// A Python with these packages, in a folder where it finds our package and the programs under test.
struct Python {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Python {
    fn with(imports: &str, packages: &str) -> Option<Self> {
        match python::with(imports, packages) {
            Ok(program) => Some(Self { program, folder: tempfile::tempdir().unwrap() }),
            Err(why) => {
                eprintln!("not tested: {why}");
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a script to its good end, and gives what it says.
    fn does(&self, arguments: &[&str]) -> String {
        self.ends(arguments, true)
    }

    fn ends(&self, arguments: &[&str], is_good: bool) -> String {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(self.folder.path());
        command.env("PYTHONPATH", format!("{ROOT}/python"));
        // MLflow would have a database, which its small form does not bring.
        command.env("MLFLOW_ALLOW_FILE_STORE", "true");
        command.env("FEDERATION_BIN", programs().aggregator.parent().unwrap());
        let output = command.output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.success(), is_good, "{arguments:?}: {said}");
        said
    }
}

#[test]
fn the_notebook_runs_and_a_run_is_read_back_from_mlflow() {
    let Some(python) = Python::with("import mlflow, pandas, safetensors.numpy", "pandas and mlflow") else {
        return;
    };
    let notebook = format!("{ROOT}/python/examples/runs.ipynb");
    python.does(&[SCRIPT, "notebook", &notebook]);
    python.does(&[SCRIPT, "mlflow", "runs/one-epoch", "mlflow"]);
    // What is refused is an error with the program's own words.
    let refused = python.does(&[
        "-c",
        "import federation\ntry: federation.simulate(settings={'run.round': 3})\nexcept federation.FederationError as error: print(error)",
    ]);
    assert!(refused.contains("unknown key `run.round`") && refused.contains("did you mean"), "{refused}");
}

/// The command of an example's trainer, whose initial model is written to `init.safetensors`.
fn trainer(python: &Python, example: &str, arguments: &str) -> String {
    let script = format!("{ROOT}/python/examples/{example}");
    python.does(&[&script, "--init", "init.safetensors"]);
    // The shell gives its place to the program: what stands before it is env's.
    format!("env PYTHONPATH={ROOT}/python {} {script} {arguments}", python.program.display())
}

/// Simulates an example's trainer, which tests at the server as well; gives the accuracy of the rounds.
fn trained(python: &Python, example: &str, arguments: &str) -> Vec<f64> {
    let trainer = trainer(python, example, arguments);
    let settings = [
        format!("model.parameters={}", python.path("init.safetensors").display()),
        format!("simulation.trainer={trainer}"),
        format!("evaluate.command={trainer}"),
        "data.clients=4".to_owned(),
        "run.rounds=3".to_owned(),
        "training.epochs=2".to_owned(),
        "training.optimizer.sgd.learning-rate=0.1".to_owned(),
    ];
    let runs = python.path("runs").display().to_string();
    let mut line = vec!["simulate", "--runs", &runs];
    line.extend(settings.iter().flat_map(|setting| ["--set", setting.as_str()]));
    let done = run(&programs().aggregator, &line);
    assert_eq!(done.code, Some(0), "{}", done.text);
    let text = fs::read(python.path("runs/trainer-fedavg/rounds.jsonl")).unwrap();
    jsonl::read(&text).unwrap().records.iter().map(|record| record.accuracy.unwrap()).collect()
}

#[test]
fn the_example_with_scikit_learn_learns() {
    let Some(python) = Python::with("import sklearn, safetensors.numpy", "scikit-learn") else { return };
    let accuracy = trained(&python, "sklearn_digits.py", "");
    assert!(accuracy.last().is_some_and(|last| *last > 0.85), "{accuracy:?}");
}

#[test]
fn python_serves_a_run_to_devices_stops_it_and_goes_on() {
    let Some(python) = Python::with("import sklearn, safetensors.numpy", "scikit-learn") else { return };
    let trainer = trainer(&python, "sklearn_digits.py", "");
    python.does(&[SCRIPT, "serve", &format!("127.0.0.1:{}", free_port()), &trainer]);
}

#[test]
fn the_example_with_pytorch_learns() {
    let Some(python) = Python::with("import torch, safetensors.torch", "PyTorch") else { return };
    // Built-in glyphs, in the files of MNIST.
    let config = python.path("data.toml");
    fs::write(&config, "data = { clients = 1, max-samples = 1200 }\n").unwrap();
    let (config, shares) = (config.display().to_string(), python.path("shares").display().to_string());
    let split = run(&programs().aggregator, &["data", "split", &config, "--out", &shares]);
    assert_eq!(split.code, Some(0), "{}", split.text);
    let data = python.path("data");
    fs::create_dir(&data).unwrap();
    for folder in ["shares/client-000", "shares/test"] {
        for entry in fs::read_dir(python.path(folder)).unwrap() {
            let file = entry.unwrap().path();
            fs::copy(&file, data.join(file.file_name().unwrap())).unwrap();
        }
    }
    let accuracy = trained(&python, "pytorch_digits.py", &format!("--data {}", data.display()));
    assert!(accuracy.last().is_some_and(|last| *last > 0.5), "{accuracy:?}");
}

#[test]
fn the_package_is_as_ruff_would_have_it() {
    let Some(python) = Python::with("import ruff", "ruff") else { return };
    let package = format!("{ROOT}/python");
    python.does(&["-m", "ruff", "check", "--no-cache", &package]);
    python.does(&["-m", "ruff", "format", "--no-cache", "--check", &package]);
}

#[test]
fn a_wheel_installs_the_programs_and_the_package() {
    let Some(python) = Python::with("import ensurepip, venv", "venv") else { return };
    let programs = python.path("programs");
    fs::create_dir(&programs).unwrap();
    for name in ["edge-client", "aggregator"] {
        let program = programs.join(name);
        fs::write(&program, format!("#!/bin/sh\necho {name} here\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let wheel = |out: &str| -> PathBuf {
        let script = format!("{ROOT}/python/wheel.py");
        python.does(&[&script, "amd64", "--programs", "programs", "--out", out]);
        let made: Vec<PathBuf> =
            fs::read_dir(python.path(out)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(made.len(), 1, "{made:?}");
        made[0].clone()
    };
    let (one, two) = (wheel("one"), wheel("two"));
    assert!(fs::read(&one).unwrap() == fs::read(two).unwrap(), "the same files make another wheel");
    fs::write(programs.join("aggregator"), "\0GLIBC_2.4\0GLIBC_2.31\0").unwrap();
    let script = format!("{ROOT}/python/wheel.py");
    let refused = python.ends(&[&script, "amd64", "--programs", "programs", "--out", "three"], false);
    assert!(refused.contains("needs glibc 2.31, and the wheel promises 2.28"), "{refused}");
    python.does(&["-m", "venv", "fresh"]);
    let fresh = Python { program: python.path("fresh/bin/python"), folder: tempfile::tempdir().unwrap() };
    let install =
        ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"];
    fresh.does(&[&install[..], &[&one.display().to_string()]].concat());
    let isolated =
        fresh.does(&["-I", "-c", "import federation; print(federation.__version__, federation.tasks)"]);
    assert!(isolated.starts_with(env!("CARGO_PKG_VERSION")), "{isolated}");
    for name in ["edge-client", "aggregator"] {
        let said = run(&python.path("fresh/bin").join(name), &[]);
        assert!(said.text.contains(&format!("{name} here")), "{}", said.text);
    }
}
