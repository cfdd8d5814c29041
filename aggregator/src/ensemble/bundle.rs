//! Reading of an ensemble's file, one member at a time.

use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use models::params::codec::{TensorStream, Verifying};
use models::{Array, DecodeError, Limits, ParamSet};
use shared::ensemble::{Layout, PROTOTYPES, prefix};

use super::error::disk;
use super::{EnsembleError, Manifest};
use crate::storage::{FileLayer, Reading};

/// Receives a member's values: a tensor's name and the next few values of it, in the order of the names.
pub type Values<'a> = dyn FnMut(&str, &[f32]) -> Result<(), EnsembleError> + 'a;

/// Limits of an ensemble's header: with 500 members of a deep network it has some 20 MB.
const LIMITS: Limits = Limits {
    max_bytes: u64::MAX,
    max_header: 256 << 20,
    max_tensors: 1 << 20,
    max_values: 0,
    any_order: true,
};

/// Bytes read at once.
const CHUNK: usize = 1 << 16;

/// An ensemble with its fused prototypes in memory and its members in the file.
pub struct Bundle {
    files: Arc<dyn FileLayer>,
    path: PathBuf,
    /// Its description.
    pub manifest: Manifest,
    layout: Layout,
    /// `P_g`, `[classes, d]`; none of classifiers.
    pub prototypes: Vec<f32>,
    /// Offset of the first member's values in the file.
    start: u64,
}

impl Bundle {
    /// Opens an ensemble. Checks everything but the members' values, which are checked when they are read.
    pub fn open(files: Arc<dyn FileLayer>, path: &Path) -> Result<Self, EnsembleError> {
        let mut input = Reading::open(&*files, path).map_err(disk("open", path))?;
        let described = TensorStream::open_described(&mut input, LIMITS);
        let (stream, metadata) = match described {
            Ok(described) => described,
            Err(source) => {
                let source = input.judge(source).map_err(disk("read", path))?;
                return Err(EnsembleError::NotSafetensors { path: path.to_owned(), source });
            }
        };
        let no_ensemble = |reason| EnsembleError::NotAnEnsemble { path: path.to_owned(), reason };
        let manifest = Manifest::of(&metadata).map_err(no_ensemble)?;
        let layout = Layout::of(&manifest).map_err(no_ensemble)?;
        layout
            .check(manifest.members.len(), &stream)
            .map_err(|reason| EnsembleError::Layout { path: path.to_owned(), reason })?;
        let data = stream.into_parts().1.remaining();

        let header = header_length(&*files, path)?;
        let found = files.length(path).map_err(disk("look at", path))?.unwrap_or(0);
        let expected = header + data;
        if found != expected {
            return Err(EnsembleError::Length { path: path.to_owned(), expected, found });
        }
        let mut bundle =
            Self { files, path: path.to_owned(), manifest, layout, prototypes: Vec::new(), start: header };
        if let Some((_, shape)) = &bundle.layout.prototypes {
            let mut values = bundle.open_at(bundle.place(bundle.manifest.members.len()))?;
            bundle.prototypes = values.take(shape.iter().product())?;
            bundle.finite(&bundle.prototypes, || PROTOTYPES.to_owned())?;
        }
        Ok(bundle)
    }

    /// [Opens](Self::open) and [verifies](Self::verify) an ensemble.
    pub fn open_verified(files: Arc<dyn FileLayer>, path: &Path) -> Result<Self, EnsembleError> {
        let bundle = Self::open(files, path)?;
        bundle.verify()?;
        Ok(bundle)
    }

    /// Reads the whole file and compares its checksum, if it has one.
    ///
    /// # Errors
    /// [`EnsembleError::Damaged`] if a disk or a copy has changed it, [`EnsembleError::Disk`] if it cannot be read.
    pub fn verify(&self) -> Result<(), EnsembleError> {
        let input = Reading::open(&*self.files, &self.path).map_err(disk("open", &self.path))?;
        Verifying::new(BufReader::with_capacity(CHUNK, input)).finish().map_err(|error| match error {
            DecodeError::Io(source) => disk("read", &self.path)(source),
            _ => EnsembleError::Damaged { path: self.path.clone() },
        })
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length of a member's features of one sample, where these are fused; 0 of classifiers.
    #[must_use]
    pub fn dimensions(&self) -> usize {
        self.prototypes.len() / self.manifest.architecture.classes.max(1)
    }

    /// One member's model.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn member(&self, member: usize) -> Result<ParamSet, EnsembleError> {
        assert!(member < self.manifest.members.len(), "member {member} of {}", self.manifest.members.len());
        let mut values = self.open_at(self.place(member))?;
        let mut params = ParamSet::new();
        for (name, shape) in &self.layout.tensors {
            let values = values.take(shape.iter().product())?;
            self.finite(&values, || format!("{}{name}", prefix(member)))?;
            let array = Array::new(shape.clone(), values).expect("as many values as the shape says");
            params.insert(name.clone(), array);
        }
        Ok(params)
    }

    /// Passes a member's values on, in the order of its tensors and a few at a time.
    pub(super) fn pass(&self, member: usize, visit: &mut Values<'_>) -> Result<(), EnsembleError> {
        let mut input = self.open_at(self.place(member))?;
        for (name, shape) in &self.layout.tensors {
            let count: usize = shape.iter().product();
            let mut left = count;
            while left > 0 {
                let values = input.take(left.min(CHUNK / 4))?;
                self.finite(&values, || format!("{}{name}", prefix(member)))?;
                visit(name, &values)?;
                left -= values.len();
            }
        }
        Ok(())
    }

    fn place(&self, member: usize) -> u64 {
        self.start + 4 * (member * self.layout.values()) as u64
    }

    fn finite(&self, values: &[f32], tensor: impl FnOnce() -> String) -> Result<(), EnsembleError> {
        if values.iter().all(|value| value.is_finite()) {
            return Ok(());
        }
        Err(EnsembleError::NotFinite { path: self.path.clone(), tensor: tensor() })
    }

    fn open_at(&self, place: u64) -> Result<Numbers<'_>, EnsembleError> {
        let input = Reading::open_at(&*self.files, &self.path, place).map_err(disk("open", &self.path))?;
        Ok(Numbers { input, path: &self.path })
    }
}

/// A file of values.
struct Numbers<'a> {
    input: Reading,
    path: &'a Path,
}

impl Numbers<'_> {
    /// The next `count` values. The length of the file was checked, which bounds the memory.
    fn take(&mut self, count: usize) -> Result<Vec<f32>, EnsembleError> {
        let mut values = Vec::with_capacity(count);
        let mut bytes = vec![0; CHUNK.min(4 * count)];
        while values.len() < count {
            let left = (4 * (count - values.len())).min(CHUNK);
            let bytes = &mut bytes[..left];
            self.input.read_exact(bytes).map_err(disk("read", self.path))?;
            values.extend(bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)));
        }
        Ok(values)
    }
}

/// Bytes before the first value.
fn header_length(files: &dyn FileLayer, path: &Path) -> Result<u64, EnsembleError> {
    let mut length = [0; 8];
    let mut input = Reading::open(files, path).map_err(disk("open", path))?;
    input.read_exact(&mut length).map_err(disk("read", path))?;
    Ok(8 + u64::from_le_bytes(length))
}
