//! What is wrong with folders of images.

use models::shape::spelled;
use thiserror::Error;

use super::super::Lacks;
use super::super::error::FormatError;

/// Errors of folders of images.
#[derive(Debug, Error)]
pub(super) enum ImagesError {
    #[error("cannot be decoded as PNG or JPEG: {reason}")]
    Undecodable { reason: String },
    #[error(
        "cannot be read: images of a class are PNG or JPEG, and named .png, .jpg or .jpeg; convert it or take it away"
    )]
    NoImage,
    #[error("is no folder of a class, and only these are expected here")]
    NoClassFolder,
    #[error("is the folder of a class and holds no image; put images into it or remove it")]
    EmptyClass,
    #[error(
        "holds images by class ({}): the names of the classes are not said, in the order that all clients of the run share",
        .found.join(", ")
    )]
    NoClassNames { found: Vec<String> },
    #[error("images are read with one channel or three, as in 3x32x32, and not as {}", spelled(.shape))]
    Channels { shape: Vec<usize> },
    #[error(
        "is {}x{} and the first image {}x{}: the shape that all are to be brought to is not said",
        .found.0, .found.1, .first.0, .first.1
    )]
    SizesDiffer { found: (usize, usize), first: (usize, usize) },
}

impl FormatError for ImagesError {
    fn lacks(&self) -> Option<Lacks> {
        match self {
            Self::NoClassNames { found } => Some(Lacks::ClassNames(found.clone())),
            Self::SizesDiffer { .. } => Some(Lacks::Shape),
            _ => None,
        }
    }
}
