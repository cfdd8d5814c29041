//! Charts as inline SVG: no script, no external resource, colours from the page's style sheet so that light and dark
//! mode both work. Every chart has a title and a description for those who do not see it.

mod bars;
mod closer;
mod confusion;
mod frame;
mod heatmap;
mod lines;
mod scale;
mod strip_plot;
mod thinned;

pub(super) use bars::{Bars, Stack};
pub(super) use confusion::{DRAWN as CONFUSION_DRAWN, confusion};
pub(crate) use frame::Axis;
pub(super) use heatmap::{DRAWN, heatmap};
pub(crate) use lines::{Floor, Line, Lines};
pub(crate) use strip_plot::{Strip, Strips, quartiles};
