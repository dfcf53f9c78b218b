//! Which addresses may be asked because a user of the cluster has named them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Metadata services of clouds whose addresses are not link-local: Amazon and Google over IPv6, Azure's WireServer,
/// Alibaba Cloud (the pages of the vendors on instance metadata).
const METADATA: [IpAddr; 4] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
];

/// Addresses that begin alike: `10.0.0.0/8`, `fd00::/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// Bits of the address that count.
    prefix: u8,
}

/// Why an address cannot be that of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forbidden(&'static str);

/// Says whether a registry may be asked at this address.
///
/// Loopback is the operator's own pod or node. Link-local addresses belong to the node, and clouds serve its
/// credentials there. A registry for the kubelets of all nodes can be at neither. `allowed` are the administrator's
/// exceptions.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(address: IpAddr, allowed: &[Network]) -> Result<(), Forbidden> {
    if allowed.iter().any(|network| network.contains(address)) {
        return Ok(());
    }
    kind(address).map_or(Ok(()), |kind| Err(Forbidden(kind)))
}

/// What an address is that belongs to the operator's own machine, or to a metadata service.
pub(crate) fn kind(address: IpAddr) -> Option<&'static str> {
    if METADATA.contains(&address) {
        return Some("one of a cloud's metadata service");
    }
    match address {
        IpAddr::V4(address) => kind_of_v4(address),
        IpAddr::V6(address) => {
            if let Some(inner) = inside(address) {
                return kind(inner.into());
            }
            if address.is_loopback() {
                return Some("a loopback address");
            }
            if address.is_unicast_link_local() {
                return Some("a link-local address");
            }
            (address.is_unspecified() || address.is_multicast()).then_some("not one of a machine")
        }
    }
}

fn kind_of_v4(address: Ipv4Addr) -> Option<&'static str> {
    if address.is_loopback() {
        return Some("a loopback address");
    }
    if address.is_link_local() {
        return Some("a link-local address");
    }
    // "This network" (RFC 791, 3.2): Linux takes 0.0.0.0 for loopback.
    let is_this_network = address.octets()[0] == 0;
    (is_this_network || address.is_multicast() || address.is_broadcast()).then_some("not one of a machine")
}

/// The IPv4 address that a gateway, or the kernel, sends to instead.
fn inside(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        // Mapped (RFC 4291, 2.5.5.2), NAT64 (RFC 6052, 2.1; RFC 8215) and 6to4 (RFC 3056).
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0x2002, high, low, ..] => Some(of(high, low)),
        // IPv4-compatible (RFC 4291, 2.5.5.1), but for `::` and `::1`.
        [0, 0, 0, 0, 0, 0, high, low] if (high, low) > (0, 1) => Some(of(high, low)),
        _ => None,
    }
}

// === impl Network ===

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        let ((own, width), (other, other_width)) = (bits(self.address), bits(address.to_canonical()));
        let differing = own ^ other;
        width == other_width && (self.prefix == 0 || differing >> (128 - u32::from(self.prefix)) == 0)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is no network: write it as in 127.0.0.1, 169.254.0.0/16 or fe80::/10");
        let (address, prefix) = text
            .split_once('/')
            .map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(width), |prefix| prefix.parse().map_err(|_| wrong()))?;
        if prefix > width {
            return Err(wrong());
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_forbidden(address: &str, allowed: &[&str]) -> bool {
        let allowed: Vec<_> = allowed.iter().map(|network| network.parse().unwrap()).collect();
        check(address.parse().unwrap(), &allowed).is_err()
    }

    #[test]
    fn loopback_link_local_and_metadata_addresses_are_refused_in_every_dress() {
        for address in [
            "127.0.0.1",
            "127.1.2.3",
            "0.0.0.0",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "100.100.100.200",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:127.0.0.1",
            "::ffff:a9fe:a9fe",
            "::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "2002:a9fe:a9fe::1",
        ] {
            assert!(is_forbidden(address, &[]), "{address}");
        }
    }

    #[test]
    fn registries_may_be_in_private_networks() {
        for address in [
            "10.77.0.1",
            "192.168.1.1",
            "172.16.0.1",
            "fd00::1",
            "2600::1",
            "1.1.1.1",
        ] {
            assert!(!is_forbidden(address, &[]), "{address}");
        }
    }

    #[test]
    fn the_administrator_may_allow_networks_and_no_others() {
        assert!(!is_forbidden("127.0.0.1", &["127.0.0.1"]));
        assert!(!is_forbidden("::ffff:127.0.0.1", &["127.0.0.0/8"]));
        assert!(is_forbidden("127.0.0.2", &["127.0.0.1", "::1"]));
        assert!(is_forbidden("169.254.1.1", &["127.0.0.0/8"]));
        assert!(!is_forbidden("169.254.1.1", &["0.0.0.0/0"]));
        assert!(is_forbidden("::1", &["0.0.0.0/0"]));
        assert!(!is_forbidden("fe80::1", &["fe80::/10"]));
        for wrong in ["", "localhost", "127.0.0.1/33", "127.0.0.1/x", "::/129"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
