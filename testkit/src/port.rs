//! Free ports.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;

const LOWEST: u16 = 10_000;
const ATTEMPTS_MAX: u32 = 1_000;
/// The default of Linux, for systems that do not report theirs.
const FIRST_EPHEMERAL: u16 = 32_768;

/// A free port of 127.0.0.1, which is this process's until it ends: no other caller gets it, even while nothing listens
/// on it. So a server may start long after its port was chosen, and come back on it after it was down.
///
/// It lies *below* the ports that the system assigns to outgoing connections. Otherwise, while a server is down, a
/// client that keeps reconnecting to its port could be assigned this very port and connect to itself; the server
/// would then never get its port back.
///
/// A program that does not call this may still take the port before the caller binds it. Fails if a thousand random ports
/// are all taken.
pub fn free_port() -> Result<u16, String> {
    let range = range();
    (0..ATTEMPTS_MAX)
        .map(|_| random_in(&range))
        .find(|port| reserve(*port))
        .ok_or_else(|| format!("no free port on 127.0.0.1 in {range:?}"))
}

/// Whether the port is free and now this process's. The UDP port of the same number marks it: no server of ours needs that,
/// the system frees it when the process ends, however that happens, and programs that are started do not inherit it.
fn reserve(port: u16) -> bool {
    let Ok(mark) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) else { return false };
    let is_free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    if is_free {
        mem::forget(mark);
    }
    is_free
}

fn range() -> Range<u16> {
    let first_ephemeral = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(FIRST_EPHEMERAL);
    // A system tuned for many connections may leave almost no ports below: then any port will do.
    if first_ephemeral < LOWEST + 1_000 { LOWEST..u16::MAX } else { LOWEST..first_ephemeral }
}

/// The keys of a new `RandomState` differ each time, which is random enough here.
fn random_in(range: &Range<u16>) -> u16 {
    let random = RandomState::new().hash_one(());
    range.start + (random % u64::from(range.end - range.start)) as u16
}

#[cfg(test)]
mod tests {
    use super::{free_port, range, reserve};
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn a_free_port_can_be_bound_and_is_not_for_outgoing_connections() {
        let port = free_port().unwrap();
        assert!(range().contains(&port));
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    }

    #[test]
    fn a_port_that_was_given_to_somebody_is_given_to_nobody_else() {
        let port = free_port().unwrap();
        assert!(!reserve(port), "nothing listens on it, and it is taken");
    }
}
