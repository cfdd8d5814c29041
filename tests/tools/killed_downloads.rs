//! Devices that are killed before a model has arrived.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use federation_tests::process::Process;
use federation_tests::slow_links::SlowLinks;

/// Devices that are killed with `kill -9` and started again sooner than a model arrives: one round, real processes.
///
/// Each device has a link of its own. The model is `resnet-18` in 16 bits, 22 MB, which takes 13 s at 14 Mbit/s. Prints how long the round
/// took and how often the model was sent to each device.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Devices.
    #[arg(long, default_value_t = 10)]
    devices: u8,
    /// Seconds that each process lives.
    #[arg(long, default_value_t = 9.0)]
    life: f64,
    /// Mbit/s of each link.
    #[arg(long, default_value_t = 14.0)]
    width: f64,
    /// Seconds after which a run that has not ended is given up.
    #[arg(long, default_value_t = 185)]
    limit: u64,
}

/// How often is looked whether a process has ended.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) fn run(arguments: &Arguments) {
    let &Arguments { devices, life, width, limit } = arguments;
    let samples = format!("data.max-samples={}", 2 * devices);
    let overrides = ["model.name=resnet-18", "update.precision=f16", &samples];
    let links = SlowLinks::new(devices, &overrides, width * 125e3);
    let mut server = links.testbed.serve();
    let began = Instant::now();
    let over = AtomicBool::new(false);
    let lives = thread::scope(|scope| {
        let (links, over) = (&links, &over);
        let live = |index| scope.spawn(move || lives(links, index, Duration::from_secs_f64(life), over));
        let devices: Vec<_> = (0..devices).map(live).collect();
        while server.alive() && began.elapsed() < Duration::from_secs(limit) {
            thread::sleep(LOOK);
        }
        over.store(true, Ordering::Relaxed);
        devices.into_iter().map(|device| device.join().expect("a device is only watched")).sum::<u32>()
    });
    let took = began.elapsed().as_secs_f64();
    let rounds = if links.testbed.closed() == 1 { "the round closed" } else { "no round" };
    let sent: Vec<u64> = (0..devices).map(|index| links.sent_to(index)).collect();
    println!("{devices} devices, killed every {life} s, {width} Mbit/s each: {rounds} in {took:.0} s");
    println!("  {lives} processes, {:.0} MB sent to all of them", sent.iter().sum::<u64>() as f64 / 1e6);
    if rounds != "no round" {
        let model = links.testbed.model().len() as f64 / 2.0;
        let most = sent.iter().max().copied().unwrap_or_default() as f64 / model;
        let all = sent.iter().sum::<u64>() as f64 / model / f64::from(devices);
        println!(
            "  {:.1} MB of model in 16 bits: sent {all:.2} times on average, {most:.2} times at most",
            model / 1e6
        );
    }
}

/// Starts and kills a device until the run is over. Returns how many processes that took.
fn lives(links: &SlowLinks, index: u8, life: Duration, over: &AtomicBool) -> u32 {
    for lives in 1.. {
        let mut device: Process = links.start(index);
        let began = Instant::now();
        while began.elapsed() < life {
            if over.load(Ordering::Relaxed) || !device.alive() {
                return lives;
            }
            thread::sleep(LOOK);
        }
    }
    unreachable!("a device does not live so often")
}
