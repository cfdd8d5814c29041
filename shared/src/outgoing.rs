//! Updates as their clients send them, and as the server reads them.

use models::compression;
use models::params::codec::Limits;
use models::{ParamSet, ParameterKind};

use crate::payload::Payload;
use crate::record::{Record, RecordError};
use crate::seed::Seed;
use crate::spec::RunSpec;

/// The bytes of an update in the run's format. `seed` is the client's in this round: where values are compressed, their errors
/// are others in every round and on every client.
#[must_use]
pub fn payload(update: &Record, spec: &RunSpec, seed: &Seed) -> Payload {
    match spec.update.compression(*seed.derive("compression").as_bytes()) {
        Some(compression) => update.to_compressed(&compression, &spared(spec)).into(),
        None => update.to_payload(spec.update.precision.precision().unwrap_or_default()),
    }
}

/// Makes all values of an update zero but the largest, if the run sends a share of them: those are left out of its bytes.
pub(crate) fn keep_largest(update: &mut Record, spec: &RunSpec) {
    if let Some(share) = spec.update.top_k {
        compression::keep_largest(&mut update.tensors, share, &spared(spec));
    }
}

/// The tensors of an update that are not sent whole.
pub(crate) fn incomplete(tensors: &ParamSet, spec: &RunSpec) -> ParamSet {
    let spared = spared(spec);
    let left_out = tensors.iter().filter(|(name, _)| compression::leaves_out(tensors, name, &spared));
    left_out.map(|(name, array)| (name.to_owned(), array.clone())).collect()
}

/// Which tensors of an update are exact: statistics, whose errors nothing averages out.
fn spared(spec: &RunSpec) -> impl Fn(&str) -> bool + use<> {
    let buffers = buffers(spec);
    // An algorithm with several sets puts a prefix before the names of each.
    move |name| buffers.iter().any(|buffer| name.ends_with(buffer.as_str()))
}

/// What the server reads of an update that a client sends so.
///
/// # Errors
/// Those of reading what was just written: none.
pub fn received(update: Record, spec: &RunSpec, seed: &Seed) -> Result<Record, RecordError> {
    if spec.update.precision.precision().is_some_and(|precision| precision == models::Precision::F32) {
        return Ok(update);
    }
    let payload = payload(&update, spec, seed);
    let limits = Limits { max_bytes: payload.len() as u64, max_values: u64::MAX, ..Limits::default() };
    let limits = limits.of_compressed();
    Record::update_from_payload(&payload, limits)
}

/// The statistics of the run's network.
pub(crate) fn buffers(spec: &RunSpec) -> Vec<String> {
    let specs = spec.architecture.parameter_specs().unwrap_or_default().into_iter();
    specs.filter(|spec| spec.kind == ParameterKind::Buffer).map(|spec| spec.name).collect()
}

#[cfg(test)]
mod tests {
    use models::{Architecture, Norm, Variant};

    use super::*;
    use crate::spec::UpdateFormat;

    #[test]
    fn statistics_are_exact_under_any_prefix_and_what_is_read_is_what_was_sent() {
        let mut spec = RunSpec::example("fedavg");
        let variant = Variant { norm: Some(Norm::Batch), ..Variant::default() };
        spec.architecture = Architecture::variant("resnet-18", &[3, 32, 32], 10, variant).unwrap();
        let set = spec.architecture.initialise(|name| Seed::root(3).derive(name).rng()).unwrap();
        let mut update = Record::default();
        for (name, array) in &set {
            let mut array = array.clone();
            array
                .values_mut()
                .iter_mut()
                .zip(0u32..)
                .for_each(|(value, at)| *value += (at % 7) as f32 * 1e-3);
            update.tensors.insert(format!("model.{name}"), array);
        }
        let seed = Seed::root(5);
        for format in [UpdateFormat::F32, UpdateFormat::F16, UpdateFormat::Int8, UpdateFormat::Int4] {
            spec.update.precision = format;
            let payload = payload(&update, &spec, &seed);
            let limits = Limits { max_bytes: payload.len() as u64, ..Limits::default() };
            let read = Record::update_from_payload(&payload, limits).unwrap();
            assert_eq!(read, received(update.clone(), &spec, &seed).unwrap());
            let exact = |name: &str| read.tensors.get(name) == update.tensors.get(name);
            assert_eq!(exact("model.extractor.conv1.weight"), format == UpdateFormat::F32, "{format}");
            // 512 values each.
            let running: Vec<&str> =
                update.tensors.names().filter(|name| name.ends_with("running-mean")).collect();
            assert!(running.len() > 10, "{running:?}");
            assert!(format == UpdateFormat::F16 || running.into_iter().all(exact), "{format}");
        }
    }

    #[test]
    fn every_client_and_round_has_errors_of_its_own() {
        let mut spec = RunSpec::example("fedavg");
        spec.architecture = Architecture::by_name("mlp-2nn", &[1, 4, 4], 3).unwrap();
        spec.update.precision = UpdateFormat::Int8;
        let set = spec.architecture.initialise(|name| Seed::root(3).derive(name).rng()).unwrap();
        let update = Record { tensors: set, ..Record::default() };
        let bytes = |seed| payload(&update, &spec, &Seed::root(seed)).to_bytes();
        assert!(bytes(1) == bytes(1) && bytes(1) != bytes(2));
    }
}
