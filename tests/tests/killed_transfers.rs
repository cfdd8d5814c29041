//! Devices that are killed while a task arrives, or while their update is sent: the next process goes on with it.

use std::thread;

use federation_tests::process::{Process, until};
use federation_tests::slow_links::SlowLinks;
use serde_json::json;

/// A model takes more than three seconds; half of its first second would not be worth the disk.
const WIDTH: f64 = 2e6;
const DEVICES: u8 = 2;
/// Devices are killed when this number of bytes of the model are here.
const KILLED_AT: [u64; 2] = [2_500_000, 4_500_000];

fn links() -> SlowLinks {
    SlowLinks::new(DEVICES, &["model.name=cnn-mnist", "data.max-samples=200"], WIDTH)
}

/// What `live` makes of every device, all at the same time.
fn each(live: impl Fn(u8) -> Process + Sync) -> Vec<Process> {
    let live = &live;
    thread::scope(|scope| {
        let devices: Vec<_> = (0..DEVICES).map(|index| scope.spawn(move || live(index))).collect();
        devices.into_iter().map(|device| device.join().unwrap()).collect()
    })
}

fn assert_once(bytes: u64, links: &SlowLinks, what: &str) {
    let model = links.testbed.model().len() as u64;
    assert!(bytes * 10 <= model * 13, "{bytes} bytes were sent {what} for a model of {model}");
}

#[test]
fn devices_that_are_killed_again_and_again_receive_a_task_once() {
    let links = links();
    let server = links.testbed.serve();
    let devices = each(|index| {
        for kept in KILLED_AT {
            let device = links.start(index);
            until("its download has come so far", || links.kept(index) >= kept);
            device.kill();
        }
        // And once when it has all of it.
        let mut device = links.start(index);
        device.object(&json!({ "event": "training", "round": 1 }));
        device.kill();
        links.start(index)
    });
    links.testbed.assert_completed(server, devices);
    for index in 0..DEVICES {
        assert_once(links.sent_to(index), &links, "to a device");
        assert_eq!(links.kept(index), 0, "its update is saved");
    }
}

#[test]
fn devices_that_are_killed_again_and_again_send_an_update_once() {
    let links = links();
    let server = links.testbed.serve();
    let devices = each(|index| {
        for spooled in KILLED_AT {
            let device = links.start(index);
            until("its update has come so far", || links.spooled(index) >= spooled);
            device.kill();
        }
        links.start(index)
    });
    links.testbed.assert_completed(server, devices);
    (0..DEVICES).for_each(|index| assert_once(links.sent_by(index), &links, "by a device"));
}
