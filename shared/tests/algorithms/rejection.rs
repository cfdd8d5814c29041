//! What is not believed, and what is not configured.

use super::*;

/// An update of the example model's layout, all 0.5.
fn update() -> ParamSet {
    let mut update = initial(&spec("fedavg"));
    for (_, array) in update.iter_mut() {
        array.values_mut().fill(0.5);
    }
    update
}

#[test]
fn an_update_of_another_layout_is_rejected_with_the_tensors_name() {
    let mut missing = update().select("head.fc.b");
    assert_eq!(missing.names().collect::<Vec<_>>(), ["head.fc.bias"]);
    let mut extra = update();
    extra.insert("tail.fc.bias", Array::zeros([1]));
    let mut renamed = missing.clone();
    renamed.insert("head.fc.heaviness", Array::zeros([2, 4]));
    let mut reshaped = update();
    reshaped.insert("head.fc.weight", Array::zeros([4, 2]));
    let mut longer = update();
    longer.insert("head.fc.bias", Array::zeros([3]));
    missing.insert("head.fc.bias", Array::zeros([2]));
    let cases = [
        ("missing", missing, "`head.fc.weight`"),
        ("extra", extra, "`tail.fc.bias`"),
        ("renamed", renamed, "`head.fc.weight`"),
        ("reshaped", reshaped, "`head.fc.weight` has the shape [4, 2] instead of [2, 4]"),
        ("longer", longer, "`head.fc.bias` has the shape [3] instead of [2]"),
        ("empty", ParamSet::new(), "`head.fc.bias`"),
    ];
    for name in registry::names() {
        let spec = spec(name);
        let server = Server::new(&spec, &[view(3, 1)]);
        assert!(server.check(&update()).is_ok(), "{name}");
        for (case, update, tensor) in &cases {
            match server.check(update).err() {
                Some(Rejection::Layout { reason }) => {
                    assert!(reason.contains(tensor), "{name}, {case}: {reason}");
                }
                other => panic!("{name}, {case}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_rejection_fits_into_a_message_however_long_a_tensors_name_is() {
    for name in registry::names() {
        let spec = spec(name);
        let server = Server::new(&spec, &[view(3, 1)]);
        let mut extra = update();
        extra.insert("z".repeat(100_000), Array::zeros([1]));
        let rejection = server.check(&extra).err().unwrap();
        let receipt = ToClient::Receipt { round: 1, verdict: Verdict::Rejected(rejection) };
        assert!(frame::encode(&receipt, 0).len() < 1000, "{name}");
    }
}

#[test]
fn an_update_of_impossible_values_is_rejected() {
    for name in registry::names() {
        let spec = spec(name);
        let server = Server::new(&spec, &[view(3, 1)]);
        let verdict = |value: f32| {
            let mut update = update();
            update.get_mut("head.fc.weight").unwrap().values_mut()[5] = value;
            server.check(&update).err()
        };
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let tensor = "head.fc.weight".to_owned();
            assert_eq!(verdict(value), Some(Rejection::NotFinite { tensor }), "{name}, {value}");
        }
        for value in [MAX_ABS, -MAX_ABS, 0.0, -0.0, f32::MIN_POSITIVE / 2.0] {
            assert_eq!(verdict(value), None, "{name}, {value}");
        }
        for value in [MAX_ABS.next_up(), -MAX_ABS.next_up(), f32::MAX] {
            let tensor = "head.fc.weight".to_owned();
            let expected = Rejection::TooLarge { tensor, found: value.abs(), limit: MAX_ABS };
            assert_eq!(verdict(value), Some(expected), "{name}, {value}");
        }
    }
}

#[test]
fn an_update_with_scalars_is_malformed() {
    for name in registry::names() {
        let spec = spec(name);
        let server = Server::new(&spec, &[view(3, 1)]);
        let parcel = Parcel { tensors: update(), scalars: vec![1] };
        let rejection = server.algorithm.check(&server.round(1), parcel).err();
        assert!(matches!(rejection, Some(Rejection::Malformed { .. })), "{name}: {rejection:?}");
    }
}

#[test]
fn fedsgd_refuses_settings_that_it_would_ignore() {
    let fedsgd = registry::build(&spec("fedsgd").algorithm).unwrap();
    let fedavg = registry::build(&spec("fedavg").algorithm).unwrap();
    let fine = training(1, 0);
    assert_eq!(fedsgd.validate(&fine), Ok(()));
    let cases = [
        (Training { epochs: 5, ..fine }, "training.epochs must be 1, not 5"),
        (Training { batch: 10, ..fine }, "training.batch must be 0 (full batch), not 10"),
        (Training { sgd: Sgd { momentum: 0.9, ..fine.sgd }, ..fine }, "sgd.momentum must be 0, not 0.9"),
    ];
    for (training, reason) in cases {
        let refusal = fedsgd.validate(&training).expect_err(reason);
        assert!(refusal.contains(reason) && refusal.contains("fedsgd"), "{refusal}");
        assert_eq!(fedavg.validate(&training), Ok(()));
    }
}
