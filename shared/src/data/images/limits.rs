//! How large images may be.

/// The largest file, in bytes.
pub const MAX_FILE: u64 = 64 << 20;
/// The longest side of an image, in pixels.
pub const MAX_SIDE: u32 = 1 << 14;
/// The most memory that a decoder may take, in bytes.
pub const MAX_DECODED: u64 = 512 << 20;
