//! The device's side of the federation.
//!
//! A *device* is a machine; it takes part as a *client*, which is its id in a run.
//!
//! | module | what it does |
//! |---|---|
//! | [`session`] | the protocol state machine: no I/O, no clock |
//! | [`driver`] | the I/O of the state machine: connection, training, store, time |
//! | [`masking`] | secure aggregation: how an update is hidden before it leaves the device |
//! | [`task`] | task execution: from the broadcast's bytes to the update's |
//! | [`failure`] | failed tasks, and who can fix them |
//! | [`pool`] | the threads that train |
//! | [`sensors`] | whether the device meets a run's conditions for training |
//! | [`system`] | what the operating system reports of the device |
//! | [`transport`] | the channel between the driver and a transport |
//! | [`address_book`] | the addresses of the server, and the order in which they are tried |
//! | [`quic`], [`trust`] | the QUIC transport, and the server that it trusts |
//! | [`doctor`] | checks for what keeps the device from taking part |
//! | [`mod@bench`] | the speed of training on this device |
//! | [`allowance`] | the device's bound on what a run may take of its memory |
//! | [`memory`] | this process's memory; returning freed memory to the system |
//! | [`store`] | state that survives a restart |
//! | [`predict`] | predictions of a trained model |
//! | [`answer`] | answers to programs on the device |
//! | [`status`] | what the device does, for people and programs that do not read its log |
//! | [`evaluate`] | tests of the personal model |
//! | [`cli`] | the command line |

pub mod address_book;
pub mod allowance;
pub mod answer;
pub mod bench;
pub mod cli;
pub mod doctor;
pub mod driver;
pub mod evaluate;
pub mod failure;
pub mod masking;
pub mod memory;
pub mod pool;
pub mod predict;
pub mod quic;
pub mod sensors;
pub mod session;
pub mod status;
pub mod store;
pub mod system;
pub mod task;
pub mod transport;
pub mod trust;
