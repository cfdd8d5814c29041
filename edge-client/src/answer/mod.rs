//! Answers to programs on the device: a model that stays loaded, and requests for single samples.
//!
//! A request is one JSON object in one line, and so is its answer:
//!
//! ```json
//! {"id": 7, "values": [5.1, 3.5, 1.4, 0.2]}
//! {"id": 8, "image": "iVBORw0KGgo...", "top-k": 2}
//! {"id": 9, "text": "To be or not to b"}
//! ```
//!
//! `values` are the numbers of a sample: of a table its features, of an image its pixels from 0 to 1, channel by channel, of a
//! text the numbers of its tokens. `image` is a PNG or JPEG in base64. `text` is the beginning of a text, and the answer what
//! follows it. The same object, or the image itself, may come as the body of an HTTP POST.
//!
//! * [`mod@model`] is the model, and its replacement when a newer one is there;
//! * `request`: what is asked; `http`: the same in HTTP;
//! * `reading`: how large a request may be, and how long it may take; `conversation`: requests and answers of one connection;
//! * [`mod@listen`] has the sockets.

mod conversation;
mod http;
pub mod listen;
pub mod model;
mod reading;
mod request;

pub use conversation::reply;
pub use listen::{Address, Listener};
pub use model::{Loaded, Origin};
