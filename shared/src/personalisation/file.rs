//! The file format of a personal model: safetensors, readable by any of its readers.
//!
//! | tensors | contents |
//! |---|---|
//! | `global.extractor.conv1.weight`, ... | the global model that the local expert stands on |
//! | `personal.head.fc1.weight`, ... | the local expert: what stands on the extractor, or for FT the whole model |
//! | `gate.weight` `[1, inputs]`, `gate.bias` `[1]` | the gate of MF and MFE |
//! | `split` `[samples]` | of each sample of the device: 0 the expert's, 1 the gate's, 2 held out for tests |
//!
//! The metadata describes them: `personal-model` (the format's version), `method`, `mix`, `architecture` and `samples`
//! (JSON, as in a model file), `run`, `name` (the run's), `round` and `crc32`.

use std::collections::BTreeMap;

use models::codec::{self, DecodeError, Limits, Verifying};
use models::model_file::ARCHITECTURE_KEY;
use models::{Architecture, Array, Backend, Layer, ParamSet, Precision};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Gate, Incoherent, LocalSplit, Method, Mix, Mixture, PersonalModel};
use crate::id::RunId;
use crate::seed::Seed;
use crate::spec::{DataSpec, RunSpec, SAMPLES_KEY};

/// The metadata key of the format's version.
const VERSION_KEY: &str = "personal-model";
/// The version that this build writes, and the newest that it reads.
const VERSION: u32 = 1;

/// A personal model, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Personal {
    /// The model.
    pub model: PersonalModel,
    /// The description of its samples.
    pub samples: DataSpec,
    /// The run that it was made in.
    pub run: RunId,
    /// The run's name.
    pub name: String,
    /// The round that it was made in.
    pub round: u32,
    /// The device's samples that trained the expert and the gate, as positions among all of them.
    pub split: LocalSplit,
    /// The samples held out for tests; ascending.
    pub held_out: Vec<u32>,
}

/// Why a file is not a personal model.
#[derive(Debug, thiserror::Error)]
pub enum PersonalError {
    /// The bytes are not safetensors, or not all of them are there.
    #[error("it is not a readable safetensors file, or was cut short")]
    NotSafetensors(#[from] DecodeError),
    /// It is another kind of model.
    #[error("it is not a personal model; a global one is named with --model")]
    NotPersonal,
    /// A newer program wrote it.
    #[error(
        "it has format version {found}, and this program knows versions up to {VERSION}: use the newer program that wrote it"
    )]
    Newer {
        /// Its version.
        found: u32,
    },
    /// A key of the metadata is missing or does not parse.
    #[error("its metadata has no `{key}` that can be understood")]
    Metadata {
        /// The key.
        key: &'static str,
    },
    /// A tensor is missing, or its shape or values are invalid.
    #[error("its tensor `{tensor}` is missing or not what it should be")]
    Tensor {
        /// The tensor.
        tensor: String,
    },
    /// Experts, gate and network do not belong together.
    #[error("its parts do not belong together")]
    Incoherent(#[from] Incoherent),
}

impl Personal {
    /// Whether a file with this metadata is a personal model.
    #[must_use]
    pub fn has_metadata(metadata: &BTreeMap<String, String>) -> bool {
        metadata.contains_key(VERSION_KEY)
    }

    /// The file's bytes.
    ///
    /// # Panics
    /// If the parts of the split are not all samples, each once. Otherwise never: names of parameters are not the one that the
    /// format reserves, and numbers and names are JSON.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let model = &self.model;
        let mut tensors = ParamSet::new();
        tensors.insert_under("global.", model.global.clone());
        tensors.insert_under("personal.", model.local.clone());
        if let Some(gate) = &model.gate {
            let (weights, bias) = gate.parts();
            let array = |shape: &[usize], values: Vec<f32>| {
                Array::new(shape, values).expect("the shape is that of the values")
            };
            tensors.insert("gate.weight", array(&[1, weights.len()], weights.to_vec()));
            tensors.insert("gate.bias", array(&[1], vec![bias]));
        }
        let mut split = Array::zeros([self.split.samples() + self.held_out.len()]);
        for (part, mark) in [(&self.split.gate, 1.0), (&self.held_out, 2.0)] {
            for &position in part {
                split.values_mut()[position as usize] = mark;
            }
        }
        tensors.insert("split", split);
        let metadata = [
            (VERSION_KEY, VERSION.to_string()),
            ("method", word(&model.method)),
            ("mix", word(&model.mix)),
            (ARCHITECTURE_KEY, json(&model.architecture)),
            (SAMPLES_KEY, json(&self.samples)),
            ("run", self.run.to_string()),
            ("name", self.name.clone()),
            ("round", self.round.to_string()),
        ];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value));
        let mut bytes = Vec::new();
        codec::write_with_checksum(&BTreeMap::from(metadata), &mut bytes, |metadata, out| {
            codec::write(&tensors, Precision::F32, metadata, out)
        })
        .expect("no parameter has the name that the format reserves, and memory takes all bytes");
        bytes
    }

    /// Reads a file's bytes.
    ///
    /// # Errors
    /// [`PersonalError`]; a model that was read can be used without a panic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PersonalError> {
        let limits = Limits { max_bytes: bytes.len() as u64, ..Limits::default() };
        let mut input = Verifying::new(bytes);
        let (mut tensors, metadata) = codec::read(&mut input, limits)?;
        input.finish()?;
        let version = metadata.get(VERSION_KEY).ok_or(PersonalError::NotPersonal)?;
        match version.parse() {
            Ok(VERSION) => {}
            Ok(found) if found > VERSION => return Err(PersonalError::Newer { found }),
            _ => return Err(PersonalError::Metadata { key: VERSION_KEY }),
        }
        if let Some(tensor) = tensors.first_non_finite() {
            return Err(PersonalError::Tensor { tensor: tensor.to_owned() });
        }
        let text = |key: &'static str| metadata.get(key).ok_or(PersonalError::Metadata { key });
        let global = tensors.take_under("global.");
        let local = tensors.take_under("personal.");
        let gate = match (tensors.remove("gate.weight"), tensors.remove("gate.bias")) {
            (Some(weights), Some(bias)) => match bias.values() {
                &[bias] => Some(Gate::of(weights.values(), bias)),
                _ => return Err(PersonalError::Tensor { tensor: "gate.bias".to_owned() }),
            },
            (None, None) => None,
            (weights, _) => {
                let tensor = if weights.is_some() { "gate.bias" } else { "gate.weight" };
                return Err(PersonalError::Tensor { tensor: tensor.to_owned() });
            }
        };
        let split = tensors.remove("split").ok_or(PersonalError::Tensor { tensor: "split".to_owned() })?;
        let marked = |from: f32, to: f32| -> Vec<u32> {
            let marked = split.values().iter().zip(0_u32..).filter(|(mark, _)| (from..to).contains(*mark));
            marked.map(|(_, position)| position).collect()
        };
        let held_out = marked(1.5, f32::INFINITY);
        let split = LocalSplit { expert: marked(f32::NEG_INFINITY, 0.5), gate: marked(0.5, 1.5) };
        let model = PersonalModel {
            method: parsed(&word_json(text("method")?), "method")?,
            mix: parsed(&word_json(text("mix")?), "mix")?,
            architecture: parsed(text(ARCHITECTURE_KEY)?, ARCHITECTURE_KEY)?,
            global,
            local,
            gate,
        };
        Mixture::new(&model, &Backend::cpu())?;
        let run = text("run")?.parse().map_err(|_| PersonalError::Metadata { key: "run" })?;
        let round = text("round")?.parse().map_err(|_| PersonalError::Metadata { key: "round" })?;
        let samples = parsed(text(SAMPLES_KEY)?, SAMPLES_KEY)?;
        Ok(Self { model, samples, run, name: text("name")?.clone(), round, split, held_out })
    }

    /// A small valid one of 1x1x2 samples of two classes, made with this method, for documentation and tests: the global expert says
    /// class 0 of everything, the local one class 1.
    ///
    /// # Panics
    /// Never: the network fits its samples.
    #[must_use]
    pub fn example(method: Method) -> Self {
        let built_in = Architecture::by_name("linear", &[1, 1, 2], 2).expect("it takes every shape");
        let architecture = Architecture {
            extractor: vec![Layer::Flatten, Layer::Linear { name: "a".into(), out: 3, bias: true }],
            ..built_in
        };
        let drawn = architecture.initialise(|name| Seed::root(4).derive(name).rng());
        let mut global = drawn.expect("the layers fit");
        let mut local = if method.is_whole() { global.clone() } else { global.select("head.") };
        let bias = |set: &mut ParamSet, values: &[f32]| {
            set.get_mut("head.fc.bias").expect("it has one").values_mut().copy_from_slice(values);
        };
        bias(&mut global, &[40.0, 0.0]);
        bias(&mut local, &[0.0, 40.0]);
        let gate = match method {
            Method::Mf => Some(Gate::of(&[60.0, -60.0], 0.0)),
            Method::Mfe => Some(Gate::of(&[0.5, -1.0, 0.25], 0.125)),
            Method::Ft | Method::Fb | Method::Fixed => None,
        };
        let samples = DataSpec { shape: vec![1, 1, 2], ..RunSpec::example("fedavg").data };
        Self {
            model: PersonalModel { method, mix: Mix::Logits, architecture, global, local, gate },
            samples,
            run: RunId::from_bytes([3; 8]),
            name: "a run".to_owned(),
            round: 7,
            split: LocalSplit { expert: vec![0, 3, 5], gate: vec![1] },
            held_out: vec![2, 4],
        }
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("numbers, names and lists of them are JSON")
}

/// The name of a variant without data.
fn word(value: &impl Serialize) -> String {
    json(value).trim_matches('"').to_owned()
}

fn word_json(word: &str) -> String {
    json(&word)
}

fn parsed<T: DeserializeOwned>(text: &str, key: &'static str) -> Result<T, PersonalError> {
    serde_json::from_str(text).map_err(|_| PersonalError::Metadata { key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for method in Method::ALL {
            let personal = Personal::example(method);
            let bytes = personal.to_bytes();
            assert_eq!(Personal::from_bytes(&bytes).unwrap(), personal, "{method:?}");
            // Any reader of the format reads it.
            let file = safetensors(&bytes);
            assert_eq!(
                file.iter().filter(|name| name.starts_with("gate.")).count() > 0,
                personal.model.gate.is_some()
            );
            assert!(file.contains(&"global.extractor.a.weight".to_owned()));
        }
    }

    fn safetensors(bytes: &[u8]) -> Vec<String> {
        let (tensors, _) = codec::from_bytes(bytes, Limits::default()).unwrap();
        tensors.names().map(str::to_owned).collect()
    }

    /// The file with one tensor replaced or, without a new one, removed.
    fn with(tensor: &str, array: Option<Array>) -> PersonalError {
        let (mut tensors, metadata) = parts();
        match array {
            Some(array) => tensors.insert(tensor, array),
            None => tensors.remove(tensor),
        };
        let bytes = codec::to_bytes(&tensors, Precision::F32, &metadata).unwrap();
        Personal::from_bytes(&bytes).unwrap_err()
    }

    /// The parts of a file, without its checksum: it is of an earlier version, or of another program.
    fn parts() -> (ParamSet, BTreeMap<String, String>) {
        let bytes = Personal::example(Method::Mfe).to_bytes();
        let (tensors, mut metadata) = codec::from_bytes(&bytes, Limits::default()).unwrap();
        assert!(metadata.remove(codec::CHECKSUM_KEY).is_some());
        (tensors, metadata)
    }

    /// The file with one entry of the metadata replaced or removed.
    fn with_entry(key: &str, value: Option<&str>) -> PersonalError {
        let (tensors, mut metadata) = parts();
        match value {
            Some(value) => metadata.insert(key.to_owned(), value.to_owned()),
            None => metadata.remove(key),
        };
        let bytes = codec::to_bytes(&tensors, Precision::F32, &metadata).unwrap();
        Personal::from_bytes(&bytes).unwrap_err()
    }

    #[test]
    fn every_malformation_has_its_error() {
        let bytes = Personal::example(Method::Mfe).to_bytes();
        for length in [0, 7, bytes.len() / 2, bytes.len() - 1] {
            let error = Personal::from_bytes(&bytes[..length]).unwrap_err();
            assert!(matches!(error, PersonalError::NotSafetensors(_)), "{length}: {error}");
        }
        for bit in (0..8 * bytes.len()).step_by(101) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // Where it is the name of the checksum, everything else is as it was.
            if let Ok(read) = Personal::from_bytes(&damaged) {
                assert_eq!(read, Personal::example(Method::Mfe), "bit {bit}");
            }
        }
        assert!(matches!(with_entry(VERSION_KEY, None), PersonalError::NotPersonal));
        assert!(matches!(with_entry(VERSION_KEY, Some("2")), PersonalError::Newer { found: 2 }));
        for key in ["method", "mix", ARCHITECTURE_KEY, SAMPLES_KEY, "run", "round"] {
            for value in [None, Some("nonsense")] {
                let error = with_entry(key, value);
                assert!(matches!(error, PersonalError::Metadata { key: found } if found == key), "{error}");
            }
        }
        // A gate, of a method that has none.
        let error = with_entry("method", Some("fb"));
        assert!(matches!(error, PersonalError::Incoherent(Incoherent::Gate { .. })), "{error}");
        for name in ["gate.weight", "gate.bias", "split"] {
            assert!(matches!(with(name, None), PersonalError::Tensor { tensor } if tensor == name));
        }
        let nan = Array::new([1], vec![f32::NAN]).unwrap();
        assert!(matches!(with("gate.bias", Some(nan)), PersonalError::Tensor { .. }));
        let wide = Some(Array::zeros([1, 4]));
        assert!(matches!(with("gate.weight", wide), PersonalError::Incoherent(Incoherent::Gate { .. })));
        for name in ["personal.head.fc.bias", "global.extractor.a.bias"] {
            assert!(matches!(with(name, None), PersonalError::Incoherent(Incoherent::Expert(_))), "{name}");
        }
    }
}
