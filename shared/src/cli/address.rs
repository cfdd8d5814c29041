//! Addresses of servers, as people type them.

use crate::ticket::MAX_ADDRESS;

/// Checks the syntax of `HOST:PORT` or `IP:PORT`; connecting shows whether the host exists.
///
/// # Errors
/// What is wrong, and how it is written.
pub fn address(text: &str) -> Result<String, String> {
    if let Some((scheme, rest)) = text.split_once("://") {
        let place = rest.split('/').next().unwrap_or_default();
        let place = if place.is_empty() { "lab.example:4433" } else { place };
        return Err(format!(
            "the aggregator is not a web server, it is reached over QUIC: leave {scheme}:// out and give HOST:PORT, as \
             in {place}"
        ));
    }
    let missing = |what| Err(format!("{what}: give HOST:PORT, as in lab.example:4433"));
    if text.contains('/') {
        return missing("an address has no path");
    }
    if text.contains(' ') || text.len() > MAX_ADDRESS {
        return missing("this is no address");
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return missing("the port is missing");
    };
    if host.is_empty() {
        return missing("the host is missing");
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err(format!("write an IPv6 address in brackets, as in [{host}]:4433"));
    }
    match port.parse::<u16>() {
        Ok(1..) => Ok(text.to_owned()),
        _ => Err(format!("{port:?} is not a port: a number from 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for right in ["lab:1", "192.0.2.7:4433", "[2001:db8::7]:4433"] {
            assert_eq!(address(right).as_deref(), Ok(right));
        }
        let long = format!("{}:1", "x".repeat(MAX_ADDRESS));
        for wrong in
            ["lab", ":1", "lab:0", "2001:db8::7:4433", "http://lab:1", "lab:65536", "a b:1", "lab:1/x", &long]
        {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
