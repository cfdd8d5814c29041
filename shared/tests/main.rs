//! The integration tests of this crate, in one program.
//!
//! `rule_memory.rs` is a program of its own, because it reads the memory of its whole process.

mod algorithms;
mod glyphs_difficulty;
mod golden_messages;
