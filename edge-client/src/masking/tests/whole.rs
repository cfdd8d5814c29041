//! Whole exchanges: the sum is that of the plain updates, and no restart changes an answer.

use super::*;

/// Whether a device trains before it is told how to hide its update.
fn hides(lab: &Lab, device: &mut Device, trained_first: bool) {
    if trained_first {
        device.trains();
        assert!(device.saved.is_none(), "nothing is sent before it can be hidden");
    }
    assert_eq!(device.hears(lab.attempt, lab.mask(device)), None);
    if !trained_first {
        device.trains();
    }
}

#[test]
fn the_server_learns_the_sum_of_the_updates_that_count() {
    for (count, lost) in [(3, 0), (7, 0), (7, 2)] {
        let mut devices = devices(count);
        let mut lab = Lab::shared(0, &mut devices);
        for (device, first) in devices.iter_mut().zip([true, false].into_iter().cycle()) {
            hides(&lab, device, first);
            let (update, among) = device.saved.as_ref().expect("it is hidden");
            assert_eq!((*among, update.id.round), (usize::from(count), ROUND));
            assert!(hidden_record(update).tensors.is_empty());
        }
        let counted: Vec<_> = devices[lost..].iter().map(Device::client).collect();
        for device in &mut devices[lost..] {
            lab.asks_to_reveal(device, &counted);
            assert!(device.failed.is_empty() && device.warned.is_empty());
        }
        let counted: Vec<&Device> = devices[lost..].iter().collect();
        assert_eq!(lab.sum(&counted), seen(&counted), "{count} devices, {lost} lost");
    }
}

#[test]
fn a_restart_after_any_durable_step_changes_no_answer() {
    let play = |dies: Option<usize>| {
        let mut devices = devices(4);
        devices[1].dies = dies;
        let mut lab = Lab::new(0);
        let mut tell = |lab: &mut Lab, step: &dyn Fn(&mut Lab, &mut Device)| {
            for device in &mut devices {
                let before = device.dies;
                step(lab, device);
                if before.is_some() && device.dies.is_none() {
                    // The server says again what it has said.
                    lab.asks_for_keys(device);
                    if lab.said.len() == 4 {
                        lab.asks_for_shares(device);
                    }
                    if lab.present.len() == 4 && device.index == 1 && device.saved.is_none() {
                        device.hears(0, lab.mask(device));
                        device.trains();
                    }
                }
            }
        };
        tell(&mut lab, &|lab, device| lab.asks_for_keys(device));
        tell(&mut lab, &|lab, device| lab.asks_for_shares(device));
        tell(&mut lab, &|lab, device| hides(lab, device, true));
        let counted: Vec<_> = devices.iter().map(Device::client).collect();
        for device in &mut devices {
            let step = lab.reveal(device, &counted);
            if device.hears(0, step).is_none() {
                assert_eq!(device.dies, None, "it has died instead");
                lab.asks_for_keys(device);
                lab.asks_for_shares(device);
                device.hears(0, lab.mask(device));
            } else {
                device.answers.pop();
            }
            lab.asks_to_reveal(device, &counted);
        }
        let all: Vec<&Device> = devices.iter().collect();
        assert_eq!(lab.sum(&all), seen(&all));
        let device = &mut devices[1];
        assert!(device.failed.is_empty() && device.warned.is_empty(), "{:?}", device.failed);
        assert_eq!((device.draws, device.dies), (2, None), "one secret, and that of the run's noise");
        let saved = device.saved.take().expect("it is hidden").0.payload;
        (saved, device.answers.split_off(device.answers.len() - 1))
    };
    let undisturbed = play(None);
    for step in 1..=4 {
        assert!(play(Some(step)) == undisturbed, "after step {step}");
    }
}

#[test]
fn what_is_said_again_is_answered_the_same() {
    let mut devices = devices(3);
    let lab = Lab::shared(0, &mut devices);
    let counted: Vec<_> = devices.iter().map(Device::client).collect();
    let device = &mut devices[0];
    hides(&lab, device, false);
    device.hears(0, lab.reveal(device, &counted));
    let (said, saved, stored) = (device.answers.clone(), device.saved.take(), device.stored.clone());
    assert_eq!(said.len(), 3);
    for restarts in [false, true] {
        if restarts {
            device.restart();
        }
        device.answers.clear();
        device.hears(0, SecureStep::Advertise);
        device.hears(0, lab.neighbours(device));
        device.hears(0, lab.mask(device));
        device.hears(0, lab.reveal(device, &counted));
        assert_eq!((&device.answers, device.saved.as_ref().map(|_| ())), (&said, None), "{restarts}");
    }
    // A power failure has lost the update: it is trained again, and hidden the same.
    device.trains();
    let again = device.saved.take().map(|(update, _)| update.payload);
    assert_eq!(again, saved.map(|(update, _)| update.payload));
    assert_eq!(device.stored, stored, "nothing more was kept");
    assert!(device.failed.is_empty() && device.warned.is_empty());
}

#[test]
fn a_trained_update_is_hidden_in_the_newest_exchange_of_its_round() {
    let mut devices = devices(4);
    let first = Lab::shared(0, &mut devices);
    devices.iter_mut().for_each(Device::trains);
    // The last device is lost before it can hide its update.
    devices.truncate(3);
    let mut second = Lab::shared(1, &mut devices);
    for device in &mut devices {
        assert_eq!(device.draws, 3, "each exchange has a secret of its own, and the run one for noise");
        assert_eq!(device.hears(0, SecureStep::Advertise), None, "an older exchange is over");
        assert_eq!(device.hears(0, first.mask(device)), None);
        assert!(device.saved.is_none());
        device.hears(1, second.mask(device));
        assert_eq!(device.saved.as_ref().map(|(_, among)| *among), Some(3));
    }
    let counted: Vec<_> = devices.iter().map(Device::client).collect();
    for device in &mut devices {
        second.asks_to_reveal(device, &counted);
    }
    let all: Vec<&Device> = devices.iter().collect();
    assert_eq!(second.sum(&all), seen(&all));
}

#[test]
fn a_job_of_an_older_exchange_or_of_a_cancelled_task_brings_nothing() {
    let mut devices = devices(3);
    let first = Lab::shared(0, &mut devices);
    let device = &mut devices[0];
    device.hears(0, first.mask(device));
    let job = |device: &mut Device| {
        let actions = device.machine.trained(plain(0, ROUND));
        let [Action::Mask(job)] = &actions[..] else { panic!("{actions:?}") };
        job.run()
    };
    let cancelled = job(device);
    device.machine.cancel();
    assert!(device.machine.masked(cancelled).is_empty());
    let old = job(device);
    let second = Lab::shared(1, &mut devices);
    let device = &mut devices[0];
    assert!(device.machine.masked(old).is_empty());
    device.hears(1, second.mask(device));
    assert!(device.saved.is_some(), "the update was kept for the newer exchange");
}

#[test]
fn a_job_with_other_devices_than_the_server_has_named_last_brings_nothing() {
    let mut devices = devices(5);
    let lab = Lab::shared(0, &mut devices);
    let device = &mut devices[0];
    let SecureStep::Mask { rounding, present } = lab.mask(device) else { unreachable!() };
    device.hears(0, lab.mask(device));
    let actions = device.machine.trained(plain(0, ROUND));
    let [Action::Mask(first)] = &actions[..] else { panic!("{actions:?}") };
    let fewer = SecureStep::Mask { rounding, present: present[1..].to_vec() };
    let mut never = || panic!("the exchange has a secret");
    let actions = device.machine.step(&spec(), (ROUND, 0), fewer.clone(), &mut never);
    let [Action::Mask(second)] = &actions[..] else { panic!("{actions:?}") };
    assert!(device.machine.step(&spec(), (ROUND, 0), fewer, &mut never).is_empty(), "it runs already");
    assert!(device.machine.masked(first.run()).is_empty());
    let actions = device.machine.masked(second.run());
    device.carry_out(actions);
    assert_eq!(device.saved.as_ref().map(|(_, among)| *among), Some(4));
}

#[test]
fn an_update_of_an_older_round_is_not_hidden_in_a_newer_one() {
    let mut devices = devices(3);
    let mut old = Lab::new(0);
    for device in &mut devices {
        old.asks_for_keys(device);
    }
    let device = &mut devices[0];
    let actions = device.machine.trained(plain(0, ROUND - 1));
    device.carry_out(actions);
    old.asks_for_shares(device);
    old.asks_for_shares(&mut devices[1]);
    old.asks_for_shares(&mut devices[2]);
    let device = &mut devices[0];
    device.hears(0, old.mask(device));
    assert!(device.saved.is_none() && device.failed.is_empty());
    let next = device.hears_in(ROUND + 1, 0, SecureStep::Advertise);
    assert!(matches!(next, Some(SecureAnswer::Keys(_))));
    assert_eq!(device.hears(0, SecureStep::Advertise), None, "the round before is over");
}
