#!/bin/sh
# Tests this code on 64-bit ARM, emulated, and compares what is trained there with what this machine's processor trains. Ends with 0 if
# all tests pass and all models have the same bytes.
#
#     tests/arm64.sh FOLDER
#
# Needs Debian on amd64, root, debootstrap and the network. FOLDER gets a system of Debian's unstable release with Rust for both
# processors, and what is built there, 8 GB in all; a later call uses them again. What is mounted is mounted for this script alone.
set -eu
[ $# = 1 ] || { echo "$0: give the folder for the emulated system" >&2; exit 2; }
[ -n "${OWN_MOUNTS:-}" ] || OWN_MOUNTS=1 exec unshare --mount "$0" "$1"
mkdir -p "$1/system"
root=$(cd "$(dirname "$0")/.." && pwd)
system=$(cd "$1/system" && pwd)
registry=${CARGO_HOME:-$HOME/.cargo}/registry

inside() { # COMMANDS, for the shell of that system, in this repository
    chroot "$system" /usr/bin/env -i PATH=/usr/sbin:/usr/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive CARGO_HOME=/cargo \
        CARGO_TARGET_DIR=/target CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_BUILD_JOBS="${CARGO_BUILD_JOBS:-$(nproc)}" \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64 \
        arm=aarch64-unknown-linux-gnu here=x86_64-unknown-linux-gnu /bin/sh -euc "cd /source; $1"
}

if [ ! -e "$system/complete" ]; then
    debootstrap --variant=minbase sid "$system" http://deb.debian.org/debian
    # A mirror may be some weeks behind. Signatures are checked as always.
    echo 'Acquire::Check-Valid-Until "false";' >"$system/etc/apt/apt.conf.d/99mirror"
    mkdir -p "$system/source" "$system/cargo/registry" "$system/target"
    inside 'dpkg --add-architecture arm64; apt-get update -q
        apt-get install -yq --no-install-recommends ca-certificates cargo rustc gcc libc6-dev libstd-rust-dev:arm64 \
            gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user; apt-get clean'
    touch "$system/complete"
fi
mkdir -p "$registry"
mount --bind "$root" "$system/source"
mount --bind "$registry" "$system/cargo/registry"
mount -t proc proc "$system/proc"
mount --rbind /dev "$system/dev"

# One test starts itself anew without vector instructions, which it cannot under the emulator: the second line does so.
inside 'cargo test --locked --target $arm -p models -p shared --lib -- --skip the_kernels_pass_their_tests_with_lesser_instructions
    KERNELS_LEVEL=scalar cargo test --locked --target $arm -p models --lib -- kernels:: compression::
    cargo build --locked --target $arm --target $here -p aggregator -p edge-client'

# Simulations, with each line of settings.
inside 'rm -rf /tmp/runs; number=0
    while read -r settings; do
        number=$((number + 1))
        set -- tests/configs/four-devices.toml --set run.name=$number --set run.rounds=2 --set data.max-samples=400 $settings
        qemu-aarch64 /target/$arm/debug/aggregator simulate "$@" --runs /tmp/runs/arm </dev/null
        /target/$here/debug/aggregator simulate "$@" --runs /tmp/runs/here </dev/null
        cmp /tmp/runs/arm/$number/model.safetensors /tmp/runs/here/$number/model.safetensors
    done' <<'SETTINGS'

--set update.precision=int8
--set update.precision=int4
--set model.name=mlp-2nn
--set model.name=cnn-mnist --set training.optimizer.sgd.learning-rate=0.05
SETTINGS

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
    clients=$(for device in 0 1 2; do sed -n "s/.*\"client\":\(\"[0-9a-f]*\"\).*/\1/p" device-$device | head -n 1; done | paste -sd,)
    $aggregator simulate "$@" --set "simulation.devices=[$clients]" --runs simulated
    cmp runs/four-devices/model.safetensors simulated/four-devices/model.safetensors'
echo 'both processors train the same bytes'
