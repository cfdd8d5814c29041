//! Dialling several addresses, some of them names to look up first: the first that answers is taken.
//!
//! An unreachable name server must not delay an address that needs no lookup, so each name is looked up in parallel, and dialled
//! once its addresses are known.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::panic;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::transport::ConnectError;

/// Delay between the attempts at two addresses.
const STAGGER: Duration = Duration::from_millis(300);
/// Limit of addresses that are tried.
const MAX_ADDRESSES: usize = 16;

/// A finished step.
enum Step<T> {
    LookedUp(Result<Vec<SocketAddr>, ConnectError>),
    Dialled(Result<T, ConnectError>),
}

/// Dials `addresses` (`HOST:PORT` or `IP:PORT`), one shortly after the other; those that need no `lookup` come first. If none
/// answers, returns the most informative error.
pub(super) async fn first<T, L, D>(
    addresses: &[String],
    lookup: impl Fn(String) -> L,
    dial: impl Fn(SocketAddr) -> D,
) -> Result<T, ConnectError>
where
    T: Send + 'static,
    L: Future<Output = Result<Vec<SocketAddr>, ConnectError>> + Send + 'static,
    D: Future<Output = Result<T, ConnectError>> + Send + 'static,
{
    let mut steps = JoinSet::new();
    let mut known = BTreeSet::new();
    let mut next = Instant::now();
    let mut begin = |steps: &mut JoinSet<_>, address| {
        if known.len() < MAX_ADDRESSES && known.insert(address) {
            let moment = next.max(Instant::now());
            next = moment + STAGGER;
            let attempt = dial(address);
            steps.spawn(async move {
                sleep_until(moment).await;
                Step::Dialled(attempt.await)
            });
        }
    };
    for address in addresses {
        if let Ok(address) = address.parse() {
            begin(&mut steps, address);
        } else {
            let looked_up = lookup(address.clone());
            steps.spawn(async move { Step::LookedUp(looked_up.await) });
        }
    }
    let mut failed = None;
    while let Some(step) = steps.join_next().await {
        let error = match step {
            Ok(Step::Dialled(Ok(answer))) => return Ok(answer),
            Ok(Step::LookedUp(Ok(found))) => {
                for address in found {
                    begin(&mut steps, address);
                }
                continue;
            }
            Ok(Step::Dialled(Err(error)) | Step::LookedUp(Err(error))) => error,
            Err(panicked) => panic::resume_unwind(panicked.into_panic()),
        };
        failed = Some(match failed {
            Some(earlier) if weight(&earlier) > weight(&error) => earlier,
            _ => error,
        });
    }
    Err(failed.unwrap_or_else(|| ConnectError::Local("no address to try".to_owned())))
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
