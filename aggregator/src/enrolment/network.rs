//! From where a device comes.

use std::net::{IpAddr, Ipv6Addr};

/// What is counted as one address: whoever has one of IPv6 has all of its network.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.into(),
            None => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        },
    }
}
