//! Dialling several addresses in their order, some of them names to look up first: the first that answers is taken.
//!
//! The next address has its turn as soon as an earlier one fails, or is silent for a moment: a name server or a host that does not
//! answer delays the others by that moment alone.

use std::future::Future;
use std::net::SocketAddr;
use std::panic;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::transport::ConnectError;

/// Silence after which the next address has its turn.
const STAGGER: Duration = Duration::from_millis(300);
/// Longer than any attempt takes.
const LONGEST: Duration = Duration::from_mins(1);
/// Limit of addresses that are dialled: all that an owner and a server can name.
const MAX_ADDRESSES: usize = 128;

/// A finished step of an address, by its place among those that are tried.
enum Step<T> {
    LookedUp(usize, Result<Vec<SocketAddr>, ConnectError>),
    Dialled(usize, Result<T, ConnectError>),
}

/// What has its turn next.
enum Turn<'a> {
    Name(&'a str),
    Address(SocketAddr),
}

impl<'a> Turn<'a> {
    fn of(address: &'a str) -> Self {
        address.parse().map_or(Self::Name(address), Self::Address)
    }
}

/// Dials `addresses` (`HOST:PORT` or `IP:PORT`), one shortly after the other, each name after its `lookup`. Returns what the first
/// that answers has said, and its place among them; if none answers, the most informative error.
pub(super) async fn first<T, L, D>(
    addresses: &[String],
    lookup: impl Fn(String) -> L,
    dial: impl Fn(SocketAddr) -> D,
) -> Result<(T, usize), ConnectError>
where
    T: Send + 'static,
    L: Future<Output = Result<Vec<SocketAddr>, ConnectError>> + Send + 'static,
    D: Future<Output = Result<T, ConnectError>> + Send + 'static,
{
    // The next one is the last.
    let turns = addresses.iter().map(|address| Turn::of(address)).enumerate();
    let mut turns: Vec<_> = turns.rev().collect();
    let (mut steps, mut known) = (JoinSet::new(), Vec::new());
    let mut failed = None;
    loop {
        match turns.pop() {
            Some((place, Turn::Name(name))) => {
                let looked_up = lookup(name.to_owned());
                steps.spawn(async move { Step::LookedUp(place, looked_up.await) });
            }
            Some((place, Turn::Address(address))) => {
                // Several names may stand for one address.
                if known.len() == MAX_ADDRESSES || known.contains(&address) {
                    continue;
                }
                known.push(address);
                let dialled = dial(address);
                steps.spawn(async move { Step::Dialled(place, dialled.await) });
            }
            None if steps.is_empty() => {
                return Err(failed.unwrap_or_else(|| ConnectError::Local("no address to try".to_owned())));
            }
            None => {}
        }
        let patience = if turns.is_empty() { LONGEST } else { STAGGER };
        let Ok(Some(step)) = timeout(patience, steps.join_next()).await else { continue };
        let error = match step {
            Ok(Step::Dialled(place, Ok(answer))) => return Ok((answer, place)),
            Ok(Step::LookedUp(place, Ok(found))) => {
                // The turn of a name is that of its addresses.
                for address in found.into_iter().rev() {
                    turns.push((place, Turn::Address(address)));
                }
                continue;
            }
            Ok(Step::Dialled(_, Err(error)) | Step::LookedUp(_, Err(error))) => error,
            Err(panicked) => panic::resume_unwind(panicked.into_panic()),
        };
        failed = Some(match failed {
            Some(earlier) if weight(&earlier) > weight(&error) => earlier,
            _ => error,
        });
    }
}

/// How informative an error is, among those of several addresses.
fn weight(error: &ConnectError) -> u8 {
    match error {
        // Another server at one of the addresses is no reason to give up while the right one may return at another.
        ConnectError::Untrusted { .. } => 0,
        ConnectError::Unreachable { .. } => 1,
        ConnectError::NoCommonProtocol { .. } => 2,
        ConnectError::Local(_) => 3,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn address(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 4433).into()
    }

    fn unreachable(reason: &str) -> ConnectError {
        ConnectError::Unreachable { server: "lab".to_owned(), reason: reason.to_owned() }
    }

    /// What comes of `names`, where `answers` says whether an address does; and which were dialled. A name stands for the
    /// addresses that are its letters' numbers; `dead` is looked up for ever and `gone` has no address.
    async fn tried(
        names: &[&str],
        answers: fn(SocketAddr) -> Result<(), ConnectError>,
    ) -> (Result<SocketAddr, ConnectError>, Vec<SocketAddr>) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let dialled = Arc::new(Mutex::new(Vec::new()));
        let lookup = |name: String| async move {
            match &name[..] {
                "dead:1" => std::future::pending().await,
                "gone:1" => Err(unreachable("no such name")),
                name => {
                    Ok(name.trim_end_matches(":1").bytes().map(|letter| address(letter - b'a')).collect())
                }
            }
        };
        let dial = |address| {
            let dialled = dialled.clone();
            async move {
                dialled.lock().unwrap().push(address);
                answers(address).map(|()| address)
            }
        };
        let limit = Duration::from_mins(1);
        let result =
            tokio::time::timeout(limit, first(&names, lookup, dial)).await.expect("nothing delays it");
        let result = result.map(|(address, _)| address);
        let dialled = std::mem::take(&mut *dialled.lock().unwrap());
        (result, dialled)
    }

    #[tokio::test]
    async fn a_name_that_is_never_found_delays_no_other() {
        let (result, dialled) = tried(&["dead:1", "10.0.0.7:4433"], |_| Ok(())).await;
        assert_eq!((result, &dialled[..]), (Ok(address(7)), &[address(7)][..]));
        let (result, _) = tried(&["dead:1", "c:1"], |_| Ok(())).await;
        assert_eq!(result, Ok(address(2)), "nor another name");
    }

    #[tokio::test]
    async fn every_address_of_every_name_is_tried_once_and_the_first_answer_is_taken() {
        let second = |at| if at == address(2) { Ok(()) } else { Err(unreachable("no answer")) };
        let (result, dialled) = tried(&["ab:1", "10.0.0.0:4433", "bc:1"], second).await;
        assert_eq!(result, Ok(address(2)));
        assert_eq!(dialled, [address(0), address(1), address(2)]);
    }

    #[tokio::test]
    async fn silence_delays_the_next_address_only_for_a_moment() {
        let dial = |at| async move {
            match at {
                _ if at == address(1) => Err(unreachable("refused")),
                _ if at == address(2) => std::future::pending().await,
                _ => Ok(at),
            }
        };
        let lookup = |_| async { Err(unreachable("no such name")) };
        let hosts = [1, 2, 2, 1, 3, 4];
        let all: Vec<String> = hosts.map(|host| address(host).to_string()).into();
        assert_eq!(first(&all, lookup, dial).await, Ok((address(3), 4)));
    }

    #[tokio::test]
    async fn the_weightiest_failure_is_told() {
        let old = || ConnectError::NoCommonProtocol { server: "10.0.0.1:4433".to_owned() };
        let answers =
            |at| if at == address(1) { Err(ConnectError::Local("full".to_owned())) } else { Ok(()) };
        assert_eq!(tried(&["gone:1", "b:1"], answers).await.0, Err(ConnectError::Local("full".to_owned())));
        assert_eq!(tried(&["gone:1"], |_| Ok(())).await.0, Err(unreachable("no such name")));
        let mixed = |at| {
            if at == address(1) {
                Err(ConnectError::NoCommonProtocol { server: "10.0.0.1:4433".to_owned() })
            } else {
                Err(unreachable("no answer"))
            }
        };
        for names in [["b:1", "c:1"], ["c:1", "b:1"]] {
            assert_eq!(tried(&names, mixed).await.0, Err(old()));
        }
    }
}
