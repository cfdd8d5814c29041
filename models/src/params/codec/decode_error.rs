//! Why bytes are not a parameter set.

use std::io;

use safetensors::Dtype;

/// Why bytes are not a parameter set. All but [`DecodeError::Io`] are the sender's or the file's fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The tensors do not come in the order of their names, as the reader asks.
    #[error("its tensors are not in the order of their names")]
    Order,
    /// The file is not as it was written: its checksum is another one.
    #[error("its content does not match its checksum: a disk or a copy has changed it")]
    Checksum,
    /// The source failed.
    #[error("reading parameters failed")]
    Io(#[source] io::Error),
    /// The bytes end before the header says they do.
    #[error("the parameters end early, in the {within}: the file or message was cut off")]
    Truncated {
        /// What was being read: the header length, the header, or a tensor by name.
        within: String,
    },
    /// There are more bytes than the header accounts for.
    #[error(
        "there are bytes after the last tensor, so this is not the safetensors file that its header describes"
    )]
    TrailingBytes,
    /// The declared header is longer than accepted.
    #[error("a safetensors header of {declared} bytes is declared and at most {limit} are accepted")]
    HeaderTooLarge {
        /// Bytes that the length field declares.
        declared: u64,
        /// [`Limits::max_header`](super::Limits::max_header), or what is left of [`Limits::max_bytes`](super::Limits::max_bytes).
        limit: u64,
    },
    /// The declared data makes the whole larger than accepted.
    #[error("parameters of {declared} bytes are declared and at most {limit} are accepted")]
    TooLarge {
        /// Bytes that the header declares in all.
        declared: u64,
        /// [`Limits::max_bytes`](super::Limits::max_bytes).
        limit: u64,
    },
    /// There are more tensors than accepted.
    #[error("{count} tensors are declared and at most {limit} are accepted")]
    TooManyTensors {
        /// Tensors in the header.
        count: usize,
        /// [`Limits::max_tensors`](super::Limits::max_tensors).
        limit: usize,
    },
    /// The header is not UTF-8.
    #[error("the safetensors header is not UTF-8, so this is not a safetensors file")]
    NotUtf8(#[source] std::str::Utf8Error),
    /// The header is not the JSON that safetensors asks for.
    #[error("the safetensors header cannot be understood: {0}")]
    Header(#[source] serde_json::Error),
    /// Two tensors, or two metadata entries, have the same name.
    #[error("the name `{name}` appears twice in the safetensors header")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// The tensor holds something other than `F32`, `F16` or `BF16`.
    #[error("tensor `{tensor}` holds {dtype} values; only F32, F16 and BF16 are supported")]
    UnsupportedType {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
    },
    /// A compressed tensor does not fit what the file says of it.
    #[error("tensor `{tensor}` cannot be decompressed: {reason}")]
    Compressed {
        /// The tensor.
        tensor: String,
        /// Why.
        reason: &'static str,
    },
    /// The tensor's data overlaps another's, leaves a gap, or ends before it begins.
    #[error(
        "the data of tensor `{tensor}` is declared at bytes {start}..{end} and should begin at {expected}"
    )]
    Offsets {
        /// The tensor.
        tensor: String,
        /// Where its data is declared to begin.
        start: u64,
        /// Where its data is declared to end.
        end: u64,
        /// Where the data before it ends.
        expected: u64,
    },
    /// The tensor's data does not have the size its shape and element type need.
    #[error(
        "tensor `{tensor}` has the shape {shape:?} in {dtype}, which does not take the declared {declared} bytes"
    )]
    Size {
        /// The tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Its element type.
        dtype: Dtype,
        /// The declared number of bytes.
        declared: u64,
    },
}
