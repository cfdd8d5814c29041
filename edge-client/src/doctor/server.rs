//! The server: whether it answers, its latency, and the largest datagram on the path.

use std::time::Duration;

use super::Finding;
use crate::quic::Reached;
use crate::transport::ConnectError;

const SUBJECT: &str = "server";
/// The datagram size that QUIC needs on every path (RFC 9000, section 14).
const MIN_DATAGRAM: u16 = 1200;
/// A longer round trip counts as slow.
const SLOW: Duration = Duration::from_millis(500);

/// The findings of an attempt to [reach](crate::quic::QuicConnector::reach) the server.
#[must_use]
pub fn look_at(attempt: &Result<Reached, ConnectError>) -> Vec<Finding> {
    match attempt {
        Ok(reached) => vec![answers(reached), datagrams(reached)],
        Err(error) => vec![Finding::problem(SUBJECT, error.to_string(), advice(error))],
    }
}

fn advice(error: &ConnectError) -> &'static str {
    match error {
        ConnectError::Unreachable { .. } => {
            "is the aggregator running, and is this its address? It is reached over UDP: firewalls on either side must let \
             that port through, and many guest networks keep devices apart"
        }
        ConnectError::Untrusted { .. } => "ask the operator of the server for a new ticket",
        ConnectError::NoCommonProtocol { .. } => {
            "the server is there, and it or this program is too old for the other: update the older one (edge-client --version, \
             aggregator --version)"
        }
        ConnectError::Local(_) => "this user may not open a UDP socket, or the system has no network at all",
    }
}

fn answers(reached: &Reached) -> Finding {
    let ms = |time: Duration| 1e3 * time.as_secs_f64();
    let found = format!(
        "{} answers: {:.0} ms for the handshake, {:.1} ms there and back; whether it lets this device in, joining shows",
        reached.address,
        ms(reached.handshake),
        ms(reached.round_trip)
    );
    if reached.round_trip > SLOW {
        let advice = "a slow or crowded link: rounds take longer, and nothing is lost by it";
        Finding::warning(SUBJECT, found, advice)
    } else {
        Finding::ok(SUBJECT, found)
    }
}

fn datagrams(reached: &Reached) -> Finding {
    const SUBJECT: &str = "mtu";
    let found = format!("datagrams of {} bytes pass", reached.datagram);
    if reached.datagram <= MIN_DATAGRAM {
        Finding::warning(
            SUBJECT,
            format!("{found}, and no larger ones"),
            "a tunnel on the way (a VPN, mobile data) takes little: it works, and large models take longer; a larger MTU of \
             the tunnel helps",
        )
    } else {
        Finding::ok(SUBJECT, found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Level, worst};
    use super::*;

    fn reached(milliseconds: u64, datagram: u16) -> Vec<Finding> {
        look_at(&Ok(Reached {
            address: ([10, 0, 0, 1], 4433).into(),
            handshake: Duration::from_millis(3 * milliseconds),
            round_trip: Duration::from_millis(milliseconds),
            datagram,
        }))
    }

    #[test]
    fn a_server_that_answers_is_far_or_near() {
        let near = reached(5, 1452);
        assert_eq!(worst(&near), Level::Ok, "{near:?}");
        assert!(
            near[0]
                .found
                .starts_with("10.0.0.1:4433 answers: 15 ms for the handshake, 5.0 ms there and back;"),
            "{near:?}"
        );
        assert!(near[0].found.contains("joining shows"), "nothing is asked of it: {near:?}");
        assert_eq!(reached(800, 1452)[0].level, Level::Warning);
    }

    #[test]
    fn a_path_for_small_datagrams_is_reported() {
        assert_eq!(reached(5, 1200)[1].level, Level::Warning);
        assert_eq!(reached(5, 1380)[1].level, Level::Ok);
        assert!(reached(5, 1380)[1].found.contains("1380 bytes"));
    }

    #[test]
    fn a_server_that_does_not_answer_is_a_problem_with_what_to_do() {
        let server = "lab:4433".to_owned();
        let gone = ConnectError::Unreachable { server, reason: "no answer".to_owned() };
        let findings = look_at(&Err(gone));
        assert_eq!(worst(&findings), Level::Problem);
        assert!(findings[0].advice.as_deref().is_some_and(|advice| advice.contains("firewalls")));
    }

    #[test]
    fn a_server_of_another_age_is_no_matter_of_firewalls() {
        let findings = look_at(&Err(ConnectError::NoCommonProtocol { server: "lab:4433".to_owned() }));
        assert_eq!(worst(&findings), Level::Problem);
        assert!(findings[0].found.contains("(federation/2 to federation/6): update the older side"));
        let advice = findings[0].advice.as_deref().unwrap();
        assert!(advice.contains("--version") && !advice.contains("firewall"), "{advice}");
    }
}
