//! What is said of secure aggregation.

use serde_json::{Value, json};
use shared::cli::counted;

use crate::driver::Notice;

/// What is said of a notice of secure aggregation: to people and to programs.
pub(super) fn said(notice: &Notice) -> Option<(String, Value)> {
    Some(match notice {
        Notice::Hiding { round } => (
            format!("round {round}: trained; waiting for others to hide the update among theirs"),
            json!({ "event": "hiding", "round": round }),
        ),
        Notice::Hidden { round, devices } => (
            format!("round {round}: the update is hidden among those of {}", counted(*devices, "device")),
            json!({ "event": "hidden", "round": round, "devices": devices }),
        ),
        Notice::Refused { round, reason } => (
            format!(
                "WARNING: round {round}: refused: {reason}. Ask the operator of the server what that was"
            ),
            json!({ "event": "refused-step", "round": round, "reason": reason }),
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_reads_among_how_many_and_what_was_refused() {
        let line = |notice: &Notice| said(notice).expect("it is of secure aggregation").0;
        let hidden = line(&Notice::Hidden { round: 3, devices: 40 });
        assert_eq!(hidden, "round 3: the update is hidden among those of 40 devices");
        let refused = line(&Notice::Refused { round: 3, reason: "a second list".to_owned() });
        assert!(refused.starts_with("WARNING: round 3: refused: a second list. "), "{refused}");
        assert!(line(&Notice::Hiding { round: 3 }).contains("waiting for others"));
        assert!(said(&Notice::Alive).is_none());
    }
}
