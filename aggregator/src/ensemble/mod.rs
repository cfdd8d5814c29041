//! Ensembles: the models of many clients side by side, in one file, and their answers.
//!
//! ```text
//! RUN/ensemble.safetensors
//!     member.000000.extractor.conv1.weight ...   the first member's parameters, ordered by client
//!     member.000001.extractor.conv1.weight ...
//!     prototypes                                 P_g, the mean of the members' prototypes, [classes, d]
//!     metadata: architecture, samples, and what a `Manifest` holds
//! ```
//!
//! An ensemble is as large as all its members together and never wholly in memory: [`Bundle`] holds the prototypes and the
//! offsets of the members' parameters, [`write()`] copies a few values at a time, and [`Bundle::answer`] evaluates one
//! member after the other with running sums for a chunk of samples. The sums are in fixed point: the predictions are the
//! same for any order of the members and any number of threads.
//!
//! The weights of the members are a [`Fusion`](shared::algorithm::Fusion):
//!
//! ```text
//! informative   alpha_m = 1 - cos(F_m(x), F_m(noise))      F = sum_m alpha_m F_m(x) / sum alpha
//! size          n_m                                        F = sum_m n_m F_m(x) / sum n
//! uniform       1                                          F = mean_m F_m(x)
//! logits        n_m, of the members' own answers           sum_m n_m f_hat_m P_m^T / sum n
//! ```
//!
//! The first three predict the class of the prototype in `P_g` that is nearest to `F` by the cosine; their probabilities
//! are the softmax of the cosines over the run's temperature.

mod answer;
mod bundle;
mod error;
mod extend;
mod fusion;
mod leave_out;
mod manifest;
mod soundness;
mod writing;

pub use answer::{Answers, Evaluated, Fused, Question};
pub use bundle::{Bundle, Values};
pub use error::EnsembleError;
pub use extend::{Extended, extend};
pub use leave_out::leave_out;
pub use manifest::{MANIFEST_KEY, Manifest, Member, digest};
pub use soundness::is_sound;
pub use writing::{Origin, Source, write};

#[cfg(test)]
mod tests;
