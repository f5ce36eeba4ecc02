//! How much memory this process has.

/// What the system keeps of it under this name, as `VmRSS` or `VmHWM`, in MiB; none where it does not tell.
pub(crate) fn memory_mb(name: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib / 1024.0)
}
