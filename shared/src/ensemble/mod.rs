//! Ensembles: the models of many clients that answer together.
//!
//! ```text
//! ensemble.safetensors
//!     member.000000.extractor.conv1.weight ...   the first member's parameters, ordered by client
//!     member.000001.extractor.conv1.weight ...
//!     prototypes                                 P_g, the mean of the members' prototypes, [classes, d]; none of classifiers
//!     metadata: architecture, samples, and what a `Manifest` holds
//! ```
//!
//! The weights of the members are a [`Fusion`](crate::algorithm::Fusion):
//!
//! ```text
//! informative   alpha_m = 1 - cos(F_m(x), F_m(noise))      F = sum_m alpha_m F_m(x) / sum alpha
//! size          n_m                                        F = sum_m n_m F_m(x) / sum n
//! uniform       1                                          F = mean_m F_m(x)
//! logits        n_m, of the members' own answers           sum_m n_m f_hat_m P_m^T / sum n
//! ```
//!
//! Of members that are [classifiers](crate::algorithm::Head::Classifier) there are others, where `n_m = 1` if all count alike:
//!
//! ```text
//! logits          n_m     softmax(sum_m n_m z_m / sum n),   z_m the outputs of the last layer
//! probabilities   n_m     sum_m n_m softmax(z_m) / sum n
//! ```
//!
//! The three of features predict the class of the prototype in `P_g` that is nearest to `F` by the cosine; their probabilities
//! are the softmax of the cosines over the run's temperature. The sums are in fixed point: the predictions are the same for any order
//! of the members, number of threads and size of a batch, and on the server and a device.

mod batch;
pub mod fusion;
mod layout;
mod manifest;

pub use batch::{AskError, Fused, Gathered};
pub use layout::{Layout, PROTOTYPES, prefix};
pub use manifest::{MANIFEST_KEY, Manifest, Member, digest};
