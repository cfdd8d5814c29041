//! Safetensors files: `train.safetensors` and `test.safetensors` with two tensors, samples first in both.
//!
//! | `x` | `y` | samples |
//! |---|---|---|
//! | `U8` `[n, channels, height, width]` | `[n]` | images |
//! | `F32` `[n, ...]` | `[n]` | features |
//! | `U16` `[n, length]` | `[n, length]` | text: tokens, and the token after each of them |
//!
//! `y` holds whole numbers of any type. For other tasks than classification it is `[n]` or `[n, outputs]`, of whole numbers,
//! `F32` or `F64`. The metadata holds the number of classes as `classes` if this module wrote the
//! file; otherwise the reader gives it. The authors of a text are not stored.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use models::Targets;
use models::shape::spelled;
use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorView};
use thiserror::Error;

use super::error::{FormatError, existing_file};
use super::format::{About, Evidence, MAX_CONTENT, SampleFormat, read_file};
use super::options::unknown_number;
use super::{DataError, DataSet, Dataset, Labels, ReadOptions, Samples, SetSamples, Skipped, Split};

const CLASSES: &str = "classes";
/// The longest header that is looked at: as much as the format allows.
const MAX_HEADER: u64 = 100_000_000;

/// `train.safetensors` and `test.safetensors`. Without labels only `x` is looked at, which may not be text.
#[derive(Debug)]
pub struct Safetensors;

/// Samples of any kind of the user's own, as a configuration names them.
pub const SET: DataSet = DataSet {
    name: "safetensors",
    format: Some(&Safetensors),
    files: "train.safetensors and test.safetensors",
    labels_each: None,
    samples: SetSamples::Own { by_names: false, by_number: true },
    training_samples: None,
    moments: None,
};

impl SampleFormat for Safetensors {
    fn about(&self) -> About {
        let files = "train.safetensors and test.safetensors with tensors x and y";
        About { name: "safetensors", help: ("safetensors", files), evidence: Evidence::Common }
    }

    fn signature(&self, split: Split) -> String {
        format!("{}.safetensors", split.name())
    }

    fn load(&self, directory: &Path, split: Split, options: &ReadOptions) -> Result<Dataset, DataError> {
        let path = existing_file(directory, vec![self.signature(split)])?;
        let bytes = read_file(&path, MAX_CONTENT).map_err(|error| error.in_file(&path))?;
        read(&bytes, &path, options)
    }
}

/// Errors of safetensors files.
#[derive(Debug, Error)]
enum SafetensorsError {
    #[error("cannot be read or written as safetensors: {reason}")]
    Malformed { reason: String },
    #[error("has no tensor `{name}`; there are {names}")]
    NoTensor { name: &'static str, names: String },
    #[error("tensor `{name}` is {found}; needed: {needed}")]
    Tensor { name: &'static str, found: String, needed: String },
}

impl FormatError for SafetensorsError {
    fn lacks_labels(&self) -> bool {
        matches!(self, Self::NoTensor { name: "y", .. })
    }
}

fn malformed(error: &SafeTensorError) -> DataError {
    SafetensorsError::Malformed { reason: error.to_string() }.into()
}

fn wrong(name: &'static str, tensor: &TensorView<'_>, needed: impl Into<String>) -> DataError {
    let found = format!("{:?} {:?}", tensor.dtype(), tensor.shape());
    SafetensorsError::Tensor { name, found, needed: needed.into() }.into()
}

/// Writes a data set as the file of a split, replacing an existing one.
///
/// # Errors
/// [`DataError::Io`] if it cannot be written.
pub fn write_split(directory: &Path, split: Split, dataset: &Dataset) -> Result<(), DataError> {
    let path = directory.join(Safetensors.signature(split));
    let shape = [&[dataset.len()], dataset.shape()].concat();
    let (dtype, x) = match dataset.samples() {
        Samples::Bytes(pixels) => (Dtype::U8, pixels.clone()),
        Samples::Floats(values) => {
            (Dtype::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect())
        }
        Samples::Tokens(tokens) => {
            (Dtype::U16, tokens.iter().flat_map(|token| token.to_le_bytes()).collect())
        }
    };
    let (kind, y): (_, Vec<u8>) = match dataset.targets() {
        // Classes are below 2^16.
        Targets::Classes(labels) => {
            (Dtype::U16, labels.iter().flat_map(|&label| (label as u16).to_le_bytes()).collect())
        }
        Targets::Values(values) => {
            (Dtype::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect())
        }
    };
    let each = dataset.targets().len() / dataset.len();
    let labels = if each == 1 { vec![dataset.len()] } else { vec![dataset.len(), each] };
    let view = |dtype, shape, data| TensorView::new(dtype, shape, data).map_err(|error| malformed(&error));
    let tensors = [("x", view(dtype, shape, &x)?), ("y", view(kind, labels, &y)?)];
    let metadata = HashMap::from([(CLASSES.to_owned(), dataset.classes().to_string())]);
    let bytes = safetensors::serialize(tensors, Some(metadata)).map_err(|error| malformed(&error))?;
    std::fs::write(&path, bytes).map_err(|error| DataError::from(error).in_file(path))
}

/// How many numbers a split has to learn of each sample, if `y` are no labels: of fractions, or several of one sample. `None` if
/// they can be labels, or the file cannot be read.
#[must_use]
pub fn numbers_to_learn(directory: &Path, split: Split) -> Option<usize> {
    // The header says it: its length in eight bytes, and JSON. The samples may be gigabytes.
    let mut file = File::open(directory.join(Safetensors.signature(split))).ok()?;
    let mut length = [0; 8];
    file.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    let mut header = Vec::new();
    file.take(length.min(MAX_HEADER)).read_to_end(&mut header).ok()?;
    let tensors: Metadata = serde_json::from_slice(&header).ok()?;
    let (x, y) = (tensors.info("x")?, tensors.info("y")?);
    let outputs = match y.shape[..] {
        [_] => 1,
        [_, outputs] => outputs,
        _ => return None,
    };
    let fractions = matches!(y.dtype, Dtype::F32 | Dtype::F64);
    (fractions || (y.shape.len() == 2 && x.dtype != Dtype::U16)).then_some(outputs)
}

/// Reads the content of a file. `path` is for messages.
pub fn read(bytes: &[u8], path: &Path, options: &ReadOptions) -> Result<Dataset, DataError> {
    let content = Content::parse(bytes, options).map_err(|error| error.in_file(path))?;
    let Content { samples, count, shape, length, truths } = content;
    let (mut kept, mut targets, mut skipped) = (Vec::new(), Targets::default(), Skipped::default());
    for row in 0..count {
        let found = truths.as_ref().map_or(Ok(Targets::default()), |truths| truths.of(row));
        match found.and_then(|found| finite(&samples, row, length).map(|()| found)) {
            Ok(found) => {
                targets.extend_from(&found, 0..found.len());
                kept.push(row);
            }
            Err(error) => {
                skipped.take(options.on_error, error.at(format!("sample {row}")).in_file(path))?;
            }
        }
    }
    let samples = if kept.len() == count { samples } else { samples.select(&kept, length) };
    let dataset = match truths {
        Some(truths) => Dataset::learned(shape, samples, targets, truths.classes),
        None => Dataset::unlabelled(shape, samples),
    };
    skipped.finish(dataset, path)
}

/// The content of a file, its samples not yet checked one by one.
struct Content {
    samples: Samples,
    /// How many samples.
    count: usize,
    /// Shape of a sample.
    shape: Vec<usize>,
    /// Values of a sample.
    length: usize,
    /// What is to be learned, if it is read.
    truths: Option<Truths>,
}

impl Content {
    fn parse(bytes: &[u8], options: &ReadOptions) -> Result<Self, DataError> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| malformed(&error))?;
        let tensors = SafeTensors::deserialize(bytes).map_err(|error| malformed(&error))?;
        let x = tensor(&tensors, "x")?;
        let y = options.labels.as_ref().map(|_| tensor(&tensors, "y")).transpose()?;
        let [count, shape @ ..] = x.shape() else { return Err(wrong("x", &x, NEEDED)) };
        // Of no samples the format allows any shape, also one that no sample can have.
        let length = shape.iter().try_fold(1_usize, |product, &axis| product.checked_mul(axis));
        let too_large = || DataError::TooLarge { dimensions: x.shape().to_vec(), limit: MAX_CONTENT };
        let length = length.ok_or_else(too_large)?;
        if let Some(wanted) = options.shape.as_ref().filter(|wanted| *wanted != shape) {
            return Err(wrong("x", &x, format!("[n, ...] with samples of shape {}", spelled(wanted))));
        }
        let samples = match (x.dtype(), shape) {
            (Dtype::U8, [_, _, _]) => Samples::Bytes(x.data().to_vec()),
            (Dtype::F32, _) => Samples::Floats(floats(x.data())),
            (Dtype::U16, [_]) => Samples::Tokens(shorts(x.data())),
            _ => return Err(wrong("x", &x, NEEDED)),
        };
        if length == 0 {
            return Err(DataError::EmptyShape { found: shape.to_vec() });
        }
        let truths = match (&options.labels, y) {
            (&Some(Labels::Values { outputs, flags, .. }), Some(y)) => {
                Some(Truths::values(*count, &y, outputs, flags)?)
            }
            (Some(labels), Some(y)) => {
                let stored = metadata.metadata().as_ref().and_then(|all| all.get(CLASSES)?.parse().ok());
                Some(Truths::labels(&x, &y, stored.unwrap_or(labels.classes()))?)
            }
            _ => None,
        };
        Ok(Self { samples, count: *count, shape: shape.to_vec(), length, truths })
    }
}

const NEEDED: &str = "U8 [n, channels, height, width], F32 [n, ...] or U16 [n, length]";

/// The tensor `y`.
struct Truths {
    of: Kind,
    /// Labels or numbers of a sample.
    each: usize,
    /// How many classes or outputs there are.
    classes: usize,
}

enum Kind {
    Labels(Vec<i64>),
    Values { values: Vec<f32>, flags: bool },
}

impl Truths {
    /// As many numbers for each of the samples as there are outputs.
    fn values(count: usize, y: &TensorView<'_>, outputs: usize, flags: bool) -> Result<Self, DataError> {
        let fits = y.shape() == [count, outputs] || (outputs == 1 && y.shape() == [count]);
        let values = match y.dtype() {
            _ if !fits => None,
            Dtype::F32 => Some(floats(y.data())),
            Dtype::F64 => {
                Some(y.data().as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes) as f32).collect())
            }
            _ => numbers(y).map(|numbers| numbers.into_iter().map(|number| number as f32).collect()),
        };
        let needed = || format!("[{count}, {outputs}] numbers, {outputs} for each sample of `x`");
        let values = values.ok_or_else(|| wrong("y", y, needed()))?;
        Ok(Self { of: Kind::Values { values, flags }, each: outputs, classes: outputs })
    }

    /// One label for each sample; a text may have one for each token, which is the token that follows.
    fn labels(x: &TensorView<'_>, y: &TensorView<'_>, classes: usize) -> Result<Self, DataError> {
        let labelled = y.shape();
        let follows = x.dtype() == Dtype::U16 && labelled == x.shape();
        if !follows && labelled != &x.shape()[..1] {
            let needed = format!("as many labels as samples, `x` having shape {:?}", x.shape());
            return Err(wrong("y", y, needed));
        }
        let labels = numbers(y).ok_or_else(|| wrong("y", y, "whole numbers"))?;
        Ok(Self { of: Kind::Labels(labels), each: labelled[1..].iter().product(), classes })
    }

    /// What is to be learned of a sample.
    fn of(&self, row: usize) -> Result<Targets, DataError> {
        let own = row * self.each..(row + 1) * self.each;
        let class = |&label: &i64| {
            let class = u32::try_from(label).ok().filter(|&class| (class as usize) < self.classes);
            class.ok_or_else(|| unknown_number(label.to_string(), self.classes))
        };
        match &self.of {
            Kind::Labels(labels) => {
                labels[own].iter().map(class).collect::<Result<_, _>>().map(Targets::Classes)
            }
            Kind::Values { values, flags } => {
                let value = |value: &f32| Labels::check_value(Some(*value), *flags, value);
                values[own].iter().map(value).collect::<Result<_, _>>().map(Targets::Values)
            }
        }
    }
}

fn tensor<'a>(tensors: &SafeTensors<'a>, name: &'static str) -> Result<TensorView<'a>, DataError> {
    let names = || tensors.names().into_iter().take(20).collect::<Vec<_>>().join(", ");
    tensors.tensor(name).map_err(|_| SafetensorsError::NoTensor { name, names: names() }.into())
}

fn finite(samples: &Samples, row: usize, length: usize) -> Result<(), DataError> {
    let Samples::Floats(values) = samples else { return Ok(()) };
    match values[row * length..][..length].iter().position(|value| !value.is_finite()) {
        Some(column) => Err(DataError::NotFinite { row, column }),
        None => Ok(()),
    }
}

fn floats(data: &[u8]) -> Vec<f32> {
    data.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

fn shorts(data: &[u8]) -> Vec<u16> {
    data.as_chunks().0.iter().map(|&bytes| u16::from_le_bytes(bytes)).collect()
}

/// Whole numbers of any type; what an `i64` cannot hold is no label anyway.
fn numbers(tensor: &TensorView<'_>) -> Option<Vec<i64>> {
    let data = tensor.data();
    Some(match tensor.dtype() {
        Dtype::U8 => data.iter().map(|&byte| i64::from(byte)).collect(),
        Dtype::I8 => data.iter().map(|&byte| i64::from(byte.cast_signed())).collect(),
        Dtype::U16 => shorts(data).into_iter().map(i64::from).collect(),
        Dtype::I16 => shorts(data).into_iter().map(|label| i64::from(label.cast_signed())).collect(),
        Dtype::U32 => data.as_chunks().0.iter().map(|&bytes| i64::from(u32::from_le_bytes(bytes))).collect(),
        Dtype::I32 => data.as_chunks().0.iter().map(|&bytes| i64::from(i32::from_le_bytes(bytes))).collect(),
        Dtype::I64 | Dtype::U64 => {
            data.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::OnError;

    fn file(tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) -> Vec<u8> {
        let views = tensors.iter().map(|(name, dtype, shape, data)| {
            (*name, TensorView::new(*dtype, shape.to_vec(), data).unwrap())
        });
        safetensors::serialize(views, None).unwrap()
    }

    fn load(bytes: &[u8], options: &ReadOptions) -> Result<Dataset, DataError> {
        read(bytes, Path::new("train.safetensors"), options)
    }

    fn two() -> ReadOptions {
        ReadOptions { labels: Some(Labels::Numbers(2)), ..ReadOptions::default() }
    }

    fn le(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn numbers_to_learn_are_tensors_of_any_type() {
        let of = |outputs, flags| ReadOptions {
            labels: Some(Labels::Values { outputs, names: Vec::new(), flags }),
            ..ReadOptions::default()
        };
        let x = ("x", Dtype::F32, &[2, 1][..], vec![0; 8]);
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let numbers = file(&[x.clone(), ("y", Dtype::F32, &[2, 2], bytes(&[1.0, 0.0, 1.0, 0.5]))]);
        let read = load(&numbers, &of(2, false)).unwrap();
        assert_eq!(read.targets().values(), [1.0, 0.0, 1.0, 0.5]);
        let there = |bytes: &[u8]| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("train.safetensors"), bytes).unwrap();
            (numbers_to_learn(folder.path(), Split::Train), numbers_to_learn(folder.path(), Split::Test))
        };
        assert_eq!(there(&numbers), (Some(2), None));
        let labels = file(&[x.clone(), ("y", Dtype::U8, &[2], vec![1, 0])]);
        assert_eq!(there(&labels), (None, None));
        let refused = |bytes: &[u8], options: &ReadOptions| load(bytes, options).unwrap_err().to_string();
        let half = refused(&numbers, &of(2, true));
        assert!(half.contains("sample 1") && half.contains("0 or 1"), "{half}");
        let shape = refused(&numbers, &of(3, false));
        assert!(shape.contains("[2, 3]"), "{shape}");
        let flags = file(&[x.clone(), ("y", Dtype::U8, &[2], vec![1, 0])]);
        assert_eq!(load(&flags, &of(1, true)).unwrap().targets().values(), [1.0, 0.0]);
        let double = 2.5f64.to_le_bytes().repeat(2);
        let double = file(&[x.clone(), ("y", Dtype::F64, &[2, 1], double)]);
        assert_eq!(load(&double, &of(1, false)).unwrap().targets().values(), [2.5, 2.5]);
        let nan = file(&[x, ("y", Dtype::F32, &[2], bytes(&[1.0, f32::NAN]))]);
        assert!(refused(&nan, &of(1, false)).contains("finite"));
        let folder = tempfile::tempdir().unwrap();
        write_split(folder.path(), Split::Train, &read).unwrap();
        assert_eq!(Safetensors.load(folder.path(), Split::Train, &of(2, false)).unwrap(), read);
    }

    #[test]
    fn a_split_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        for dataset in [
            Dataset::new(vec![3, 1, 2], (0..12).collect(), [1_u8, 0], 300).unwrap(),
            Dataset::labelled(vec![2], Samples::Floats(vec![0.5, -1.0, 3.0, 1e-9]), vec![1, 0], 2).unwrap(),
            Dataset::labelled(vec![2], Samples::Tokens(vec![0, 1, 300, 2]), vec![1, 300, 2, 0], 301).unwrap(),
        ] {
            write_split(folder.path(), Split::Test, &dataset).unwrap();
            let again = Safetensors.load(folder.path(), Split::Test, &ReadOptions::default()).unwrap();
            assert_eq!(again, dataset);
        }
        let absent = Safetensors.load(folder.path(), Split::Train, &two()).unwrap_err().to_string();
        assert!(absent.contains("contains no `train.safetensors`"), "{absent}");
    }

    #[test]
    fn labels_may_be_whole_numbers_of_any_type() {
        for (dtype, y) in [
            (Dtype::U8, vec![1, 0]),
            (Dtype::I16, vec![1, 0, 0, 0]),
            (Dtype::I32, [1_i32, 0].iter().flat_map(|label| label.to_le_bytes()).collect()),
            (Dtype::I64, [1_i64, 0].iter().flat_map(|label| label.to_le_bytes()).collect()),
        ] {
            let bytes = file(&[("x", Dtype::F32, &[2, 1], le(&[5.0, 6.0])), ("y", dtype, &[2], y)]);
            assert_eq!(load(&bytes, &two()).unwrap().labels(), [1, 0]);
        }
    }

    #[test]
    fn wrong_types_and_shapes_are_named() {
        let y = |shape: &'static [usize]| ("y", Dtype::U8, shape, vec![0; shape.iter().product()]);
        let x = |shape: &'static [usize]| ("x", Dtype::F32, shape, le(&vec![0.0; shape.iter().product()]));
        let says = |tensors: &[(&str, Dtype, &[usize], Vec<u8>)], said: &str| {
            let skip = ReadOptions { on_error: OnError::Skip, ..two() };
            let error = load(&file(tensors), &skip).unwrap_err().to_string();
            assert!(error.starts_with("train.safetensors: ") && error.contains(said), "{error}");
        };
        says(&[y(&[2])], "no tensor `x`; there are y");
        says(&[x(&[2, 3])], "no tensor `y`; there are x");
        says(&[x(&[2, 3]), y(&[3])], "`y` is U8 [3]");
        says(&[x(&[2, 3]), y(&[2, 3])], "`y` is U8 [2, 3]");
        says(
            &[("x", Dtype::F64, &[1, 1], vec![0; 8]), y(&[1])],
            "`x` is F64 [1, 1]; needed: U8 [n, channels",
        );
        says(&[("x", Dtype::U8, &[1, 2], vec![0; 2]), y(&[1])], "`x` is U8 [1, 2]");
        says(&[x(&[1, 1]), ("y", Dtype::F32, &[1], le(&[0.0]))], "`y` is F32 [1]; needed: whole numbers");
        says(&[x(&[0, 3]), y(&[0])], "holds no sample");
        says(&[x(&[2, 0]), y(&[2])], "at least one value");
        let endless = ("x", Dtype::F32, &[0, 1 << 40, 1 << 40][..], Vec::new());
        says(&[endless, y(&[0])], "would take [0, 1099511627776, 1099511627776] bytes");
        let shaped = ReadOptions { shape: Some(vec![4]), ..two() };
        let error = load(&file(&[x(&[2, 3]), y(&[2])]), &shaped).unwrap_err().to_string();
        assert!(error.contains("`x` is F32 [2, 3]; needed: [n, ...] with samples of shape 4"), "{error}");
        let cut = file(&[x(&[2, 3]), y(&[2])]);
        assert!(matches!(load(&cut[..cut.len() - 1], &two()), Err(DataError::InFile { .. })));
    }

    #[test]
    fn without_labels_nothing_but_the_samples_is_looked_at() {
        let load = |tensors: &[(&str, Dtype, &[usize], Vec<u8>)]| {
            load(&file(tensors), &ReadOptions { labels: None, ..two() })
        };
        let x = ("x", Dtype::F32, &[2, 1][..], le(&[5.0, 6.0]));
        for tensors in [&[x.clone()][..], &[x, ("y", Dtype::F32, &[7][..], le(&[f32::NAN; 7]))]] {
            let dataset = load(tensors).unwrap();
            assert_eq!(dataset.samples(), &Samples::Floats(vec![5.0, 6.0]));
            assert_eq!((dataset.len(), dataset.classes(), dataset.labels().len()), (2, 0, 0));
        }
        let tokens = load(&[("x", Dtype::U16, &[1, 2], vec![1, 0, 2, 0])]).unwrap();
        assert_eq!((tokens.samples(), tokens.labels_each()), (&Samples::Tokens(vec![1, 2]), 0));
        let says = |tensors: &[(&str, Dtype, &[usize], Vec<u8>)], said: &str| {
            let error = load(tensors).unwrap_err().to_string();
            assert!(error.starts_with("train.safetensors: ") && error.contains(said), "{error}");
        };
        says(&[("y", Dtype::U8, &[2], vec![0; 2])], "no tensor `x`");
        says(&[("x", Dtype::F32, &[1, 2], le(&[0.0, f32::NAN]))], "sample 0: ");
        says(&[("x", Dtype::U8, &[0, 1, 1, 1], Vec::new())], "holds no sample");
    }

    #[test]
    fn a_wrong_sample_is_named_or_skipped_and_counted() {
        let bytes = file(&[
            ("x", Dtype::F32, &[4, 1], le(&[1.0, 2.0, f32::NAN, 4.0])),
            ("y", Dtype::I8, &[4], vec![0, 255, 0, 1]),
        ]);
        let error = load(&bytes, &two()).unwrap_err().to_string();
        assert!(error.contains("sample 1: ") && error.contains("label \"-1\""), "{error}");
        let dataset = load(&bytes, &ReadOptions { on_error: OnError::Skip, ..two() }).unwrap();
        let skipped = dataset.skipped();
        assert_eq!((dataset.labels(), dataset.samples()), (&[0, 1][..], &Samples::Floats(vec![1.0, 4.0])));
        assert_eq!(skipped.count, 2);
        assert!(skipped.reasons[1].contains("not a finite number"), "{skipped:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>, flips in prop::collection::vec((0_usize..400, any::<u8>()), 0..4)) {
            let _ = load(&bytes, &two());
            let mut damaged = file(&[("x", Dtype::F32, &[2, 1], le(&[5.0, 6.0])), ("y", Dtype::U8, &[2], vec![0, 1])]);
            for (at, byte) in flips {
                let at = at % damaged.len();
                damaged[at] = byte;
            }
            let _ = load(&damaged, &two());
            let _ = load(&damaged, &ReadOptions { labels: None, ..two() });
        }
    }
}
