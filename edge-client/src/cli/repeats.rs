//! Lines that a person has read already: a device that waits for approval asks again every few seconds.

use crate::driver::Notice;

/// The last reason of a server that does not admit the device yet.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    told: Option<String>,
}

impl Repeats {
    /// Whether people are to read the notice: while the device waits for approval, one line per change.
    pub(super) fn is_news(&mut self, notice: &Notice) -> bool {
        match notice {
            Notice::TurnedBack { refusal } => {
                let reason = refusal.to_string();
                let news = self.told.as_ref() != Some(&reason);
                self.told = Some(reason);
                news
            }
            // The server closes the connection after each refusal.
            Notice::Disconnected { .. } => self.told.is_none(),
            Notice::Joined { .. } => {
                self.told = None;
                true
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shared::id::ClientId;
    use shared::message::Refusal;
    use shared::spec::RunSpec;

    use super::*;

    #[test]
    fn waiting_for_approval_is_one_line_until_something_changes() {
        let client = ClientId::from_bytes([1; 16]);
        let lost = || Notice::Disconnected {
            server: "lab".to_owned(),
            reason: "the server left".to_owned(),
            retry: Duration::from_secs(1),
        };
        let waits = || Notice::TurnedBack { refusal: Refusal::Pending { client } };
        let joined = Notice::Joined { spec: RunSpec::example("fedavg").into() };
        let mut repeats = Repeats::default();
        let news = [waits(), lost(), waits(), lost(), joined, lost(), waits()]
            .map(|notice| repeats.is_news(&notice));
        assert_eq!(news, [true, false, false, false, true, true, true]);
    }
}
