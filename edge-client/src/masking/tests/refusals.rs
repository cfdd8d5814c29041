//! What a device refuses: too few devices, forged keys, and second lists.

use super::*;

/// Three devices and a server that has their keys.
fn begun() -> (Vec<Device>, Lab) {
    let (mut devices, mut lab) = (devices(3), Lab::new(0));
    for device in &mut devices {
        lab.asks_for_keys(device);
    }
    (devices, lab)
}

#[test]
fn neighbours_must_be_enough_distinct_and_signed() {
    let (devices, lab) = begun();
    let SecureStep::Neighbours { members, neighbours } = lab.neighbours(&devices[0]) else { unreachable!() };
    let (one, two) = (neighbours[0], neighbours[1]);
    let own = lab.said[&devices[0].client()];
    let party = |attempt, index: u8| {
        let exchange = Exchange { run: spec().run, round: ROUND, attempt };
        Party::new(exchange, key(index).public().client(), PartySecret::new([99; 32])).advertise(&key(index))
    };
    for (members, neighbours, says) in [
        (2, vec![one], "2 devices would hide this device's update among theirs, and the run promises 3"),
        (members, vec![one], "with 1 of 3 devices, and it must with 2"),
        (members + 1, vec![one, two], "with 2 of 4 devices, and it must with 3"),
        (members, vec![one, one], "a second time"),
        (members, vec![own, two], "a second time"),
        (members, vec![Advertised { masking: [9; 32], ..one }, two], "not signed"),
        (members, vec![one, party(1, 2)], "not signed"),
    ] {
        let (mut devices, _) = begun();
        let stored = devices[0].stored.clone();
        let step = SecureStep::Neighbours { members, neighbours };
        assert_eq!(devices[0].hears(0, step), None, "{says}");
        assert_eq!(devices[0].stored, stored, "nothing was shared");
        let [failed] = &devices[0].failed[..] else { panic!("{:?}", devices[0].failed) };
        assert!(failed.contains(says), "{failed}");
        assert_eq!(devices[0].warned[..], devices[0].failed[..]);
        // It fails the round when its task comes, and takes part in the next exchange.
        assert!(devices[0].machine.refusal(spec().run, ROUND).is_some());
        assert!(devices[0].machine.refusal(spec().run, ROUND + 1).is_none());
        devices[0].trains();
        assert_eq!((devices[0].failed.len(), devices[0].saved.is_none()), (2, true));
        let right = lab.neighbours(&devices[0]);
        assert_eq!(devices[0].hears(0, right), None, "not even the right ones");
        assert!(devices[0].hears(1, SecureStep::Advertise).is_some());
        assert!(devices[0].machine.refusal(spec().run, ROUND).is_none());
    }
    let (mut devices, _) = begun();
    assert!(devices[0].hears(0, SecureStep::Neighbours { members, neighbours: vec![one, two] }).is_some());
}

#[test]
fn other_neighbours_get_no_shares_of_a_secret_that_is_shared() {
    for restarts in [false, true] {
        let mut devices = devices(4);
        let mut lab = Lab::shared(0, &mut devices[..3]);
        lab.asks_for_keys(&mut devices[3]);
        let device = &mut devices[0];
        if restarts {
            device.restart();
        }
        assert_eq!(device.hears(0, lab.neighbours(device)), None);
        assert!(device.warned[0].contains("shares of this device's secrets"), "{:?}", device.warned);
    }
}

#[test]
fn an_update_is_hidden_among_enough_neighbours_and_none_else() {
    let mut devices = devices(5);
    let lab = Lab::shared(0, &mut devices);
    let SecureStep::Mask { rounding, present } = lab.mask(&devices[0]) else { unreachable!() };
    let foreign = (key(9).public().client(), present[0].1);
    let own = (devices[0].client(), present[0].1);
    let twice = [present[0], present[0], present[1]];
    let huge = Rounding { most_samples: 11, scale: Scale::agree(1000.0, 9, 10) };
    for (rounding, present, says) in [
        (rounding, present[..1].to_vec(), "2 of 3 devices are left"),
        (rounding, [&present[1..], &[foreign]].concat(), "is not one that this device shares masks with"),
        (rounding, [&present[1..], &[own]].concat(), "is not one that this device shares masks with"),
        (rounding, twice.to_vec(), "a second time"),
        (huge, present.clone(), "has no room for 10 samples"),
    ] {
        let mut devices = super::devices(5);
        Lab::shared(0, &mut devices);
        let device = &mut devices[0];
        assert_eq!(device.hears(0, SecureStep::Mask { rounding, present }), None);
        device.trains();
        assert!(device.saved.is_none() && device.failed[0].contains(says), "{:?}", device.failed);
    }
    // Two of five may be lost.
    devices[0].hears(0, SecureStep::Mask { rounding, present: present[..2].to_vec() });
    devices[0].trains();
    assert_eq!(devices[0].saved.as_ref().map(|(_, among)| *among), Some(3));
}

#[test]
fn a_second_update_is_not_hidden_with_the_masks_of_the_first() {
    for restarts in [false, true] {
        let mut devices = devices(5);
        let lab = Lab::shared(0, &mut devices);
        let counted: Vec<_> = devices.iter().map(Device::client).collect();
        let device = &mut devices[0];
        let mask = lab.mask(device);
        device.hears(0, mask.clone());
        device.trains();
        assert!(device.saved.take().is_some());
        if restarts {
            device.restart();
            device.hears(0, lab.neighbours(device));
        }
        let SecureStep::Mask { rounding, present } = mask.clone() else { unreachable!() };
        for other in [
            SecureStep::Mask { rounding, present: present[..3].to_vec() },
            SecureStep::Mask { rounding: Rounding { most_samples: 9, ..rounding }, present },
        ] {
            assert_eq!(device.hears(0, other), None);
            assert!(device.warned.pop().is_some_and(|said| said.contains("this device's update")));
        }
        // The first one stands, and is revealed with the others.
        device.hears(0, mask);
        assert!(device.hears(0, lab.reveal(device, &counted)).is_some());
        assert!(device.failed.is_empty());
        // Another update of the same task, as of a processor that rounds differently.
        let other = Plain::new(plain(0, ROUND).task().clone(), update(3));
        let actions = device.machine.trained(other);
        device.carry_out(actions);
        assert!(
            device.saved.is_none() && device.failed[0].contains("their difference"),
            "{:?}",
            device.failed
        );
    }
}

#[test]
fn one_share_of_each_neighbour_is_revealed_and_never_two() {
    for restarts in [false, true] {
        let mut devices = devices(5);
        let lab = Lab::shared(0, &mut devices);
        let clients: Vec<_> = devices.iter().map(Device::client).collect();
        let device = &mut devices[0];
        let mask = lab.mask(device);
        device.hears(0, mask.clone());
        device.trains();
        let step = |counted: &[usize], missing: &[usize]| {
            let named = |places: &[usize]| places.iter().map(|place| clients[*place]).collect();
            SecureStep::Reveal { counted: named(counted), missing: named(missing) }
        };
        for (refused, says) in [
            (step(&[1], &[2, 3, 4]), "2 of 3 devices are left"),
            (step(&[1, 2, 3], &[]), "does not say whether"),
            (step(&[1, 2, 3, 4], &[4]), "a second time"),
            (step(&[1, 1, 3, 4], &[2]), "a second time"),
            (step(&[0, 1, 2, 3], &[4]), "which is not one"),
        ] {
            assert_eq!(device.hears(0, refused), None, "{says}");
            let said = device.warned.pop().expect("the owner is warned");
            assert!(said.contains(says), "{said}");
        }
        let first = device.hears(0, step(&[1, 2, 3], &[4])).expect("half of the neighbours count");
        let SecureAnswer::Revealed(shares) = &first else { panic!("{first:?}") };
        assert_eq!(shares.len(), 5);
        if restarts {
            device.restart();
            device.hears(0, lab.neighbours(device));
            device.hears(0, mask);
        }
        assert_eq!(device.hears(0, step(&[1, 2, 3, 4], &[])), None);
        assert!(device.warned.pop().is_some_and(|said| said.contains("shares of other devices' secrets")));
        assert_eq!(device.hears(0, step(&[3, 2, 1], &[4])), Some(first), "the same list in another order");
    }
}

#[test]
fn shares_of_a_neighbour_that_do_not_open_are_left_out() {
    let mut devices = devices(4);
    let lab = Lab::shared(0, &mut devices);
    let counted: Vec<_> = devices.iter().map(Device::client).collect();
    let device = &mut devices[0];
    let SecureStep::Mask { rounding, mut present } = lab.mask(device) else { unreachable!() };
    present[0].1 = present[1].1;
    let (forged, _) = present[0];
    device.hears(0, SecureStep::Mask { rounding, present });
    let Some(SecureAnswer::Revealed(shares)) = device.hears(0, lab.reveal(device, &counted)) else {
        panic!("the others are revealed")
    };
    assert_eq!((shares.len(), shares.iter().any(|(of, _)| *of == forged)), (3, false));
    // The round is decided, and what comes now is of no use.
    device.trains();
    assert!(device.saved.is_none() && device.failed[0].contains("decided without"), "{:?}", device.failed);
}

#[test]
fn steps_that_do_not_follow_each_other_are_refused() {
    let (mut devices, lab) = begun();
    let device = &mut devices[0];
    let mask = SecureStep::Mask { rounding: rounding(), present: Vec::new() };
    let reveal = SecureStep::Reveal { counted: Vec::new(), missing: Vec::new() };
    assert_eq!(device.hears(0, reveal), None);
    assert!(device.warned.pop().is_some_and(|said| said.contains("before it has said who takes part")));
    assert_eq!(device.hears(1, lab.neighbours(device)), None);
    assert!(device.failed.pop().is_some_and(|said| said.contains("does not know")));
    assert_eq!(device.hears(0, mask), None);
    assert!(device.failed.pop().is_some_and(|said| said.contains("before it has said who takes part")));
}

#[test]
fn without_a_key_or_in_a_run_that_hides_nothing_a_device_says_nothing() {
    let mut device = Device::new(0);
    device.machine = Masking::new(device.client(), None);
    device.machine.load(spec().run, None);
    assert_eq!(device.hears(0, SecureStep::Advertise), None);
    let refusal = device.machine.refusal(spec().run, ROUND).expect("it cannot sign");
    assert!(refusal.reason.contains("no key to sign with"), "{refusal}");
    device.trains();
    assert!(device.saved.is_none() && device.failed.len() == 1);
    let mut device = Device::new(0);
    let plain = RunSpec::example("fedavg");
    let mut fresh = || panic!("no secret is drawn");
    assert!(device.machine.step(&plain, (ROUND, 0), SecureStep::Advertise, &mut fresh).is_empty());
    let mut fails = || Err(Failure::new(crate::failure::Blame::Machine, "no random numbers"));
    let actions = device.machine.step(&spec(), (ROUND, 0), SecureStep::Advertise, &mut fails);
    device.carry_out(actions);
    assert_eq!((device.failed, device.stored), (vec!["no random numbers".to_owned()], None));
}

#[test]
fn training_that_has_diverged_cannot_be_hidden() {
    let mut devices = devices(3);
    let lab = Lab::shared(0, &mut devices);
    let device = &mut devices[0];
    device.hears(0, lab.mask(device));
    let mut diverged = update(0);
    diverged.tensors.insert("head.fc.bias", Array::new(vec![2], vec![f32::NAN, 0.0]).unwrap());
    let actions = device.machine.trained(Plain::new(plain(0, ROUND).task().clone(), diverged));
    device.carry_out(actions);
    assert!(device.saved.is_none() && device.failed[0].contains("head.fc.bias"), "{:?}", device.failed);
}
