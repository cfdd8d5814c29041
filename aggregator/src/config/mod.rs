//! Configuration: from TOML text and `--set` overrides to a validated [`Config`], in two stages.
//!
//! 1. [`Raw`] is what can be written: the defaults, under a file, under the overrides in their order ([`Raw::layered`]). Every layer
//!    is checked against [`keys::KEYS`], so that a mistake is reported with the line or override it is in, the full key, what was
//!    given and what is accepted. A key is declared once, in its section ([`shared::settings`]).
//! 2. [`Config`] is what the program runs on. [`Config::validate`] refuses combinations that make no sense, with the reason, and turns
//!    the rest into a [`RunSpec`](shared::spec::RunSpec), a [`RoundPolicy`](crate::round::RoundPolicy) and a [`DataPlan`].
//!
//! All mistakes are reported together ([`ConfigErrors`]): what a mistake is about is left at the layer below's value, the
//! checks go on, and those that compare it with other values are left out, so that no mistake is a consequence of another.
//! A file that is no TOML is reported as such, and nothing is said of its keys. [`Config::read`] does both stages.
//!
//! | layer | rule |
//! |---|---|
//! | value | replaces the value below it |
//! | table | joins the table below it, key by key |
//! | `algorithm`, `data.partition`, `training.optimizer`, `training.schedule`, `aggregation.rule`, `aggregation.server-optimizer` | hold exactly one alternative; naming the one below joins it, naming another replaces it |
//! | a key's former name | is read as its name of today, and reported ([`Renamed`]) |
//! | `model.name`, `model.layers`, `model.parameters` | one; naming it replaces the others; with the last one `data.set` is `trainer` |
//! | `data.path`, `model.from`, `model.parameters` | relative to the file that has it; in `--set`, to the working directory |
//! | `--set data.max-samples=` (nothing after `=`) | takes an optional key back to unset |
//!
//! ```
//! use aggregator::config::{Config, Raw};
//! use shared::id::RunId;
//!
//! let raw = Raw::layered(None, &["model.name=linear".to_owned(), "round.fraction=0.5".to_owned()])?;
//! let config = Config::validate(&raw, RunId::from_bytes([1; 8]))?;
//! assert_eq!(config.spec.architecture.name, "linear");
//! assert_eq!(config.policy.cohort(10), 5);
//! # Ok::<(), aggregator::config::ConfigErrors>(())
//! ```

mod begins_with;
pub mod changeable;
mod changed;
mod check;
mod combinations;
mod data;
mod document;
mod error;
pub mod excerpt;
mod findings;
mod full_names;
pub mod keys;
mod layers;
#[cfg(test)]
mod mistakes;
mod model;
mod model_origin;
mod network;
mod overrides;
mod own_network;
mod paths;
mod personal;
mod places;
mod plan;
mod privacy;
mod raw;
mod renamed;
mod run_name;
mod samples;
mod server;
mod shown;
mod suggest;
mod task;
mod task_name;
mod validate;

pub(crate) use network::{layer_kinds, layers_of};
pub(crate) use suggest::{meant_key, nearest as nearest_name, nearest_of};

pub use changed::Changed;
pub use data::DataTable;
pub use error::{ConfigError, ConfigErrors, DATA_VARIABLE, Mistake, Origin};
pub use model_origin::{LIBRARIES, ModelOrigin};
pub use paths::value_at;
pub use plan::{DataPlan, ServerPlan, Source};
pub use privacy::{PrivacyTable, Sampling};
pub use raw::{
    Adapters, ConnectionTable, Lora, Mixing, ModelTable, Raw, RoundTable, RunTable, ServerTable,
    SimulationTable, Staleness,
};
pub use renamed::Renamed;
pub use task_name::TaskName;
pub use validate::Config;
