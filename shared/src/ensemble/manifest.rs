//! Metadata of an ensemble's file.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use models::model_file::ARCHITECTURE_KEY;
use models::{Architecture, ParamSet};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::aggregation::Weights;
use crate::algorithm::{Answering, Head, Noise};
use crate::id::ClientId;
use crate::seed::{Seed, standard_normal};
use crate::spec::{DataSpec, ENSEMBLE_KEY, SAMPLES_KEY};

/// The metadata key of the entries that only ensembles have.
pub const MANIFEST_KEY: &str = ENSEMBLE_KEY;

/// The version of the format: the only one that is written and read.
const VERSION: u32 = 1;

/// A SHA-256 digest of parameters.
#[must_use]
pub fn digest(params: &ParamSet) -> String {
    let mut hash = Sha256::new();
    for (name, array) in params {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        for value in array.values() {
            hash.update(value.to_le_bytes());
        }
    }
    HEXLOWER.encode(&hash.finalize())
}

/// A member of an ensemble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Member {
    /// The client.
    pub client: ClientId,
    /// Its number of training samples.
    pub samples: u64,
    /// The name of its run.
    pub run: String,
}

/// The description of an ensemble.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The network of every member; if they have prototypes, its last layer is linear without bias, the member's own ones.
    pub architecture: Architecture,
    /// Its samples, and how they are prepared.
    pub data: DataSpec,
    /// How predictions are fused.
    pub answering: Answering,
    /// Seed of the noise with which features are compared.
    pub noise_seed: u64,
    /// How much the members count where their numbers of samples do: by them, or all alike.
    pub weights: Weights,
    /// Digest of the initial parameters of all members: prototypes of different initial parameters cannot be averaged.
    pub start: String,
    /// The members, ordered by client, each client at most once.
    pub members: Vec<Member>,
}

/// The entries under [`MANIFEST_KEY`].
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Own {
    version: u32,
    answering: Answering,
    noise_seed: u64,
    /// Left out where it is the usual one, as the two behind it: earlier programs refuse a file that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    noise: Option<Noise>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<Head>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weights: Option<Weights>,
    start: String,
    members: Vec<Member>,
}

impl Manifest {
    /// The metadata of the file.
    ///
    /// # Panics
    /// Never: all of it is JSON.
    #[must_use]
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let own = Own {
            version: VERSION,
            answering: self.answering,
            noise_seed: self.noise_seed,
            noise: Some(self.answering.noise).filter(|noise| *noise != Noise::default()),
            head: Some(self.answering.head).filter(|head| *head != Head::default()),
            weights: Some(self.weights).filter(|weights| *weights != Weights::default()),
            start: self.start.clone(),
            members: self.members.clone(),
        };
        let json = [
            (ARCHITECTURE_KEY, serde_json::to_string(&self.architecture)),
            (SAMPLES_KEY, serde_json::to_string(&self.data)),
            (MANIFEST_KEY, serde_json::to_string(&own)),
        ];
        let text = |(key, json): (&str, serde_json::Result<String>)| {
            (key.to_owned(), json.expect("numbers, names and ids are JSON"))
        };
        json.map(text).into()
    }

    /// Parses the metadata of a file.
    ///
    /// # Errors
    /// A message that says what is wrong with it.
    pub fn of(metadata: &BTreeMap<String, String>) -> Result<Self, String> {
        fn read<'a, T: Deserialize<'a>>(
            metadata: &'a BTreeMap<String, String>,
            key: &str,
        ) -> Result<T, String> {
            let json = metadata.get(key).ok_or_else(|| format!("it has no `{key}` in its metadata"))?;
            serde_json::from_str(json).map_err(|error| format!("its `{key}` cannot be understood ({error})"))
        }
        let Own { version, mut answering, noise_seed, noise, head, weights, start, members } =
            read(metadata, MANIFEST_KEY)?;
        (answering.noise, answering.head) = (noise.unwrap_or_default(), head.unwrap_or_default());
        let weights = weights.unwrap_or_default();
        if version != VERSION {
            return Err(format!("it is of format {version}, and this program reads format {VERSION}"));
        }
        if members.is_empty() {
            return Err("it has no members".to_owned());
        }
        if !members.is_sorted_by(|a, b| a.client < b.client) {
            return Err("its members are not ordered by client, each at most once".to_owned());
        }
        if !(answering.temperature.is_finite() && answering.temperature > 0.0) {
            return Err(format!("its temperature is {}", answering.temperature));
        }
        if answering.noise.check().is_err() {
            return Err(format!("its noise is {:?}", answering.noise));
        }
        answering.head.check(answering.fusion)?;
        if weights == Weights::Loss {
            return Err("its members would count by their losses, which it does not have".to_owned());
        }
        let (architecture, data): (Architecture, DataSpec) =
            (read(metadata, ARCHITECTURE_KEY)?, read(metadata, SAMPLES_KEY)?);
        if !architecture.task.is_classification() {
            return Err(format!(
                "its network is for {}, and an ensemble tells classes apart",
                architecture.task.name()
            ));
        }
        if architecture.predictions() != Ok(1) {
            return Err("its network is not one that gives one answer for each sample".to_owned());
        }
        Ok(Self { architecture, data, answering, noise_seed, weights, start, members })
    }

    /// The noise that a sample at this position of a data set is compared with in informative fusion.
    #[must_use]
    pub fn noise(&self, position: usize) -> Vec<f32> {
        let seed = Seed::root(self.noise_seed).derive("fusion noise");
        let mut rng = seed.derive_numbered("sample", position as u64).rng();
        let values = self.architecture.input.iter().product();
        (0..values).map(|_| self.answering.noise.of(standard_normal(&mut rng))).collect()
    }

    /// A member's weight by its number of samples, relative to the largest; 1 where all count alike.
    ///
    /// # Panics
    /// If there is no such member.
    #[must_use]
    pub fn share(&self, member: usize) -> f64 {
        if self.weights == Weights::Uniform {
            return 1.0;
        }
        let largest = self.members.iter().map(|member| member.samples).max().unwrap_or(1).max(1);
        // At least one sample each: an ensemble without any weight could not answer.
        self.members[member].samples.max(1) as f64 / largest as f64
    }

    /// Training samples of all members together.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.members.iter().map(|member| member.samples).sum()
    }
}
