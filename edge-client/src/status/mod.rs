//! What a device does, for people and programs that do not read its log.
//!
//! * `line`: one line for the terminal, systemd and `edge-client status`;
//! * [`mod@record`]: all of it, from the notices of the driver;
//! * [`mod@file`]: the same in the state directory, where `edge-client status` finds it, also after the process has ended;
//! * [`mod@listen`]: the same for programs on the device, on a socket.

pub mod file;
pub(crate) mod line;
pub mod listen;
pub mod record;

pub use file::StatusFile;
pub use listen::StatusSocket;
pub use record::{DeviceStatus, RoundResult};
