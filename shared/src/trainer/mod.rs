//! Trainers as processes: programs of an owner's own that train and test networks of any framework.
//!
//! A trainer is one long-lived process. It reads requests from its standard input and answers on its standard output, one line of JSON
//! each ([`mod@line`]); tensors are in safetensors files, in a folder of the trainer's own. Nothing is run that the owner of the machine
//! has not named in a command.
//!
//! ```text
//! -> {"describe":{}}
//! <- {"described":{"samples":1200}}
//! -> {"train":{"round":3,"model":"DIR/model.safetensors","out":"DIR/trained.safetensors","learning_rate":0.1,"seed":7,"training":{..}}}
//! <- {"progress":{"done":10,"total":60}}
//! <- {"finished":{"loss":0.31,"steps":60,"metrics":{"accuracy":0.88}}}
//! -> {"test":{"round":3,"model":"DIR/model.safetensors"}}
//! <- {"tested":{"samples":200,"loss":0.4,"accuracy":0.85}}
//! ```
//!
//! Every line is a sign of life. A request that is to be given up is followed by `{"cancel":{}}`; the answer is `{"cancelled":{}}` or
//! that to the request. A trainer that cannot do what it is asked answers `{"failed":{"reason":".."}}` and goes on; one that ends, is
//! silent for too long or answers something else is started again before it is needed next, after a backoff.
//!
//! * [`mod@command`]: what is run, and what it may take;
//! * [`mod@process`]: one process and the talk with it;
//! * [`mod@pool`]: the processes of one command, started when they are needed.

pub mod command;
pub mod line;
pub mod pool;
pub mod process;
#[cfg(test)]
mod tests;

pub use command::TrainerCommand;
pub use pool::{ClientNumber, TrainerAtWork, Trainers};
