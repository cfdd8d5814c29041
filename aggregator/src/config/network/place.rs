//! From the name that an architecture's error has for a layer to where that layer was written.

use models::{Architecture, ArchitectureError, Layer};

use super::read::PARTS;
use super::spot::Spot;
use crate::config::Origin;
use crate::config::places::Places;

/// Where the layer that an error is about was given, and which one it is, in words. Errors about no layer are about the
/// last one, and those about the input are about all of them.
pub(in crate::config) fn place(
    architecture: &Architecture,
    error: &ArchitectureError,
    places: Option<&Places>,
) -> (Origin, String) {
    let root = Spot::root();
    let mut search = Search { label: error.layer(), places, last: root.clone() };
    let is_list = root.layer(0).is_known(places);
    let mut before = 0;
    let found = PARTS.iter().zip(architecture.parts()).find_map(|(name, (part, layers))| {
        // One list has no parts: the head is its end.
        let list = if is_list { (root.clone(), before) } else { (root.below(name), 0) };
        before += layers.len();
        search.layers(layers, part, part, &list)
    });
    let spot = found.unwrap_or(if error.layer().is_some() { root } else { search.last });
    (spot.origin(places), spot.shown)
}

struct Search<'a> {
    label: Option<&'a str>,
    places: Option<&'a Places>,
    /// The layer that was looked at last.
    last: Spot,
}

impl Search<'_> {
    /// The layer with the label; `list` is where they stand, and the position of the first.
    fn layers(&mut self, layers: &[Layer], part: &str, place: &str, list: &(Spot, usize)) -> Option<Spot> {
        for (index, layer) in layers.iter().enumerate() {
            let label = layer.label(part, place, index);
            let spot = list.0.layer(list.1 + index);
            if self.label == Some(label.as_str()) {
                return Some(spot);
            }
            if let Layer::Residual { body, shortcut } = layer {
                let block = spot.below("residual");
                // The body may stand for the whole block.
                let short = block.layer(0).is_known(self.places);
                let at = if short { block.meaning("body") } else { block.below("body") };
                let found = self.layers(body, part, &format!("{label}.body"), &(at, 0));
                let found = found.or_else(|| {
                    self.layers(shortcut, part, &format!("{label}.shortcut"), &(block.below("shortcut"), 0))
                });
                if found.is_some() {
                    return found;
                }
            }
            if let Layer::SqueezeExcite { body } = layer {
                let block = spot.below("squeeze-excite");
                // The body may stand for the whole block.
                let short = block.layer(0).is_known(self.places);
                let at = if short { block.meaning("body") } else { block.below("body") };
                if let Some(found) = self.layers(body, part, &format!("{label}.body"), &(at, 0)) {
                    return Some(found);
                }
            }
            self.last = spot;
        }
        None
    }
}
