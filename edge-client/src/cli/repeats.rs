//! Lines that a person has read already: a device that waits for approval asks again every few seconds.

use super::event::Event;
use crate::driver::Notice;

/// The last reason of a server that does not admit the device yet.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    told: Option<String>,
}

impl Repeats {
    /// Whether people are to read the event: while the device waits for approval, one line per change.
    pub(super) fn is_news(&mut self, event: &Event) -> bool {
        match event {
            Event::Notice(Notice::TurnedBack { refusal }) => {
                let reason = refusal.to_string();
                let news = self.told.as_ref() != Some(&reason);
                self.told = Some(reason);
                news
            }
            // The server closes the connection after each refusal.
            Event::Notice(Notice::Disconnected { .. }) => self.told.is_none(),
            Event::Notice(Notice::Joined { .. }) => {
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
        let lost = || {
            Event::Notice(Notice::Disconnected {
                server: "lab".to_owned(),
                reason: "the server left".to_owned(),
                retry: Duration::from_secs(1),
            })
        };
        let waits = || Event::Notice(Notice::TurnedBack { refusal: Refusal::Pending { client } });
        let joined = Event::Notice(Notice::Joined { spec: RunSpec::example("fedavg").into() });
        let mut repeats = Repeats::default();
        let news =
            [waits(), lost(), waits(), lost(), joined, lost(), waits()].map(|event| repeats.is_news(&event));
        assert_eq!(news, [true, false, false, false, true, true, true]);
    }
}
