//! Addresses of this machine, for tickets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use if_addrs::{Interface, get_if_addrs};
use shared::ticket::MAX_ADDRESSES;

/// The addresses of a server that listens on all addresses of this machine: of IPv4 or, if `both`, of either kind.
pub(super) fn own(both: bool) -> std::io::Result<Vec<IpAddr>> {
    // Addresses that stand for any machine far away (RFC 5737, RFC 3849): nothing is sent there.
    let far: [SocketAddr; 2] =
        [(Ipv4Addr::new(192, 0, 2, 1), 9).into(), (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9).into()];
    let routed: Vec<_> = far.into_iter().filter_map(towards).collect();
    let interfaces = get_if_addrs()?;
    let up = interfaces.iter().filter(|interface| interface.is_oper_up()).map(Interface::ip);
    Ok(chosen(&routed, up, both))
}

/// The address that this machine would send from.
fn towards(far: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr =
        if far.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(far).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// As many as a ticket has room for: first those that the `routed` ways out have, then those of other networks, then those that
/// a machine gives itself where no server does (RFC 3927). Its like in IPv6 is of no use without the name of an interface, which
/// every device has another one for.
fn chosen(routed: &[IpAddr], up: impl Iterator<Item = IpAddr>, both: bool) -> Vec<IpAddr> {
    let mut others: Vec<IpAddr> = up.collect();
    others.sort_by_key(|address| (self_given(*address), address.is_ipv6()));
    let mut chosen = Vec::new();
    for address in routed.iter().copied().chain(others) {
        let of_use = match address {
            IpAddr::V4(_) => true,
            IpAddr::V6(address) => both && !address.is_unicast_link_local(),
        };
        if of_use && !address.is_loopback() && !address.is_unspecified() && !chosen.contains(&address) {
            chosen.push(address);
        }
    }
    chosen.truncate(MAX_ADDRESSES);
    chosen
}

fn self_given(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.is_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn every_network_of_the_machine_is_named_the_way_out_first() {
        let up = ["127.0.0.1", "169.254.7.7", "fd00::7", "192.168.7.1", "10.0.0.7", "::1", "fe80::7"];
        let up = || addresses(&up).into_iter();
        let routed = addresses(&["10.0.0.7", "fd00::7"]);
        let both = addresses(&["10.0.0.7", "fd00::7", "192.168.7.1", "169.254.7.7"]);
        assert_eq!(chosen(&routed, up(), true), both);
        assert_eq!(chosen(&routed, up(), false), addresses(&["10.0.0.7", "192.168.7.1", "169.254.7.7"]));
        // On a switch of its own there is no way out.
        assert_eq!(chosen(&[], up(), false), addresses(&["192.168.7.1", "10.0.0.7", "169.254.7.7"]));
        assert!(chosen(&[], addresses(&["127.0.0.1", "::1"]).into_iter(), true).is_empty());
        let many = (1..=20).map(|n| IpAddr::from([10, 0, n, 1]));
        assert_eq!(chosen(&[], many, false).len(), MAX_ADDRESSES);
    }

    #[test]
    fn the_system_can_be_asked() {
        let own = own(true).expect("interfaces can be listed");
        assert!(own.iter().all(|address| !address.is_loopback()), "{own:?}");
    }
}
