//! The device's side of the federation.
//!
//! | module | what it does |
//! |---|---|
//! | [`session`] | the protocol state machine: no I/O, no clock |
//! | [`driver`] | does the machine's I/O: connection, training, store, time |
//! | [`pool`] | threads that train |
//! | [`work`] | one task: from the broadcast's bytes to the update's |
//! | [`sensors`] | whether the device is in a state to train |
//! | [`system`] | what the system tells of the device |
//! | [`link`] | the channels between the driver and a transport |
//! | [`quic`], [`trust`] | the real transport, and which server it believes |
//! | [`doctor`] | what keeps this device from taking part |
//! | [`mod@bench`] | the speed of training on this device |
//! | [`memory`] | how much memory was used; giving freed memory back |
//! | [`store`] | what must survive a restart |
//! | [`personal`] | the personal model as a file |
//! | [`predict`] | using a trained model |
//! | [`evaluate`] | how good the personal model is |
//! | [`cli`] | the command line |

pub mod bench;
pub mod cli;
pub mod doctor;
pub mod driver;
pub mod evaluate;
pub mod failure;
pub mod memory;
pub mod personal;
pub mod pool;
pub mod predict;
pub mod quic;
pub mod sensors;
pub mod session;
pub mod store;
pub mod system;
pub mod task;
pub mod transport;
pub mod trust;
