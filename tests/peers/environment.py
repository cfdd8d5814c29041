"""The virtual environment of PyTorch's side, made once under `target/peers/`.

    python3 tests/peers/environment.py        makes it and prints the interpreter's path

PyTorch's own index has a build for CPUs alone, and that is taken where it can be reached. PyPI has, for
Linux, only the build for CUDA, which does not start without CUDA libraries of several gigabytes. None of them
is installed: libraries without content take their places, in which every function returns an error. Computing
on the CPU is the same code in both builds. Memory and the time to start are those of a PyTorch without CUDA's
libraries, which is to its advantage.

Needs Python 3.11 or later, and for the second way a C compiler (`cc`) and `readelf`.
"""

import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REQUIREMENTS = HERE / "requirements.txt"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

# Libraries of CUDA, and functions in them, by how their names begin.
CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)[^/]*\.so\.\d+$")
CUDA_FUNCTION = re.compile(
    r"(__cuda|cuda|cu[A-Z]|cublas|cusparse|cusolver|cufft|cudnn|cupti|nvrtc|nccl|nvshmem)"
)
# What a function that is not there returns: not success in any of the libraries, and `cudaErrorNoDevice`.
NO_CUDA = 100


class EnvironmentFailure(Exception):
    """The environment cannot be made; the text says why and what to do."""


def interpreter(directory: pathlib.Path = ROOT / "target" / "peers") -> pathlib.Path:
    """The environment's Python; makes the environment if there is none from the present requirements."""
    python = directory / "bin" / "python"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    done = directory / ".made-from"
    if python.exists() and done.exists() and done.read_text() == wanted:
        return python
    if sys.version_info < (3, 11):
        raise EnvironmentFailure("Python 3.11 or later is needed: run this script with it")
    say(f"making an environment with PyTorch in {directory}; the first time this downloads up to 600 MB")
    run([sys.executable, "-m", "venv", "--clear", directory], "making a virtual environment")
    install(python)
    replace_cuda(python)
    run([python, "-c", "import torch"], "starting PyTorch")
    done.write_text(wanted)
    return python


def install(python: pathlib.Path) -> None:
    """Installs the requirements, with torch from PyTorch's index if that answers and from PyPI otherwise."""
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps"]
    torch = next(line for line in REQUIREMENTS.read_text().splitlines() if line.startswith("torch=="))
    # Where it fails, the torch on PyPI does.
    index = ["--retries", "0", "--timeout", "10", "--index-url", CPU_INDEX]
    subprocess.run([*pip, *index, torch], capture_output=True, check=False)
    # A torch already installed from the other index satisfies the requirement.
    run(
        [*pip, "-r", REQUIREMENTS],
        "installing packages",
        "Check that PyPI, or the index pip is set to, is in reach.",
    )


def replace_cuda(python: pathlib.Path) -> None:
    """Puts a library without content in the place of each CUDA library that torch links to."""
    query = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    folder = pathlib.Path(run([python, "-c", query], "looking for torch").strip()) / "lib"
    libraries = [path for path in folder.iterdir() if path.suffix == ".so"]
    if not any(path.name.startswith("libtorch_cuda") for path in libraries):
        return
    tools = {tool: shutil.which(tool) for tool in ("cc", "readelf")}
    if missing := [tool for tool, path in tools.items() if path is None]:
        raise EnvironmentFailure(
            f"torch on PyPI is built for CUDA; starting it without takes {' and '.join(missing)}: install "
            f"a C compiler and binutils (`apt-get install gcc binutils`), or go where {CPU_INDEX} is in reach"
        )
    # By library: its functions, each with the name of its version if it has one.
    stubs: dict[str, set[tuple[str, str]]] = {}
    for path in libraries:
        facts = run([tools["readelf"], "-W", "-d", "-V", "--dyn-syms", path], "reading torch's libraries")
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", facts)
        # The driver is not part of CUDA's packages: nothing that loads without a GPU links to it.
        needed = [name for name in needed if CUDA_LIBRARY.match(name) and name != "libcuda.so.1"]
        for name in needed:
            stubs.setdefault(name, set())
        source, sources = "", {}
        for file, version in re.findall(r"File: (\S+)|Name: (\S+)  Flags", facts):
            source = file or source
            sources[version] = source
        for name, version in re.findall(r"\bUND ([^@\s]+)(?:@(\S+))?", facts):
            if CUDA_FUNCTION.match(name):
                # One without a version may be in any library that is loaded.
                stubs.setdefault(sources[version] if version else needed[0], set()).add((name, version))
    with tempfile.TemporaryDirectory() as scratch:
        for name, functions in sorted(stubs.items()):
            build_stub(tools["cc"], folder / name, functions, pathlib.Path(scratch) / "versions")


def build_stub(cc: str, library: pathlib.Path, functions: set[tuple[str, str]], script: pathlib.Path) -> None:
    """Compiles a library of functions that do nothing but return [`NO_CUDA`]."""
    code = "".join(f"long {name}(void) {{ return {NO_CUDA}; }}\n" for name, _ in sorted(functions))
    versions = sorted({version for _, version in functions if version})
    nodes = (
        (version, "".join(f"{name};" for name, of in sorted(functions) if of == version))
        for version in versions
    )
    script.write_text("".join(f"{version} {{ global: {names} }};\n" for version, names in nodes))
    command = [cc, "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{library.name}"]
    if versions:
        command.append(f"-Wl,--version-script,{script}")
    run([*command, "-x", "c", "-", "-o", library], f"making {library.name}", given=code)


def run(command: list, doing: str, advice: str = "", given: str = "") -> str:
    """Runs a command and gives its output."""
    try:
        done = subprocess.run(
            [str(word) for word in command], input=given, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise EnvironmentFailure(f"{doing}: {error}") from error
    if done.returncode != 0:
        # pip repeats each attempt at length before it says what it was for.
        lines = [
            line for line in done.stderr.splitlines() if line.strip() and "WARNING: Retrying" not in line
        ]
        raise EnvironmentFailure("\n".join([f"{doing} failed:", *lines[-5:], advice]).rstrip())
    return done.stdout


def say(text: str) -> None:
    """Tells the person; standard output is for results."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(interpreter())
    except EnvironmentFailure as failure:
        sys.exit(f"environment.py: {failure}")
