//! The location of an SQLite file.

use std::path::{Path, PathBuf};

use super::finding::{Finding, Severity};

/// A write-ahead log of this size is not written back: a reader does not end.
const WAL_BYTES_MAX: u64 = 512 << 20;
/// Less free space than this is reported.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// File systems by the number that Linux knows them by.
const NETWORK: [(i64, &str); 6] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
];
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

pub(crate) fn check(url: &str) -> Vec<Finding> {
    let Some(path) = url.strip_prefix("sqlite:") else { return Vec::new() };
    let path = Path::new(path.strip_prefix("//").unwrap_or(path));
    file_system(path).into_iter().chain(log(path)).chain(space(path)).collect()
}

/// Locks and shared memory do not work over a network, and a file in memory is gone at a restart.
#[cfg(target_os = "linux")]
fn file_system(path: &Path) -> Option<Finding> {
    // The width of the number differs between machines.
    #[allow(clippy::unnecessary_cast)]
    let number = rustix::fs::statfs(path).ok()?.f_type as i64;
    let about = path.display().to_string();
    if let Some((_, name)) = NETWORK.iter().find(|(of, _)| *of == number & 0xffff_ffff) {
        return Some(Finding::new(
            Severity::Serious,
            about,
            format!("is on {name}, where SQLite's locks are unreliable"),
            "move the file to a local disk, or use postgres:// or redis://",
        ));
    }
    IN_MEMORY.contains(&(number & 0xffff_ffff)).then(|| {
        Finding::new(
            Severity::Warning,
            about,
            "is in memory (tmpfs): a restart of the machine loses it",
            "move the file to a disk",
        )
    })
}

#[cfg(not(target_os = "linux"))]
fn file_system(_: &Path) -> Option<Finding> {
    None
}

fn log(path: &Path) -> Option<Finding> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let bytes = std::fs::metadata(PathBuf::from(log)).ok()?.len();
    (bytes > WAL_BYTES_MAX).then(|| {
        Finding::new(
            Severity::Warning,
            path.display().to_string(),
            format!("its write-ahead log has {} MiB", bytes >> 20),
            "a process keeps a transaction open (an SQLite shell, a backup): end it",
        )
    })
}

fn space(path: &Path) -> Option<Finding> {
    let disk = rustix::fs::statvfs(path).ok()?;
    let bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
    (bytes < FREE_BYTES_MIN).then(|| {
        Finding::new(
            Severity::Serious,
            path.display().to_string(),
            format!("its disk has {} MiB left: when it is full, pushes are refused", bytes >> 20),
            "free some space",
        )
    })
}
