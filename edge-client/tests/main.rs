//! The integration tests of the device's program and of its state directory, in one program.

mod bench;
mod command_line;
mod state_directory;
