//! SCAFFOLD's control variates: the server's is the mean of its clients', for any order of arrival and any encoding.

use models::Architecture;
use shared::spec::UpdateFormat;
use shared::spec::UpdateFormat::{BF16, F16, F32, Int4, Int8};

use super::*;

/// Everything on the wire in this format.
fn sent(precision: UpdateFormat) -> RunSpec {
    let mut spec = with(&spec("scaffold"), training(2, 4));
    if precision.compression().is_some() {
        // What is short is not compressed.
        let (input, classes) = (spec.architecture.input.clone(), spec.architecture.classes);
        spec.architecture = Architecture::by_name("mlp-2nn", &input, classes).unwrap();
    }
    RunSpec { update: Update { precision, ..spec.update }, ..spec }
}

/// A round of the first `known` clients, of which the server knows no others.
fn round_of(federation: &mut Federation<'_>, known: usize) {
    federation.server.clients = known;
    let updates: Vec<_> = (0..known).map(|index| federation.train(index)).collect();
    federation.number += 1;
    let closed = federation.server.close(&federation.state, &updates, federation.number);
    federation.state = wire(&closed, Precision::F32);
}

/// How far the server's is from the mean of what the first `known` clients have, and how long that is.
fn off(federation: &Federation<'_>, known: usize) -> (f32, f32) {
    let c = federation.state.tensors.clone().take_under("control.");
    let mut mean = c.zeros_like();
    for c_k in federation.locals.iter().flatten() {
        mean.add_scaled(1.0 / known as f32, &c_k.tensors).unwrap();
    }
    (apart(&c, &mean), c.max_abs())
}

#[test]
fn it_is_their_mean_though_more_of_them_become_known() {
    let shares = [view(12, 1), view(7, 2), view(9, 3), view(12, 4)];
    for precision in [F32, F16, BF16, Int8, Int4] {
        let spec = sent(precision);
        let mut federation = Federation::new(&spec, &shares);
        for known in [1, 1, 2, 2, 4, 4, 4] {
            round_of(&mut federation, known);
            let (off, longest) = off(&federation, known);
            assert!(off < 1e-6 && longest > 1e-3, "{precision}, {known} clients: {off} off {longest}");
        }
        // The roster has an end: who is known no more may come again, and has what it had.
        federation.server.clients = 3;
        let update = federation.train(1);
        federation.state = federation.server.close(&federation.state, &[update], 8);
        assert!(off(&federation, 4).0 < 1e-6, "{precision}");
    }
}

/// Samples are what models count by, and up to 2^32 of them are believed.
#[test]
fn it_is_their_mean_for_any_numbers_of_samples() {
    let shares = [view(12, 1), view(7, 2)];
    let spec = sent(UpdateFormat::F32);
    let mut federation = Federation::new(&spec, &shares);
    federation.server.scale = Scale::agree(MAX_ABS, 1 << 32, 2);
    round_of(&mut federation, 2);
    let (off, longest) = off(&federation, 2);
    assert!(off < 1e-6 && longest > 1e-3, "{off} off {longest}");
}

/// A checkpoint of before the server kept how many clients there were.
#[test]
fn it_goes_on_from_where_it_was() {
    let shares = [view(12, 1), view(7, 2), view(9, 3)];
    let spec = sent(UpdateFormat::F32);
    let mut federation = Federation::new(&spec, &shares);
    round_of(&mut federation, 3);
    federation.state.scalars.clear();
    round_of(&mut federation, 3);
    assert!(off(&federation, 3).0 < 1e-6 && !federation.state.scalars.is_empty());
}

/// Their clients were told that their updates count.
#[test]
fn it_is_their_mean_although_a_round_failed() {
    let shares = [view(12, 1), view(7, 2), view(9, 3)];
    let spec = sent(UpdateFormat::F32);
    let mut federation = Federation::new(&spec, &shares);
    for number in 1..=4 {
        let updates: Vec<_> = (0..2).map(|index| federation.train(index)).collect();
        let before = federation.server.current_model(&federation.state);
        federation.state = federation.server.close_failed(&federation.state, &updates, number);
        assert_eq!(federation.server.current_model(&federation.state), before, "the model stays");
        let (off, longest) = off(&federation, 3);
        assert!(off < 1e-6 && longest > 1e-4, "{off} off {longest}");
    }
}
