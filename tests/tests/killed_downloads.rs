//! Devices that are killed while a task arrives: the next process goes on with it.

use std::thread;

use federation_tests::process::until;
use federation_tests::slow_downloads::SlowDownloads;
use serde_json::json;

/// A download takes more than three seconds; half of its first second would not be worth the disk.
const WIDTH: f64 = 2e6;
const DEVICES: u8 = 2;

#[test]
fn devices_that_are_killed_again_and_again_receive_a_task_once() {
    let downloads = SlowDownloads::new(DEVICES, &["model.name=cnn-mnist", "data.max-samples=200"], WIDTH);
    let server = downloads.testbed.serve();
    let devices = thread::scope(|scope| {
        let killed = |index| {
            let downloads = &downloads;
            scope.spawn(move || {
                for kept in [2_500_000, 4_500_000] {
                    let device = downloads.start(index);
                    until("its download has come so far", || downloads.kept(index) >= kept);
                    device.kill();
                }
                // And once when it has all of it.
                let mut device = downloads.start(index);
                device.object(&json!({ "event": "training", "round": 1 }));
                device.kill();
                downloads.start(index)
            })
        };
        let killed: Vec<_> = (0..DEVICES).map(killed).collect();
        killed.into_iter().map(|device| device.join().unwrap()).collect()
    });
    downloads.testbed.assert_completed(server, devices);
    let model = downloads.testbed.model().len() as u64;
    for index in 0..DEVICES {
        let sent = downloads.sent_to(index);
        assert!(sent * 10 <= model * 13, "{sent} bytes were sent to device {index} for a model of {model}");
        assert_eq!(downloads.kept(index), 0, "its update is saved");
    }
}
