#!/bin/sh
# Makes everything that a release consists of, with checksums, in target/releases/VERSION:
#
#     edge-client/packaging/release.sh                       for amd64 and arm64
#     edge-client/packaging/release.sh amd64                 for one of them
#     edge-client/packaging/release.sh --from DIR --glibc 2.36 amd64
#
#     edge-client_VERSION_ARCH.deb, aggregator_VERSION_ARCH.deb      Debian packages (deb.sh)
#     federation-VERSION-py3-none-manylinux_*.whl                    wheels with both programs (python/wheel.py)
#     federation-VERSION-linux-ARCH.tar.xz                           both programs, manual pages, completions, the manual
#     federation-VERSION-source.tar.xz                               this commit
#     SHA256SUMS                                                     `sha256sum --check SHA256SUMS` tells whether all are whole
#
# The programs are built by build.sh for glibc 2.28, which says what that needs, or taken from DIR with --from, where --glibc
# says what they ask for. To write manual pages for arm64 on another machine the programs are emulated (emulate.sh).
# The same commit and programs give the same bytes. What is not committed is refused: a release is of a commit.
# Needs git, python3, tar, xz, dpkg-deb, readelf and sha256sum.

set -eu

fail() {
    printf '%s: %s\n' "$0" "$1" >&2
    exit 1
}

usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

from=
glibc=2.28
while [ $# -gt 0 ]; do
    case $1 in
    --from) from=${2:-}; shift 2 || usage ;;
    --glibc) glibc=${2:-}; shift 2 || usage ;;
    -*) usage ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] || set -- amd64 arm64
for architecture; do
    case $architecture in
    arm64 | amd64) ;;
    *) fail "\`$architecture\` is not an architecture that this builds for: give arm64 or amd64" ;;
    esac
done
[ -z "$from" ] || [ $# -eq 1 ] || fail '--from names the programs of one architecture: give one'
for tool in git:git python3:python3 tar:tar xz:xz-utils dpkg-deb:dpkg readelf:binutils sha256sum:coreutils; do
    command -v "${tool%:*}" >/dev/null 2>&1 || fail "\`${tool%:*}\` is not there; install ${tool#*:}"
done

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
git -C "$root" rev-parse --quiet --verify HEAD >/dev/null || fail "$root is no checkout of git: a release is of a commit"
[ -z "$(git -C "$root" status --porcelain --untracked-files=no)" ] ||
    fail 'some files are changed and not committed: a release is of a commit'
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct)
export SOURCE_DATE_EPOCH

releases=$root/target/releases
stage=$releases/$version.new
rm -rf "$stage"
mkdir -p "$stage"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The same files give the same archive.
archive() { # FOLDER NAME
    tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go-w \
        --directory "$1" "$2" | xz -9 --threads=1 >"$stage/$2.tar.xz"
}

for architecture; do
    if [ -n "$from" ]; then
        programs=$(cd "$from" && pwd)
    else
        "$here/build.sh" --glibc "$glibc" "$architecture" edge-client aggregator
        programs=$root/target/portable/$architecture
    fi
    name=federation-$version-linux-$architecture
    tree=$work/$name
    mkdir -p "$tree"
    for program in edge-client aggregator; do
        package=$("$here/deb.sh" --from "$programs/$program" "$architecture" "$program")
        cp "$package" "$stage/"
        # Manual pages, completions and examples are those of the package.
        dpkg-deb --extract "$package" "$work/$architecture-$program"
        cp -R "$work/$architecture-$program/usr/." "$tree/"
    done
    rm -rf "$tree/share/doc/edge-client/copyright" "$tree/share/doc/aggregator/copyright"
    case $(uname -m)-$architecture in
    x86_64-amd64 | aarch64-arm64) run= ;;
    *) run=$here/emulate.sh ;;
    esac
    for program in edge-client aggregator; do
        mkdir -p "$tree/share/zsh/site-functions" "$tree/share/fish/vendor_completions.d"
        # shellcheck disable=SC2086 # a command and its arguments, or nothing
        $run "$programs/$program" completions zsh >"$tree/share/zsh/site-functions/_$program"
        # shellcheck disable=SC2086
        $run "$programs/$program" completions fish >"$tree/share/fish/vendor_completions.d/$program.fish"
    done
    for file in README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT; do
        cp "$root/$file" "$tree/$file"
    done
    cp -R "$root/aggregator/manual" "$tree/share/doc/aggregator/manual"
    archive "$work" "$name"
    python3 "$root/python/wheel.py" "$architecture" --glibc "$glibc" --programs "$programs" --out "$stage"
done
source=federation-$version-source
mkdir "$work/$source"
git -C "$root" archive HEAD | tar --extract --directory "$work/$source"
archive "$work" "$source"

(cd "$stage" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS && sha256sum --check --quiet SHA256SUMS)
rm -rf "${releases:?}/$version"
mv "$stage" "$releases/$version"
echo "$releases/$version:" >&2
(cd "$releases/$version" && du -h --apparent-size -- * >&2)
echo "$releases/$version"
