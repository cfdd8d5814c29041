//! Golden tests against numbers that `PyTorch` computed in double precision, by the scripts beside `models/tests/golden`.

mod layers;
mod networks;

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use crate::params::Array;

/// A file of test cases.
struct Golden {
    bytes: Vec<u8>,
    cases: BTreeMap<String, Value>,
}

/// The tensors of one case, by name, with their shapes.
struct Case {
    name: String,
    settings: Value,
    tensors: BTreeMap<String, (Vec<usize>, Vec<f64>)>,
}

impl Golden {
    fn open(family: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{family}.safetensors"));
        let bytes = std::fs::read(path).unwrap();
        let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = metadata.metadata().as_ref().unwrap();
        let cases = metadata.iter().filter(|(name, _)| *name != "torch");
        let cases = cases.map(|(name, text)| (name.clone(), serde_json::from_str(text).unwrap())).collect();
        Self { bytes, cases }
    }

    fn cases(&self) -> impl Iterator<Item = Case> {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        assert!(!self.cases.is_empty());
        self.cases.iter().map(move |(name, settings)| {
            let tensors = file.iter().filter_map(|(full, view)| {
                let tensor = full.strip_prefix(name)?.strip_prefix('.')?;
                let data = view.data();
                let values: Vec<f64> = match view.dtype() {
                    Dtype::F64 => data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
                    Dtype::F32 => {
                        data.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect()
                    }
                    Dtype::I64 => data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect(),
                    other => panic!("{full} is of {other:?}"),
                };
                Some((tensor.to_owned(), (view.shape().to_vec(), values)))
            });
            Case { name: name.clone(), settings: settings.clone(), tensors: tensors.collect() }
        })
    }
}

impl Case {
    fn shape(&self, name: &str) -> &[usize] {
        &self.tensors[name].0
    }

    fn values(&self, name: &str) -> Vec<f32> {
        self.tensors[name].1.iter().map(|&value| value as f32).collect()
    }

    fn array(&self, name: &str) -> Array {
        Array::new(self.shape(name), self.values(name)).unwrap()
    }

    fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    fn setting(&self, name: &str) -> usize {
        self.settings[name].as_u64().unwrap() as usize
    }

    /// Compares relative to the tensor's own magnitude.
    fn check(&self, name: &str, found: &[f32]) {
        self.check_within(2e-5, name, found);
    }

    /// Compares within a fraction of the tensor's magnitude.
    fn check_within(&self, share: f64, name: &str, found: &[f32]) {
        let expected = &self.tensors[name].1;
        assert_eq!(found.len(), expected.len(), "{} {name}", self.name);
        let scale = expected.iter().fold(1e-3f64, |max, value| max.max(value.abs()));
        for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (f64::from(*found) - expected).abs();
            assert!(error <= share * scale, "{} {name}[{index}]: {found} {expected}", self.name);
        }
    }
}

/// Noise in `[-1, 1)` from a hash of the position, as in `golden_file.py`.
fn noise(stream: u32, count: usize) -> impl Iterator<Item = f32> {
    (0..count as u32).map(move |position| {
        let mut x = (stream << 20) + position;
        x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
        x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
        x ^= x >> 16;
        (x >> 8) as f32 / (1 << 23) as f32 - 1.0
    })
}
