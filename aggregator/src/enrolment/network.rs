//! The network of an address.

use std::net::{IpAddr, Ipv6Addr};

/// The unit that limits per address apply to: an IPv4 address, or an IPv6 network (/64), since a host can use all of it.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.into(),
            None => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        },
    }
}
