#!/bin/sh
# Runs a program for 64-bit ARM on this machine: under qemu, with an ARM system's C library.
#
#     edge-client/packaging/emulate.sh PROGRAM ARGUMENT...
#
# Needs qemu-user-static and one of, in this order: a directory with such a system's files, named in SYSROOT; the library of
# Debian's other architecture (libc6:arm64); the library for cross-compiling (libc6-arm64-cross).

set -eu
if [ "$(uname -m)" = aarch64 ]; then
    exec "$@"
fi
if ! command -v qemu-aarch64-static >/dev/null 2>&1; then
    echo "$0: \`qemu-aarch64-static\` is not there; install qemu-user-static" >&2
    exit 1
fi
cross=/usr/aarch64-linux-gnu
if [ -n "${SYSROOT:-}" ]; then
    exec qemu-aarch64-static -L "$SYSROOT" "$@"
elif [ -e /lib/ld-linux-aarch64.so.1 ]; then
    exec qemu-aarch64-static "$@"
elif [ -e "$cross/lib/ld-linux-aarch64.so.1" ]; then
    # Its loader looks where systems have libraries, and would take what another package has put there.
    exec qemu-aarch64-static -L "$cross" -E LD_LIBRARY_PATH=/lib "$@"
fi
echo "$0: there is no C library for ARM here: apt-get install libc6-arm64-cross, or name a system's files in SYSROOT" >&2
exit 1
