//! Rejected updates and rejected configurations.

use super::*;

/// An honest client's update.
fn update(spec: &RunSpec) -> Record {
    first_update(spec, &view(3, 1))
}

/// The same with its tensors changed.
fn changed(update: &Record, change: impl FnOnce(&mut ParamSet)) -> Record {
    let mut changed = update.clone();
    change(&mut changed.tensors);
    changed
}

#[test]
fn an_update_of_another_layout_is_rejected_with_the_tensors_name() {
    const WEIGHT: &str = "head.fc.weight";
    for name in registry::names() {
        let spec = spec(name);
        let server = Server::new(&spec, &[view(3, 1)]);
        let update = update(&spec);
        assert!(server.check(&update).is_ok(), "{name}");
        let change = |change: fn(&mut ParamSet)| changed(&update, change);
        let replace = |tensor: &str, shape: &[usize]| {
            changed(&update, |update| drop(update.insert(tensor, Array::zeros(shape))))
        };
        let missing = change(|update| drop(update.remove(WEIGHT)));
        let mut renamed = missing.clone();
        renamed.tensors.insert("head.fc.heaviness", Array::zeros([2, 4]));
        // The prototypes of an ensemble have none.
        let bias = update.tensors.get("head.fc.bias").is_some();
        let longer = if bias { "`head.fc.bias` has the shape [3] instead of [2]" } else { "`head.fc.bias`" };
        let first = format!("`{}`", initial(&spec).names().next().unwrap());
        let cases = [
            ("missing", missing, "`head.fc.weight`"),
            ("extra", replace("tail.fc.bias", &[1]), "`tail.fc.bias`"),
            ("renamed", renamed, "`head.fc.weight`"),
            ("reshaped", replace(WEIGHT, &[4, 2]), "`head.fc.weight` has the shape [4, 2] instead of [2, 4]"),
            ("longer", replace("head.fc.bias", &[3]), longer),
            ("empty", change(|update| *update = ParamSet::new()), &first),
        ];
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
        let extra =
            changed(&update(&spec), |update| drop(update.insert("z".repeat(100_000), Array::zeros([1]))));
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
        let update = update(&spec);
        let verdict = |value: f32| {
            let change = |update: &mut ParamSet| {
                update.get_mut("head.fc.weight").unwrap().values_mut()[5] = value;
            };
            server.check(&changed(&update, change)).err()
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
        let honest = update(&spec);
        let record = Record { scalars: [honest.scalars, vec![1]].concat(), ..honest };
        let rejection = server.algorithm.check(&server.round(1), record).err();
        assert!(matches!(rejection, Some(Rejection::Malformed { .. })), "{name}: {rejection:?}");
    }
}
