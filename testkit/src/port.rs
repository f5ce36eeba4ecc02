//! Free ports.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

const LOWEST: u16 = 10_000;
const ATTEMPTS_MAX: u32 = 1_000;
/// Linux' default, for systems that do not tell theirs.
const FIRST_EPHEMERAL: u16 = 32_768;

/// A port of 127.0.0.1 that nothing listens on.
///
/// It lies *below* the ports that the system hands to outgoing connections. While a server is
/// down, a client that keeps reconnecting to a port in that range can be given this very port as
/// its own and connect to itself; the server then never gets its port back.
///
/// Another process may take the port before the caller does, so whoever binds it must be ready to
/// ask again. Fails when a thousand random ports are all taken.
pub fn free_port() -> Result<u16, String> {
    let range = range();
    (0..ATTEMPTS_MAX)
        .map(|_| random_in(&range))
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| format!("no free port on 127.0.0.1 in {range:?}"))
}

fn range() -> Range<u16> {
    let first_ephemeral = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(FIRST_EPHEMERAL);
    // A system tuned for many connections may leave next to nothing below: then any port will do.
    if first_ephemeral < LOWEST + 1_000 { LOWEST..u16::MAX } else { LOWEST..first_ephemeral }
}

/// The keys of a new `RandomState` differ each time, which is all the chance needed here.
fn random_in(range: &Range<u16>) -> u16 {
    let random = RandomState::new().hash_one(());
    range.start + (random % u64::from(range.end - range.start)) as u16
}

#[cfg(test)]
mod tests {
    use super::{free_port, range};
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn a_free_port_can_be_bound_and_is_not_for_outgoing_connections() {
        let port = free_port().unwrap();
        assert!(range().contains(&port));
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    }
}
