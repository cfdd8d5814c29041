#!/bin/sh
# Builds `edge-client` for CUDA devices on a machine that has neither a GPU nor a CUDA toolkit.
#
#     edge-client/cuda/build.sh               builds target/cuda/build/release/edge-client
#     edge-client/cuda/build.sh COMMAND...    runs another command with the same settings, such as
#                                             `cargo test -p models --features cuda`, or
#                                             `cargo build --release -p aggregator --features cuda`
#
# Needs Linux on x86_64 or aarch64, cargo, a C and C++ compiler that nvcc accepts (gcc up to 15), Python 3
# with `venv`, 3 GB of disk and, the first time, the network: the compiler, headers and libraries of CUDA come
# from PyPI, 700 MB, in the versions below. Everything lands in target/cuda; delete that to be rid of it:
#
#     venv/       the Python environment that the packages are installed into
#     toolkit/    links to them, laid out as CUDA_HOME is: bin, include, lib64, nvvm. lib64/stubs/libcuda.so
#                 stands in for the library that only the driver brings
#     build/      cargo's target directory
#
# Which GPUs: CUDA_COMPUTE_CAP, the compute capability without its dot. The default, 80, runs on every GPU
# from Ampere (2020) on: the driver translates the kernels for newer ones when it loads them. 75 includes
# Turing. Exact numbers save that translation: 86 and 89 for GeForce RTX 30 and 40, 87 for Jetson Orin, 90 for
# H100 and H200; but what is built for 90 or more runs on GPUs of that very number alone.
#
# To run the program, a machine needs the driver (580 or later) and CUDA 13's libcudart, libcublas,
# libcublasLt, libcurand and libnvrtc where the loader looks. If it has no toolkit, give it a copy of
# toolkit/lib64 without `stubs`, links followed (`cp -L`), and name that in LD_LIBRARY_PATH. The program is
# linked to these libraries: where one is missing, the loader ends it with status 127 and `error while loading
# shared libraries: libcuda.so.1`. Devices without CUDA take the plain build. Where the libraries are there
# but no GPU answers, it warns and trains on the CPU.
#
# Devices that have a toolkit build natively, without this script, and so does whoever serves devices with
# another version of CUDA. On Jetson Orin with JetPack 6 (CUDA 12):
#
#     PATH=/usr/local/cuda/bin:$PATH CUDA_HOME=/usr/local/cuda CUDA_COMPUTE_CAP=87 \
#         cargo build --release -p edge-client --features cuda
#
# Jetson Xavier is 72, which CUDA 13 has dropped: it takes the toolkit of JetPack 5 (CUDA 11.4, the oldest
# that the bindings know) in the same way.

set -eu

# One release of CUDA, 13.0; the parts have numbers of their own.
PACKAGES='nvidia-cuda-nvcc==13.0.88
nvidia-cuda-crt==13.0.88
nvidia-nvvm==13.0.88
nvidia-cuda-cccl==13.0.85
nvidia-cuda-runtime==13.0.96
nvidia-cuda-nvrtc==13.0.88
nvidia-cublas==13.0.2.14
nvidia-curand==10.4.0.35'
: "${CUDA_COMPUTE_CAP:=80}"

fail() {
    printf '%s: %s\n' "$0" "$1" >&2
    exit 1
}

needs() {
    command -v "$1" >/dev/null 2>&1 || fail "\`$1\` is not there; install $2 and run this again"
}

case "$(uname -s) $(uname -m)" in
'Linux x86_64' | 'Linux aarch64') ;;
*) fail "PyPI has CUDA for Linux on x86_64 and aarch64, and this is $(uname -s) on $(uname -m)" ;;
esac
case $CUDA_COMPUTE_CAP in
'' | *[!0-9]*) fail "CUDA_COMPUTE_CAP is \`$CUDA_COMPUTE_CAP\` and must be a number such as 80, 87 or 90" ;;
esac
[ "$CUDA_COMPUTE_CAP" -ge 75 ] ||
    fail "CUDA 13 compiles for CUDA_COMPUTE_CAP 75 and later, not $CUDA_COMPUTE_CAP; see this script's head"
needs cargo 'Rust from https://rustup.rs'
needs python3 'Python 3 (Debian: python3, python3-venv)'
needs cc 'a C compiler (Debian: gcc)'
needs c++ 'a C++ compiler (Debian: g++)'

root=$(cd "$(dirname "$0")/../.." && pwd)
cuda=$root/target/cuda
venv=$cuda/venv
toolkit=$cuda/toolkit

# 1. The packages, and links to them in the layout that nvcc, the build scripts and the linker look for. Both
# are made once for these versions at this place, so that no build that is under way is disturbed.
made="$root
$PACKAGES"
if [ "$(cat "$cuda/made" 2>/dev/null)" != "$made" ]; then
    echo "Installing CUDA from PyPI into $cuda ..." >&2
    rm -rf "$venv" "$toolkit" "$cuda/made"
    mkdir -p "$cuda"
    python3 -m venv "$venv" ||
        fail "Python cannot make an environment in $venv; install its \`venv\` module (Debian: python3-venv)"
    # shellcheck disable=SC2086 # a list
    "$venv/bin/python" -m pip --quiet --disable-pip-version-check --no-cache-dir --retries 2 \
        install --only-binary :all: --no-deps $PACKAGES ||
        fail 'pip could not install the packages; it needs the network, or a mirror in PIP_INDEX_URL'
    installed=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia/cu13
    [ -x "$installed/bin/nvcc" ] || fail "the packages put no compiler at $installed/bin/nvcc"

    mkdir -p "$toolkit/lib64/stubs"
    for part in bin include nvvm; do
        ln -s "$installed/$part" "$toolkit/$part"
    done
    for library in "$installed"/lib/lib*; do
        name=${library##*/}
        ln -s "$library" "$toolkit/lib64/$name"
        # What programs ask for as libcublas.so.13 when they run, the linker asks for as libcublas.so.
        case $name in
        *.alt.so.*) ;;
        *.so.*) ln -s "$name" "$toolkit/lib64/${name%.so.*}.so" ;;
        esac
    done
    # The stub has every function that the header names; each answers CUDA_ERROR_STUB_LIBRARY. Programs linked
    # to it ask for libcuda.so.1, the driver's own.
    {
        echo 'int absent(void) { return 34; }'
        grep -ohE '\bcu[A-Z][A-Za-z0-9_]*' "$toolkit/include/cuda.h" | LC_ALL=C sort -u |
            sed 's/.*/int &(void) __attribute__((alias("absent")));/'
    } >"$toolkit/lib64/stubs/stub.c"
    cc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$toolkit/lib64/stubs/libcuda.so.1" \
        "$toolkit/lib64/stubs/stub.c" ||
        fail 'the C compiler cannot link the stub for libcuda; its message is above'
    ln -s libcuda.so.1 "$toolkit/lib64/stubs/libcuda.so"
    printf '%s\n' "$made" >"$cuda/made"
fi

# 2. One toolkit, whatever else is installed or set.
unset NVCC CUDA_PATH CUDA_ROOT CUDA_TOOLKIT_ROOT_DIR CUDNN_LIB CUDARC_CUDA_VERSION
export CUDA_COMPUTE_CAP
export CUDA_HOME="$toolkit"
export PATH="$toolkit/bin:$PATH"
export CARGO_TARGET_DIR="$cuda/build"
nvcc --version >/dev/null || fail "$toolkit/bin/nvcc does not run on this machine; its message is above"
# For commands that run what they build. A stub in this list would come before the real driver.
libraries=$toolkit/lib64
if ! python3 -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null; then
    libraries=$libraries:$toolkit/lib64/stubs
fi
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# 3. The program, or what was asked for.
cd "$root"
if [ $# -gt 0 ]; then
    exec "$@"
fi
cargo build --release -p edge-client --features cuda
program=$CARGO_TARGET_DIR/release/edge-client
"$program" --version >/dev/null || fail "$program does not start; its message is above"
echo "Built $program for compute capability $CUDA_COMPUTE_CAP; this script's head says what it needs." >&2
