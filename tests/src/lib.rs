//! The test harness.
//!
//! | module | what it gives |
//! |---|---|
//! | [`simulator`] | both state machines joined in memory: virtual time, delays, cuts, crashes |
//! | [`faults`] | delays, cuts, crashes: how often and how long |
//! | [`schedule`] | a federation and its faults, drawn from one seed, and what must hold in the end |
//! | `several` | several servers of one run in memory: leaves, the root, a store that has its troubles |
//! | [`copy_folder`] | copies of folders |
//! | [`flips`] | one flipped bit in any file of a folder, and what a reader of the folder sees |
//! | [`lost_devices`] | hidden updates where devices are lost at a step of a round |
//! | [`device`] | one device of the simulator |
//! | [`server`] | the aggregator of the simulator: the real coordinator and the real durable steps |
//! | [`fuzz`] | every decoder and both machines under damaged inputs |
//! | [`faulty_disk`] | a file layer that dies at a chosen operation, with or without the power |
//! | [`whole_run`] | runs of simulated clients from where they stand to their end |
//! | [`watched_disk`] | a file layer that reports every operation to the test |
//! | [`serving`] | an aggregator that serves and clients that join, for the measurements |
//! | [`scenario`] | small configurations and data |
//! | [`programs`] | the two programs, built once |
//! | [`exported`] | exported networks in Python beside our own engine |
//! | [`python`] | a Python with numpy, or with PyTorch |
//! | [`proc`] | what a process uses: memory and processor time |
//! | [`process`] | a running program: its lines, its end, signals |
//! | `postgres` | a `PostgreSQL` server of the test's own |
//! | [`testbed`] | a folder with configuration, data and states: a federation of processes |
//! | `cluster_testbed` | the same with several servers of one run |
//! | [`in_process`] | an aggregator that serves real connections from this process |
//! | [`imports`] | which files and folders of a crate import each other |
//! | [`keys`] | keys of devices, the same in every run |
//! | [`planted`] | secrets that a test gives to a run |
//! | [`killed_processes`] | four devices and a server, killed at random, beside the simulation |
//! | [`relay`] | a relay of datagrams: a network whose addresses change |
//! | [`fault_table`] | the table of faults: what happens, when, and what must hold |
//! | [`fault_run`] | rows of it as runs of processes in namespaces, with emulated networks and small file systems |
//! | [`namespaces`] | network namespaces and mounted file systems, without root |
//! | [`netem`] | network emulation: delay, loss, bandwidth |
//! | [`slow_links`] | a federation of processes behind slow links |
//! | [`visitor`] | a visitor of the live page |
//! | [`raw_peer`] | a QUIC peer that sends any messages |
//! | [`gate`] | a client whose training waits until the test lets it go on |

pub mod browser;
#[cfg(unix)]
pub mod cluster_testbed;
pub mod copy_folder;
pub mod device;
pub mod exported;
pub mod fault_run;
pub mod fault_table;
pub mod faults;
pub mod faulty_disk;
pub mod flips;
pub mod fuzz;
pub mod gate;
pub mod http;
pub mod imports;
pub mod in_process;
pub mod keys;
pub mod killed_processes;
pub mod lost_devices;
pub mod namespaces;
pub mod netem;
pub mod open_pages;
pub mod planted;
#[cfg(unix)]
pub mod postgres;
pub mod proc;
pub mod process;
pub mod programs;
pub mod python;
pub mod raw_peer;
pub mod relay;
pub mod scenario;
pub mod schedule;
mod scheduled;
pub mod server;
pub mod serving;
pub mod several;
pub mod simulator;
pub mod slow_links;
pub mod supervised;
pub mod testbed;
pub mod visitor;
pub mod watched_disk;
pub mod whole_run;
