//! The account for a server that must not run as root.

use std::fs;

/// Tried in this order: Debian's package creates the first; every Unix has the second.
const CANDIDATES: [&str; 2] = ["postgres", "nobody"];

/// An unprivileged account of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The account for a server that refuses to run as root; `None` if this process is not root, because the server can
/// then run as the same user.
pub(crate) fn unprivileged() -> Result<Option<Account>, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").map_err(|e| format!("/etc/passwd: {e}"))?;
    CANDIDATES
        .iter()
        .find_map(|name| lookup(&passwd, name))
        .map(Some)
        .ok_or_else(|| format!("no account to run the server under: create one of {CANDIDATES:?}"))
}

fn lookup(passwd: &str, name: &str) -> Option<Account> {
    let mut fields = passwd
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(Account { uid, gid })
}

#[cfg(test)]
mod tests {
    use super::{Account, lookup};

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\npostgres2:x:7:7::/:/bin/sh\n\
                          postgres:x:101:104:Administrator,,,:/var/lib/postgresql:/bin/bash\n";

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let expected = Account { uid: 101, gid: 104 };
        assert_eq!(lookup(PASSWD, "postgres"), Some(expected));
        assert_eq!(lookup(PASSWD, "nobody"), None);
    }
}
