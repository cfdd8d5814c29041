//! The integration tests of the device's program and of its state directory, in one program.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod bench;
mod command_line;
mod state_directory;
