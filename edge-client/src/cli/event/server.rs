//! What is said of the server and the connection to it.

use serde_json::json;

use super::{Said, one};
use crate::driver::Notice;

/// What is said of a notice about the server; nothing of others.
pub(super) fn said(notice: &Notice) -> Option<Said> {
    Some(match notice {
        Notice::Connected { server } => {
            one(format!("connected to {server}"), json!({ "event": "connected", "server": server }))
        }
        Notice::Disconnected { reason, retry, .. } => {
            let next = if retry.is_zero() {
                "trying its next address".to_owned()
            } else {
                format!("trying again in {:.1} s", retry.as_secs_f64())
            };
            let object =
                json!({ "event": "disconnected", "reason": reason, "retry_seconds": retry.as_secs_f64() });
            one(format!("not connected: {reason}; {next}"), object)
        }
        Notice::TurnedBack { refusal } => one(
            format!("not yet: {refusal}; trying again until then"),
            json!({ "event": "turned-back", "reason": refusal.to_string() }),
        ),
        Notice::ServerKey { key } => {
            one("the server has a new key".to_owned(), json!({ "event": "server-key", "key": key }))
        }
        Notice::Servers { addresses } => one(
            format!("the server is reached at {}", addresses.join(", ")),
            json!({ "event": "servers", "addresses": addresses }),
        ),
        _ => return None,
    })
}
