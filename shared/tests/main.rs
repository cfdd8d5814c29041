//! The integration tests of this crate, in one program.
//!
//! `rule_memory.rs` is a program of its own, because it reads the memory of its whole process.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod algorithms;
mod glyphs_difficulty;
mod golden_messages;
