//! The command line, as far as both programs have the same. With the feature `cli` only: the rest of the crate needs none of it.

mod address;
mod by_class;
mod by_label;
mod causes;
mod counted;
mod evaluation;
mod log_filter;
mod manual;
mod predictions;
mod processor;
mod signals;
mod systemd;
mod wrap;

pub use address::address;
pub use by_class::{by_class_json, by_class_text};
pub use by_label::ByLabel;
pub use causes::causes;
pub use counted::{counted, grouped};
pub use evaluation::{evaluation_json, evaluation_text, measure_text, measure_value};
pub use log_filter::{LOG_VARIABLE, log_filter, log_filter_of};
pub use manual::{Manual, ManualError};
pub use predictions::{FormArgs, Names, Predictions, json_line, values_json};
pub use processor::{NoCuda, Processor, cores};
pub use signals::{Signals, StopSignal};
pub use systemd::Systemd;
pub use wrap::wrapped;
