//! `federation-lab`: benchmarks, fuzzing and endurance tests, one subcommand each.

#[cfg(unix)]
mod accepted_updates;
mod bytes;
#[cfg(unix)]
mod cluster_soak;
mod corrected_step;
mod faults;
mod fold;
mod fuzz;
mod idle;
mod idle_devices;
mod killed_downloads;
mod killed_formats;
mod live_page;
mod memory;
mod null_round;
mod schedules;
mod secure;
mod seeds;
mod several_schedules;
#[cfg(unix)]
mod several_servers;
mod soak;
mod stragglers;
mod trainer;
mod virtual_clients;

use std::process::ExitCode;

use clap::Parser;

/// Benchmarks, fuzzing and endurance tests of the federation.
///
/// Times and memory are only meaningful with `cargo run --release`. `fuzz`, `schedules` and `soak` are best run without it,
/// because the profile `dev` checks for integer overflow.
#[derive(Parser)]
#[command(name = "federation-lab", version)]
enum Tool {
    Fuzz(fuzz::Arguments),
    Schedules(schedules::Arguments),
    Secure(secure::Arguments),
    Soak(soak::Arguments),
    #[cfg(unix)]
    ClusterSoak(cluster_soak::Arguments),
    Faults(faults::Arguments),
    KilledDownloads(killed_downloads::Arguments),
    KilledFormats(killed_formats::Arguments),
    NullRound(null_round::Arguments),
    Bytes(bytes::Arguments),
    #[cfg(unix)]
    AcceptedUpdates(accepted_updates::Arguments),
    #[cfg(unix)]
    SeveralServers(several_servers::Arguments),
    LivePage(live_page::Arguments),
    Memory(memory::Arguments),
    Idle(idle::Arguments),
    IdleDevices(idle_devices::Arguments),
    Stragglers(stragglers::Arguments),
    VirtualClients(virtual_clients::Arguments),
    Fold(fold::Arguments),
    CorrectedStep(corrected_step::Arguments),
    Trainer(trainer::Arguments),
}

fn main() -> ExitCode {
    match Tool::parse() {
        Tool::Fuzz(arguments) => return fuzz::run(&arguments),
        Tool::Schedules(arguments) => return schedules::run(&arguments),
        Tool::Secure(arguments) => return secure::run(&arguments),
        Tool::KilledFormats(arguments) => return killed_formats::run(&arguments),
        Tool::Faults(arguments) => return faults::run(&arguments),
        Tool::Soak(arguments) => soak::run(&arguments),
        #[cfg(unix)]
        Tool::ClusterSoak(arguments) => cluster_soak::run(&arguments),
        Tool::KilledDownloads(arguments) => killed_downloads::run(&arguments),
        Tool::NullRound(arguments) => null_round::run(&arguments),
        Tool::Bytes(arguments) => bytes::run(&arguments),
        #[cfg(unix)]
        Tool::AcceptedUpdates(arguments) => accepted_updates::run(&arguments),
        #[cfg(unix)]
        Tool::SeveralServers(arguments) => several_servers::run(&arguments),
        Tool::LivePage(arguments) => live_page::run(&arguments),
        Tool::Memory(arguments) => memory::run(&arguments),
        Tool::Idle(arguments) => idle::run(&arguments),
        Tool::IdleDevices(arguments) => idle_devices::run(&arguments),
        Tool::Stragglers(arguments) => stragglers::run(&arguments),
        Tool::VirtualClients(arguments) => virtual_clients::run(&arguments),
        Tool::Fold(arguments) => fold::run(&arguments),
        Tool::CorrectedStep(arguments) => corrected_step::run(&arguments),
        Tool::Trainer(arguments) => trainer::run(&arguments),
    }
    ExitCode::SUCCESS
}
