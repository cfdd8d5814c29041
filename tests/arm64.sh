#!/bin/sh
# Tests this code on 64-bit ARM, emulated, and compares what is trained there with what this machine's processor trains. Ends
# with 0 if all tests pass and all models have the same bytes.
#
#     tests/arm64.sh FOLDER
#
# Needs Debian on amd64, root, debootstrap and the network. FOLDER gets a system of Debian's unstable release with Rust for both
# processors, and what is built there, 8 GB in all; a later call uses them again. What it mounts is mounted for itself alone.
set -eu
[ $# = 1 ] || { echo "$0: give the folder for the emulated system" >&2; exit 2; }
[ -n "${OWN_MOUNTS:-}" ] || OWN_MOUNTS=1 exec unshare --mount "$0" "$1"
root=$(cd "$(dirname "$0")/.." && pwd)
registry=${CARGO_HOME:-$HOME/.cargo}/registry
mkdir -p "$1/system" "$registry"
system=$(cd "$1/system" && pwd)

inside() { # COMMANDS, for the shell of that system, in this repository
    chroot "$system" /usr/bin/env -i PATH=/usr/sbin:/usr/bin HOME=/root LC_ALL=C CARGO_INCREMENTAL=0 \
        CARGO_HOME=/cargo CARGO_TARGET_DIR=/target CARGO_PROFILE_DEV_DEBUG=0 CARGO_BUILD_JOBS="${CARGO_BUILD_JOBS:-$(nproc)}" \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc arm=aarch64-unknown-linux-gnu \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64 here=x86_64-unknown-linux-gnu /bin/sh -euc "cd /source; $1"
}

if [ ! -e "$system/complete" ]; then
    debootstrap --variant=minbase sid "$system" http://deb.debian.org/debian
    # A mirror may be some weeks behind. Signatures are checked as always.
    echo 'Acquire::Check-Valid-Until "false";' >"$system/etc/apt/apt.conf.d/99mirror"
    mkdir -p "$system/source" "$system/cargo/registry" "$system/target"
    inside 'export DEBIAN_FRONTEND=noninteractive; dpkg --add-architecture arm64; apt-get update -q
        apt-get install -yq --no-install-recommends ca-certificates cargo rustc gcc libc6-dev libstd-rust-dev:arm64 \
            gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user; apt-get clean'
    touch "$system/complete"
fi
mount --bind "$root" "$system/source"
mount --bind "$registry" "$system/cargo/registry"
mount -t proc proc "$system/proc"
mount --rbind /dev "$system/dev"

# One test starts itself anew, which the emulator cannot: the second command does its work. Two take a quarter of an hour each.
inside 'cargo test --locked --target $arm -p models --lib -- --skip with_lesser_instructions \
        --skip every_built_in_learns_a_batch_by_heart --skip outputs_are_as_close_to_those_in_f32
    cargo test --locked --target $arm -p shared --lib
    KERNELS_LEVEL=scalar cargo test --locked --target $arm -p models --lib -- kernels:: compression::
    cargo build --locked --target $arm --target $here -p aggregator -p edge-client'

# Simulations, one for each line.
inside 'rm -rf /tmp/runs; number=0
    while read -r config settings; do
        number=$((number + 1))
        set -- tests/configs/$config --set run.name=run-$number --set run.rounds=2 --set data.max-samples=400 $settings
        qemu-aarch64 /target/$arm/debug/aggregator simulate "$@" --runs /tmp/runs/arm </dev/null
        /target/$here/debug/aggregator simulate "$@" --runs /tmp/runs/here </dev/null
        cmp /tmp/runs/arm/run-$number/model.safetensors /tmp/runs/here/run-$number/model.safetensors
    done' <<'RUNS'
four-devices.toml
four-devices.toml --set update.precision=int8
four-devices.toml --set update.precision=int4
four-devices.toml --set model.name=lenet-5 --set evaluate.every=0
secure-private.toml --set simulation.reproducible-noise=true
RUNS

# A served run: the device 1 is emulated, the others and the server are not.
inside 'rm -rf /tmp/served; mkdir /tmp/served; cd /tmp/served; aggregator=/target/$here/debug/aggregator
    set -- /source/tests/configs/four-devices.toml --set run.rounds=2 --set data.clients=3 --set data.max-samples=300 \
        --set round.min-updates=3 --set round.min-clients-to-start=3 --set round.timeout=600
    $aggregator data split "$@" --out shares
    $aggregator serve "$@" --listen 127.0.0.1:0 --runs runs --ready-file ready >log 2>&1 & server=$!
    while [ ! -s ready ]; do kill -0 $server || { cat log; exit 1; }; sleep 0.2; done
    address=$(sed -n "s/.*\"address\":\"\([^\"]*\)\".*/\1/p" ready)
    $aggregator ticket --uses 3 --runs runs --address "$address" --json | grep -o "fed1[a-z0-9]*" >ticket
    for device in 0 1 2; do
        client=/target/$here/debug/edge-client; [ $device != 1 ] || client="qemu-aarch64 /target/$arm/debug/edge-client"
        $client join --json --ticket-file ticket --data shares/client-00$device --state state-$device >device-$device 2>&1 &
    done
    wait $server || { cat log device-*; exit 1; }
    clients=$(cat device-? | sed -n "s/.*\"client\":\(\"[0-9a-f]*\"\).*\"event\":\"started\".*/\1/p" | paste -sd,)
    $aggregator simulate "$@" --set "simulation.devices=[$clients]" --runs simulated
    cmp runs/four-devices/model.safetensors simulated/four-devices/model.safetensors'
echo 'both processors train the same bytes'
