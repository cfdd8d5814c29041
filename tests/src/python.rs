//! A Python with packages, for tests of what other programs make of our files.
//!
//! The variable `FEDERATION_PYTHON` names one that has everything. Without it numpy and safetensors are installed into the target
//! directory when they are not there yet, and `PyTorch`, which is large, is taken where `tests/peers/environment.py` has put it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The variable that names an interpreter.
pub const VARIABLE: &str = "FEDERATION_PYTHON";

/// A Python that has numpy and safetensors. `Err` is why there is none.
///
/// # Panics
/// If the one that the variable names has not: the caller has asked for that one.
pub fn with_numpy() -> Result<PathBuf, String> {
    // Tests run side by side, and one installs.
    static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PYTHON.get_or_init(find_or_install).clone()
}

fn find_or_install() -> Result<PathBuf, String> {
    const NUMPY: &str = "import numpy, safetensors.numpy";
    if let Some(python) = named(NUMPY) {
        return Ok(python);
    }
    // One installation for all later runs.
    let venv = target()?.join("interop-venv");
    let python = venv.join("bin/python");
    if has(&python, NUMPY) {
        return Ok(python);
    }
    does("python3 -m venv", Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let install = [&install[..], &["--retries", "1", "--timeout", "15"]].concat();
    let packages =
        |packages: [&str; 2]| does("pip install", Command::new(&python).args(&install).args(packages));
    packages(["safetensors==0.8.0", "numpy"]).or_else(|_| packages(["safetensors", "numpy"]))?;
    if has(&python, NUMPY) { Ok(python) } else { Err("what pip installed cannot be imported".to_owned()) }
}

/// A Python that has `PyTorch`, numpy and safetensors. `Err` is why there is none.
///
/// # Panics
/// As [`with_numpy`].
pub fn with_torch() -> Result<PathBuf, String> {
    const TORCH: &str = "import numpy, safetensors.torch, torch";
    if let Some(python) = named(TORCH) {
        return Ok(python);
    }
    let python = target()?.join("peers/bin/python");
    if has(&python, TORCH) {
        return Ok(python);
    }
    Err(format!(
        "{} has no PyTorch: `python3 tests/peers/environment.py` installs it, or {VARIABLE} names a Python that has it",
        python.display()
    ))
}

/// A Python that has onnx and onnxruntime. `Err` is why there is none.
pub fn with_onnx() -> Result<PathBuf, String> {
    with("import numpy, onnx, onnxruntime", "onnxruntime")
}

/// A Python that has TensorBoard. `Err` is why there is none.
pub fn with_tensorboard() -> Result<PathBuf, String> {
    with("import tensorboard", "TensorBoard")
}

/// A Python with this package. The variable may name one without it: these packages are younger than the variable. `Err` is why
/// there is none.
pub fn with(imports: &str, package: &str) -> Result<PathBuf, String> {
    let given = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let made = target()?.join("peers/bin/python");
    let mut pythons = given.into_iter().chain([made.clone()]);
    pythons.find(|python| has(python, imports)).ok_or_else(|| {
        format!(
            "neither {VARIABLE} nor {} has {package}: `python3 tests/peers/environment.py` installs it",
            made.display()
        )
    })
}

/// The interpreter that the variable names.
fn named(imports: &str) -> Option<PathBuf> {
    let python = PathBuf::from(std::env::var_os(VARIABLE).filter(|value| !value.is_empty())?);
    assert!(has(&python, imports), "{VARIABLE} names {}, where `{imports}` fails", python.display());
    Some(python)
}

fn has(python: &Path, imports: &str) -> bool {
    Command::new(python).args(["-c", imports]).output().is_ok_and(|output| output.status.success())
}

/// The target directory: tests run inside its PROFILE/deps.
fn target() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|error| error.to_string())?;
    test.ancestors()
        .nth(3)
        .map(Path::to_owned)
        .ok_or_else(|| "the test lies in no target directory".to_owned())
}

fn does(what: &str, command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{what} failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{what} failed: {error}")),
    }
}
