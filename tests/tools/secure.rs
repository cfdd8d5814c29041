//! Hidden updates where devices are lost, in virtual time.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use federation_tests::lost_devices::{Federation, Lost};
use federation_tests::simulator::Loses;

/// Loses devices of a secure aggregation at each of its four steps: keys, shares, update, shares that are revealed.
///
/// Time is virtual and everything else is real: coordinator, durable steps, sessions, training, cryptography. In the second round the
/// share that is given falls silent for good. The model must then have the bits of a run without masks that has the same updates,
/// and a round with too few devices must be void and leave the model as it was. Exit code 1 if not.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Numbers of devices, at least three.
    #[arg(long, value_delimiter = ',', default_values_t = [3, 10, 100])]
    devices: Vec<u32>,
    /// Shares of them that are lost; of any but 0 at least one device.
    #[arg(long, value_delimiter = ',', default_values_t = [0.0, 0.1, 0.3])]
    lost: Vec<f64>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Some(few) = arguments.devices.iter().find(|devices| **devices < 3) {
        eprintln!("{few} devices: a sum of fewer than three is never learned; give --devices 3 or more");
        return ExitCode::from(2);
    }
    if let Some(share) = arguments.lost.iter().find(|share| !(0.0..1.0).contains(*share)) {
        eprintln!("--lost {share}: give shares from 0 to less than 1");
        return ExitCode::from(2);
    }
    println!(
        "{:>7} {:>6} {:<8} {:>8} {:>5} {:>15} {:>10}  model",
        "devices", "lost", "step", "counted", "void", "virtual time", "real time"
    );
    let mut differ = 0;
    for devices in &arguments.devices {
        for &lost in &arguments.lost {
            let federation = Federation { devices: *devices as usize, lost };
            // Without losses all steps are one.
            let steps = if lost > 0.0 { &Loses::STEPS[..] } else { &Loses::STEPS[..1] };
            for &step in steps {
                let begun = Instant::now();
                let found = federation.lose(step);
                row(federation, step, &found, begun.elapsed().as_secs_f64());
                differ += usize::from(!found.same_bits);
            }
        }
    }
    println!("{differ} models differ");
    ExitCode::from(u8::from(differ > 0))
}

fn row(federation: Federation, step: Loses, found: &Lost, seconds: f64) {
    let name = match step {
        _ if federation.lost <= 0.0 => "-",
        Loses::Keys => "keys",
        Loses::Shares => "shares",
        Loses::Update => "update",
        Loses::Reveal => "reveal",
    };
    let model = match (found.same_bits, found.void) {
        (true, false) => "that of a run without masks",
        (true, true) => "unchanged: too few devices",
        (false, _) => "DIFFERS",
    };
    println!(
        "{:>7} {:>6} {name:<8} {:>8} {:>5} {:>13.0} s {seconds:>8.1} s  {model}",
        federation.devices,
        found.lost,
        found.counted,
        if found.void { "yes" } else { "no" },
        found.took.as_secs_f64(),
    );
}
