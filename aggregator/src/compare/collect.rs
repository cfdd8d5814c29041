//! Collection of an experiment's runs from the folders that its [shards](super::shard) left, into one folder: what one process would have
//! left there.
//!
//! Folders may have come by any way of copying, or be one folder in which several shards worked. Everything is checked before anything
//! is copied:
//!
//! | module | what it is |
//! |---|---|
//! | [`folder`] | what lies in a folder |
//! | [`copies`] | of each run the one copy to take, if it is of this experiment and of this version |
//! | `same` | whether two copies of a run have the same results |
//! | [`missing`] | the runs that are not complete in any folder, with the shards that they belong to |
//! | [`transfer`] | copying |
//! | [`error`] | what is in the way |

pub mod copies;
pub mod error;
pub mod folder;
pub mod missing;
mod same;
pub mod transfer;
