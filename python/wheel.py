"""Packs wheels: the package `federation` with the programs `edge-client` and `aggregator` for a processor.

    python3 python/wheel.py amd64 arm64        into target/wheels, with what build.sh has made
    python3 python/wheel.py --build amd64      has it made first

A wheel is an archive with a list of what is in it (PEP 427). The programs are started as they are, without Python, and
serve every version of it: one wheel for each processor. The tag `manylinux_2_28` promises that they run with glibc 2.28
and later, for which `edge-client/packaging/build.sh --glibc 2.28` makes them.
"""

import argparse
import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import tomllib
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PROGRAMS = ("edge-client", "aggregator")
PROCESSORS = {"amd64": "x86_64", "arm64": "aarch64"}


def build(architecture: str, glibc: str) -> None:
    """Makes the programs."""
    script = ROOT / "edge-client/packaging/build.sh"
    subprocess.run([script, "--glibc", glibc, architecture, *PROGRAMS], check=True)


def pack(architecture: str, glibc: str, programs: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Packs the wheel of a processor and a version of glibc, whose programs are in a folder."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    if project["version"] != version:
        raise SystemExit(f"pyproject.toml has version {project['version']}, and Cargo.toml {version}: they go together")
    tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_{PROCESSORS[architecture]}"
    about = f"{project['name']}-{version}.dist-info"
    files = {
        f"federation/{file.name}": (file.read_bytes(), 0o644) for file in sorted((HERE / "federation").glob("*.py"))
    }
    files["federation/py.typed"] = (b"", 0o644)
    for program in PROGRAMS:
        made = programs / program
        if not made.is_file():
            raise SystemExit(f"{made} is not there: give --build, or make it with edge-client/packaging/build.sh")
        content = made.read_bytes()
        if newer := newer_glibc(content, tuple(map(int, glibc.split(".")))):
            raise SystemExit(f"{made} needs glibc {newer}, and the wheel promises {glibc}: make it with --build")
        files[f"{project['name']}-{version}.data/scripts/{program}"] = (content, 0o755)
    files[f"{about}/METADATA"] = (metadata(project).encode(), 0o644)
    wheel = f"Wheel-Version: 1.0\nGenerator: wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{about}/WHEEL"] = (wheel.encode(), 0o644)
    for licence in ("LICENSE-APACHE", "LICENSE-MIT"):
        files[f"{about}/licenses/{licence}"] = ((ROOT / licence).read_bytes(), 0o644)
    listed = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, (content, _) in files.items())
    files[f"{about}/RECORD"] = (f"{listed}{about}/RECORD,,\n".encode(), 0o644)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{project['name']}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (content, mode) in files.items():
            # A date of its own would make each archive another one.
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return path


def newer_glibc(program: bytes, promised: tuple[int, ...]) -> str | None:
    """The version of glibc that a program asks for, if that is newer than what is promised."""
    asked = {tuple(map(int, found.split(b"."))) for found in re.findall(rb"\0GLIBC_(\d+(?:\.\d+)+)(?=\0)", program)}
    newest = max(asked, default=promised)
    return ".".join(map(str, newest)) if newest > promised else None


def digest(content: bytes) -> str:
    """As the list has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def metadata(project: dict) -> str:
    """What pip reads."""
    extras = project.get("optional-dependencies", {})
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        "License-File: LICENSE-APACHE",
        "License-File: LICENSE-MIT",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {needed}" for needed in project["dependencies"]),
        *(f"Provides-Extra: {extra}" for extra in extras),
        *(f'Requires-Dist: {needed}; extra == "{extra}"' for extra, all in extras.items() for needed in all),
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (HERE / "README.md").read_text()


def main() -> None:
    """Packs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("architectures", nargs="+", choices=PROCESSORS, metavar="amd64|arm64")
    parser.add_argument("--build", action="store_true", help="make the programs first")
    parser.add_argument(
        "--glibc", default="2.28", help="the oldest version of glibc that they run with [default: 2.28]"
    )
    parser.add_argument("--programs", type=pathlib.Path, help="the folder of the programs [default: build.sh's]")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/wheels", help="the folder of the wheels")
    given = parser.parse_args()
    for architecture in given.architectures:
        if given.build:
            build(architecture, given.glibc)
        path = pack(architecture, given.glibc, given.programs or ROOT / "target/portable" / architecture, given.out)
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
