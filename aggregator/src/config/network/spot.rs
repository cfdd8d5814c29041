//! Where in the layers of a network something stands.

use crate::config::Origin;
use crate::config::places::{Places, below};

/// The key of the list, or of the table with the lists.
pub(super) const KEY: &str = "model.layers";

/// A list, a layer or a setting: as the places of a file know it, and as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// As in `model.layers[2].conv.out`, counted from 0.
    path: String,
    /// As in `model.layers, layer 3, conv.out`.
    pub(super) shown: String,
}

impl Spot {
    /// All layers.
    pub(super) fn root() -> Self {
        Self { path: KEY.to_owned(), shown: KEY.to_owned() }
    }

    /// What stands under a name.
    pub(super) fn below(&self, name: &str) -> Self {
        Self { path: below(&self.path, name), ..self.meaning(name) }
    }

    /// What stands for the setting of this name, alone.
    pub(super) fn meaning(&self, name: &str) -> Self {
        let separator = if self.path.ends_with(']') { ", " } else { "." };
        Self { path: self.path.clone(), shown: format!("{}{separator}{}", self.shown, below("", name)) }
    }

    /// The layer at this position of a list.
    pub(super) fn layer(&self, index: usize) -> Self {
        Self {
            path: format!("{}[{index}]", self.path),
            shown: format!("{}, layer {}", self.shown, index + 1),
        }
    }

    /// Whether just this place is known.
    pub(super) fn is_known(&self, places: Option<&Places>) -> bool {
        places.is_some_and(|places| places.origin(&self.path).is_some())
    }

    /// Where it was given, or what it is in.
    pub(super) fn origin(&self, places: Option<&Places>) -> Origin {
        let mut path = self.path.as_str();
        loop {
            if let Some(origin) = places.and_then(|places| places.origin(path)) {
                return origin.clone();
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return Origin::Configuration,
            }
        }
    }
}
