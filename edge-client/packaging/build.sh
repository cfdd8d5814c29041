#!/bin/sh
# Builds programs for devices and lab machines that are older than this one, or have another processor.
#
#     edge-client/packaging/build.sh arm64                   the client for Jetsons and Raspberry Pis (64 bits)
#     edge-client/packaging/build.sh amd64 edge-client aggregator
#     edge-client/packaging/build.sh --linker gcc arm64      without zig, for systems with glibc 2.34
#
# They land in target/portable/ARCHITECTURE. At the end the script reads from each program which glibc it asks for, and
# fails if that is newer than what is promised here:
#
#     linker    oldest glibc   runs on, among others
#     zig       2.31           JetPack 5 and 6, Raspberry Pi OS 11 and later, Debian 11, Ubuntu 20.04
#     gcc       2.34           JetPack 6, Raspberry Pi OS 12 and later, Debian 12, Ubuntu 22.04, RHEL 9
#
# A program asks for the glibc that it was linked with: gcc links with that of this machine (which may be 2.39, and whoever
# has 2.34 promised is told so), zig with a description of any older one. `--glibc 2.28` asks for an older one still.
# A static program (musl) would run on any of them and was not taken: Debian has no Rust library for it, and
# `edge-client/src/memory.rs` counts on glibc's allocator to give memory back.
#
# Needs cargo and:
#     Rust's library for the other processor:   rustup target add aarch64-unknown-linux-gnu
#         or, from Debian 12 on without rustup, with its security updates:
#                                                dpkg --add-architecture arm64 && apt-get update
#                                                apt-get install cargo-web rustc-web libstd-rust-web-dev:arm64
#     zig:   python3 with venv and, the first time, the network (PyPI, 100 MB; 430 MB of disk); or any zig, named in ZIG
#     gcc:   for arm64 gcc-aarch64-linux-gnu (Debian), for amd64 gcc
# A compiler of Rust named in RUSTC is used if it has that library.

set -eu

ZIG_VERSION=0.17.1

fail() {
    printf '%s: %s\n' "$0" "$1" >&2
    exit 1
}

usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

linker=zig
glibc=
while [ $# -gt 0 ]; do
    case $1 in
    --linker) linker=${2:-}; shift 2 || usage ;;
    --glibc) glibc=${2:-}; shift 2 || usage ;;
    -*) usage ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] || usage
architecture=$1
shift
[ $# -gt 0 ] || set -- edge-client
case $architecture in
arm64) processor=aarch64 ;;
amd64) processor=x86_64 ;;
*) fail "\`$architecture\` is not an architecture that this builds for: give arm64 or amd64" ;;
esac
target=$processor-unknown-linux-gnu
case $linker in
zig) : "${glibc:=2.31}" ;;
gcc) : "${glibc:=2.34}" ;;
*) fail "\`$linker\` is not a linker that this knows: give zig or gcc" ;;
esac
case $glibc in
2.[0-9] | 2.[0-9][0-9]) ;;
*) fail "\`$glibc\` is not a version of glibc: give 2.31, for example" ;;
esac
command -v cargo >/dev/null 2>&1 || fail '`cargo` is not there; install Rust from https://rustup.rs, or on Debian cargo-web'
command -v readelf >/dev/null 2>&1 || fail '`readelf` is not there; install binutils'

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"

# 1. A compiler that has the library for this processor.
has_library() {
    library=$("$1" --print sysroot 2>/dev/null)/lib/rustlib/$target/lib
    [ -n "$(find "$library/" -name 'libstd*.rlib' 2>/dev/null | head -n 1)" ]
}
found=
for compiler in "${RUSTC:-rustc}" /usr/bin/rustc; do
    if has_library "$compiler"; then
        found=$compiler
        break
    fi
    [ -z "${RUSTC:-}" ] || fail "\`$RUSTC\`, which RUSTC names, has no library for $target"
done
[ -n "$found" ] || fail "no compiler here has Rust's library for $target: \`rustup target add $target\`, or on Debian
    dpkg --add-architecture $architecture && apt-get update && apt-get install cargo-web rustc-web libstd-rust-web-dev:$architecture"
export RUSTC="$found"
# Each compiler's work is of no use to another: apart from the one that builds for this machine.
export CARGO_TARGET_DIR="$root/target/portable/build"

# 2. What links, and compiles the C and assembler of the cryptography.
tools=$root/target/portable/tools
mkdir -p "$tools"
tool() {
    cat >"$tools/$1.new"
    chmod +x "$tools/$1.new"
    # Unchanged, it stays as it is: what was built with it is not built again.
    cmp -s "$tools/$1.new" "$tools/$1" || mv "$tools/$1.new" "$tools/$1"
}
if [ "$linker" = zig ]; then
    if [ -z "${ZIG:-}" ]; then
        ZIG=$tools/zig
        if [ "$("$ZIG" version 2>/dev/null)" != "$ZIG_VERSION" ]; then
            command -v python3 >/dev/null 2>&1 ||
                fail 'zig comes by way of Python: install python3 and its venv module, or name a zig in ZIG, or give --linker gcc'
            echo "Installing zig $ZIG_VERSION from PyPI into $tools ..." >&2
            python3 -m venv --clear "$tools/venv" ||
                fail 'Python cannot make an environment; install its `venv` module (Debian: python3-venv)'
            "$tools/venv/bin/python" -m pip --quiet --disable-pip-version-check install --only-binary :all: \
                "ziglang==$ZIG_VERSION" ||
                fail 'pip could not install ziglang: it needs the network, or a mirror in PIP_INDEX_URL; or give --linker gcc'
            printf '#!/bin/sh\nexec "%s" -m ziglang "$@"\n' "$tools/venv/bin/python" | tool zig
        fi
    fi
    # What Rust and the build scripts say to any compiler, and zig says in its own way: the target, and gcc's library for
    # unwinding, whose part zig's own plays.
    tool "cc-$architecture-$glibc" <<EOF
#!/bin/sh
for argument; do
    shift
    case \$argument in
    --target=*) ;;
    -lgcc_s) set -- "\$@" -lunwind ;;
    *) set -- "\$@" "\$argument" ;;
    esac
done
exec "$ZIG" cc -target $processor-linux-gnu.$glibc "\$@"
EOF
    printf '#!/bin/sh\nexec "%s" ar "$@"\n' "$ZIG" | tool ar
    compiler=$tools/cc-$architecture-$glibc
    archiver=$tools/ar
else
    case $(uname -m) in
    "$processor") compiler=gcc archiver=ar ;;
    *) compiler=$processor-linux-gnu-gcc archiver=$processor-linux-gnu-ar ;;
    esac
    command -v "$compiler" >/dev/null 2>&1 ||
        fail "\`$compiler\` is not there (Debian: gcc-$(echo $processor | tr _ -)-linux-gnu); or leave --linker gcc away"
fi
small=$(echo "$target" | tr - _)
export "CARGO_TARGET_$(echo "$small" | tr '[:lower:]' '[:upper:]')_LINKER=$compiler"
export "CC_$small=$compiler" "AR_$small=$archiver"

# 3. The programs. The device's is small, as it is everywhere; the lab's is what `cargo build --release` makes.
place=$root/target/portable/$architecture
mkdir -p "$place"
for program; do
    case $program in
    edge-client) profile=dist ;;
    aggregator) profile=release ;;
    *) fail "\`$program\` is not a program of this project: give edge-client or aggregator" ;;
    esac
    echo "Building $program for $architecture with $("$RUSTC" --version), linked by $linker ..." >&2
    cargo build --locked --profile "$profile" --target "$target" --package "$program" --bin "$program"
    cp "$CARGO_TARGET_DIR/$target/$profile/$program" "$place/$program.new"

    # 4. What was promised.
    asked=$(readelf --version-info --wide "$place/$program.new" |
        grep -o 'GLIBC_[0-9.]*' | cut -d_ -f2 | sort -V | tail -n 1)
    [ -n "$asked" ] || fail "$program asks for no version of glibc at all: readelf could not read it"
    newest=$(printf '%s\n%s\n' "$asked" "$glibc" | sort -V | tail -n 1)
    [ "$newest" = "$glibc" ] || fail "$program asks for glibc $asked, and $glibc is promised: it would not start on what has
    that. Link it with zig, or promise less with --glibc $asked"
    mv "$place/$program.new" "$place/$program"
    libraries=$(readelf --dynamic --wide "$place/$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')
    bytes=$(wc -c <"$place/$program")
    printf '%s: %s.%s MB, needs glibc %s or later; libraries: %s\n' "$place/$program" \
        $((bytes / 1000000)) $((bytes / 100000 % 10)) "$asked" "$libraries"
done
