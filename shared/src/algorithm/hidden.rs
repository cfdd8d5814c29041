//! Sums of updates that are hidden from the server: what a device adds, and what the server makes of it.
//!
//! A device folds its update by itself, into whole numbers, and [masks](crate::secure) them. The server adds masked numbers modulo 2^64,
//! and what it knows of the device anyway, its number of samples for example, as always. Once the masks are taken away the numbers are
//! those that it would have had by folding the updates itself.
//!
//! The training losses of the devices are hidden as well, beside every algorithm's own numbers: their sum is what a round's record has.

use models::params::{IntegerFormat, IntegerSet, Integers};
use sha2::{Digest as _, Sha256};

use super::{AggregateError, Checked, Contribution, ErasedAlgorithm, Partial, Round, registry};
use crate::aggregation::{DeviceNoise, MergeError, Rule, Scale, Weights, loss_of, whole_loss};
use crate::id::ClientId;
use crate::message::{Rejection, Rounding, TrainReport};
use crate::record::{Record, RecordError};
use crate::secret::Secret;
use crate::secure::Mask;
use crate::secure::mask::apply;
use crate::spec::{RunSpec, SpecText};

/// The name of the sum of all losses. No part of a model begins so.
const LOSS: &str = "train-loss";

/// An update that a device cannot hide.
#[derive(Debug, thiserror::Error)]
pub enum AloneError {
    /// No honest server would take it: training has diverged.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The algorithm's updates do not add up while they are hidden.
    #[error(
        "updates of {0} do not add up while they are hidden, and the server should not have asked for that"
    )]
    NotHidden(&'static str),
    /// The round's noise is none that a device adds.
    #[error(
        "the noise that the server asks for is none that hides an update of this network, and it should not have asked for that"
    )]
    Noise,
}

/// What hides an update.
#[derive(Clone, Copy)]
pub struct Cover<'a> {
    /// Masks, which are taken away from the sum.
    pub masks: &'a [Mask],
    /// The device's secret in the run, from which its noise comes if it [adds any](crate::spec::RunSpec::device_noise).
    pub secret: &'a Secret,
}

/// The whole numbers that an update adds to the sum of its round, with its loss, noise if the run has any, and these masks. The numbers
/// of samples and steps are not hidden. Where there is noise no loss is told: it would have none.
pub fn masked(
    algorithm: &dyn ErasedAlgorithm,
    round: &Round<'_>,
    (client, report): (ClientId, TrainReport),
    update: Record,
    cover: Cover<'_>,
) -> Result<IntegerSet, AloneError> {
    let update = algorithm.check(round, update)?;
    covered(algorithm, round, (client, report), update, cover)
}

/// [`masked`] of an update that was checked.
pub fn covered(
    algorithm: &dyn ErasedAlgorithm,
    round: &Round<'_>,
    (client, report): (ClientId, TrainReport),
    update: Checked,
    Cover { masks, secret }: Cover<'_>,
) -> Result<IntegerSet, AloneError> {
    let weight = round.spec.aggregation.weights.of(report.samples);
    let noise = round.spec.device_noise;
    if noise.is_some_and(|noise| !goes_with(noise, round)) {
        return Err(AloneError::Noise);
    }
    // Where it is not told, none is refused.
    let loss = match noise {
        None => whole_loss(report.loss).ok_or(Rejection::Loss { loss: report.loss })?,
        Some(_) => 0,
    };
    let contribution = Contribution { client, weight, report, update };
    let not_hidden = || AloneError::NotHidden(algorithm.name());
    let mut partial = algorithm.alone(contribution, round).ok_or_else(not_hidden)?;
    let mut losses = [loss.cast_signed()];
    let mut numbers = algorithm.numbers(&mut partial).ok_or_else(not_hidden)?;
    if let Some(noise) = noise {
        if numbers.iter().map(|(_, values)| values.len() as u64).sum::<u64>() != noise.values {
            return Err(AloneError::Noise);
        }
        let numbers = numbers.iter_mut().map(|(name, values)| (name.as_str(), &mut **values));
        noise.add(round.scale, secret, round.number, numbers);
    }
    numbers.push((LOSS.to_owned(), &mut losses));
    let formats = Formats(round.spec.secure.integers);
    apply(masks, numbers.iter_mut().map(|(name, values)| (formats.of(name), &mut **values)).collect());
    let tensor = |(name, values): (String, &mut [i64])| {
        let tensor = Integers::new(vec![values.len()], values.to_vec());
        let tensor = tensor.expect("as many values as the one axis is long").in_format(formats.of(&name));
        (name, tensor)
    };
    Ok(numbers.into_iter().map(tensor).collect())
}

/// Whether noise covers all that an update of this round tells: one sum of clipped updates that count alike. A server may ask for anything.
fn goes_with(noise: DeviceNoise, round: &Round<'_>) -> bool {
    let Round { spec, template, scale, .. } = *round;
    let alike = spec.aggregation.weights == Weights::Uniform && spec.aggregation.rule == Rule::Mean {};
    let clipped = template.without_buffers().parameters() == template.parameters();
    let enough = noise.devices <= spec.secure.min_devices;
    alike && clipped && enough && noise.is_sound(template) && noise.is_scale(scale)
}

/// The formats of hidden numbers: that of the run for sums of updates, and 64 bits for those of losses.
#[derive(Clone, Copy)]
struct Formats(IntegerFormat);

impl Formats {
    fn of(self, name: &str) -> IntegerFormat {
        if name == LOSS { IntegerFormat::I64 } else { self.0 }
    }
}

/// The digest of what all members of a round must have been told alike: the run, how updates are rounded, and what they were trained from.
/// `broadcast` is the SHA-256 of the bytes that the server has sent.
#[must_use]
pub fn terms(spec: &RunSpec, rounding: &Rounding, failed: u32, broadcast: &[u8; 32]) -> [u8; 32] {
    let told = SpecText::of(spec);
    // As a device has it that has read this text.
    let told = registry::read_spec(&told).map_or(told, |read| SpecText::of(&read));
    let said = postcard::to_stdvec(&(told.as_str(), rounding, failed)).expect("text and numbers are encoded");
    let mut hash = Sha256::new();
    hash.update(b"federation terms of a hidden round v1");
    hash.update(broadcast);
    hash.update(said);
    hash.finalize().into()
}

/// What the server knows of an update that it sees.
#[must_use]
pub fn shown(report: TrainReport) -> TrainReport {
    TrainReport { loss: 0.0, metrics: Default::default(), ..report }
}

/// The sum of hidden updates at another server, see [`HiddenSum::merge`].
pub struct OthersSum {
    partial: Partial,
    losses: [i64; 1],
}

impl OthersSum {
    /// As [`HiddenSum::into_record`] gives it.
    pub fn from_record(algorithm: &dyn ErasedAlgorithm, mut record: Record) -> Result<Self, RecordError> {
        const EXPECTED: &str = "a sum of hidden updates";
        let losses = record.integers.remove(LOSS).map(|losses| losses.values().to_vec());
        let losses = losses.and_then(|losses| losses.try_into().ok());
        let losses = losses.ok_or(RecordError::Incomplete { expected: EXPECTED })?;
        Ok(Self { partial: algorithm.decode_partial(record)?, losses })
    }
}

/// The sum of a round's hidden updates.
pub struct HiddenSum {
    partial: Partial,
    losses: [i64; 1],
    /// The names of all numbers that a device adds, and how many each has.
    layout: Vec<(String, usize)>,
    formats: Formats,
    /// The noise of each update, and the format of the sum.
    noise: Option<(DeviceNoise, Scale)>,
}

impl HiddenSum {
    /// The sum of no updates.
    pub fn new(algorithm: &dyn ErasedAlgorithm, round: &Round<'_>) -> Result<Self, AggregateError> {
        let (partial, formats) = (algorithm.begin(round)?, Formats(round.spec.secure.integers));
        let noise = round.spec.device_noise.map(|noise| (noise, round.scale));
        let mut sum = Self { partial, losses: [0], layout: Vec::new(), formats, noise };
        let layout = sum.numbers(algorithm).into_iter().map(|(name, values)| (name, values.len())).collect();
        Ok(Self { layout, ..sum })
    }

    /// Whether these are the numbers that a device adds in this round: all of them, with their lengths.
    pub fn check(&self, numbers: &IntegerSet) -> Result<(), Rejection> {
        let layout = |reason: String| Rejection::Layout { reason };
        for (name, expected) in &self.layout {
            let Some(found) = numbers.get(name) else {
                return Err(layout(format!("the hidden tensor `{name}` is missing")));
            };
            if found.shape() != [*expected] {
                let found = found.shape();
                return Err(layout(format!("the hidden tensor `{name}` is {found:?} and not [{expected}]")));
            }
            let (wanted, found) = (self.formats.of(name), found.format());
            if found != wanted {
                return Err(layout(format!("the hidden tensor `{name}` is of {found} and not of {wanted}")));
            }
        }
        if numbers.len() > self.layout.len() {
            return Err(layout("there are hidden tensors that the round does not have".to_owned()));
        }
        Ok(())
    }

    /// Adds an update that was [checked](Self::check).
    ///
    /// # Panics
    /// If it was not.
    pub fn add(
        &mut self,
        algorithm: &dyn ErasedAlgorithm,
        round: &Round<'_>,
        (client, report): (ClientId, TrainReport),
        numbers: &IntegerSet,
    ) {
        let weight = round.spec.aggregation.weights.of(report.samples);
        let counted = algorithm.count(
            &mut self.partial,
            Contribution { client, weight, report: shown(report), update: () },
            round,
        );
        counted.expect("a configuration of an algorithm that does not go with it is refused");
        for (name, sum) in self.numbers(algorithm) {
            let values = numbers.get(&name).expect("the layout is checked before folding").values();
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
        }
    }

    /// The sum as a record, for [`OthersSum::from_record`].
    #[must_use]
    pub fn into_record(mut self, algorithm: &dyn ErasedAlgorithm) -> Record {
        // Makes all parts.
        let _ = self.numbers(algorithm);
        let mut record = algorithm.encode_partial(self.partial);
        let losses = Integers::new(vec![1], self.losses.to_vec()).expect("one value for one axis");
        record.integers.insert(LOSS.to_owned(), losses);
        record
    }

    /// Adds the sum of other updates of the same round.
    pub fn merge(
        &mut self,
        algorithm: &dyn ErasedAlgorithm,
        OthersSum { mut partial, mut losses }: OthersSum,
    ) -> Result<(), AggregateError> {
        let mut theirs = algorithm.numbers(&mut partial).unwrap_or_default();
        theirs.push((LOSS.to_owned(), &mut losses));
        let found = theirs.iter().map(|(name, values)| (name, values.len()));
        if !self.layout.iter().map(|(name, length)| (name, *length)).eq(found) {
            return Err(MergeError::Different { of: "the hidden tensors".to_owned() }.into());
        }
        // They add up modulo 2^64, and the rest as it does where nothing is hidden.
        for ((_, sum), (_, values)) in self.numbers(algorithm).into_iter().zip(&mut theirs) {
            for (sum, value) in sum.iter_mut().zip(values.iter_mut()) {
                *sum = sum.wrapping_add(std::mem::take(value));
            }
        }
        drop(theirs);
        Ok(algorithm.merge(&mut self.partial, partial)?)
    }

    /// Takes masks away, and gives the partial result with the sum of the losses, `None` where none are told. The error names a number that no checked updates add
    /// up to: a device has sent something else, or a mask is left.
    pub fn reveal(
        mut self,
        algorithm: &dyn ErasedAlgorithm,
        masks: &[Mask],
        devices: usize,
    ) -> Result<(Partial, Option<f64>), String> {
        let opposite: Vec<_> = masks.iter().copied().map(Mask::opposite).collect();
        let formats = self.formats;
        let numbers = self.numbers(algorithm).into_iter();
        apply(&opposite, numbers.map(|(name, values)| (formats.of(&name), values)).collect());
        if let Some((noise, scale)) = self.noise {
            let greatest = noise.greatest(scale, devices as u64);
            let beyond = |values: &[i64]| values.iter().any(|value| value.unsigned_abs() as f64 > greatest);
            let mut numbers = self.numbers(algorithm).into_iter();
            if let Some((name, _)) = numbers.find(|(_, values)| beyond(values)) {
                return Err(name);
            }
        } else {
            // By the bounds of sums without noise.
            algorithm.reveal(&mut self.partial)?;
        }
        let losses = u64::try_from(self.losses[0]).map_err(|_| LOSS.to_owned())?;
        let most = whole_loss(f64::MAX).unwrap_or_default().saturating_mul(devices as u64);
        if losses > most {
            return Err(LOSS.to_owned());
        }
        let losses = self.noise.is_none().then(|| loss_of(losses));
        Ok((self.partial, losses))
    }

    fn numbers(&mut self, algorithm: &dyn ErasedAlgorithm) -> Vec<(String, &mut [i64])> {
        let Self { partial, losses, .. } = self;
        let mut numbers = algorithm.numbers(partial).unwrap_or_default();
        numbers.push((LOSS.to_owned(), losses));
        numbers
    }
}
