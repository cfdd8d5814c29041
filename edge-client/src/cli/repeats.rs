//! Lines that a person has read already: a device that waits for approval asks again every few seconds.

use crate::driver::Notice;

/// What was told of a server that does not admit the device yet.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// Its reason.
    told: Option<String>,
    /// It has answered the last try.
    turned_back: bool,
    /// It was told that it does not answer any more.
    lost: bool,
}

impl Repeats {
    /// Whether people are to read the notice: while the device waits for approval, one line per change.
    pub(super) fn is_news(&mut self, notice: &Notice) -> bool {
        match notice {
            Notice::TurnedBack { refusal } => {
                self.turned_back = true;
                let reason = refusal.to_string();
                let news = std::mem::take(&mut self.lost) || self.told.as_ref() != Some(&reason);
                self.told = Some(reason);
                news
            }
            // The server closes the connection after each refusal. Another end of it is news, once.
            Notice::Disconnected { .. } if self.told.is_some() => {
                !std::mem::take(&mut self.turned_back) && !std::mem::replace(&mut self.lost, true)
            }
            Notice::Connected { .. } => self.told.is_none(),
            Notice::Joined { .. } => {
                *self = Self::default();
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

    #[test]
    fn while_a_device_waits_it_says_when_the_server_leaves_and_when_it_is_back_and_of_no_try_that_it_connects()
     {
        let client = ClientId::from_bytes([1; 16]);
        let connected = || Notice::Connected { server: "lab".to_owned() };
        let lost = || Notice::Disconnected {
            server: "lab".to_owned(),
            reason: "no answer".to_owned(),
            retry: Duration::from_secs(1),
        };
        let waits = || Notice::TurnedBack { refusal: Refusal::Pending { client } };
        let mut repeats = Repeats::default();
        let mut news =
            |notices: &[Notice]| notices.iter().map(|notice| repeats.is_news(notice)).collect::<Vec<_>>();
        assert_eq!(news(&[connected(), waits(), lost()]), [true, true, false]);
        assert_eq!(news(&[connected(), waits(), lost()]), [false; 3]);
        assert_eq!(news(&[lost(), lost(), lost()]), [true, false, false], "the server has left");
        assert_eq!(news(&[connected(), waits(), lost()]), [false, true, false], "and is back");
        assert_eq!(news(&[connected(), waits(), lost()]), [false; 3]);
    }
}
