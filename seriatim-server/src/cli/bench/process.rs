//! CPU time and memory of this process.

use crate::base::memory::memory_mb;

/// CPU seconds that this process has used.
pub(super) fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold spaces: fields 14 and 15 of proc(5), in hundredths.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |i: usize| fields.get(i).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// The most memory that this process has had.
pub(super) fn peak_memory_mb() -> f64 {
    memory_mb("VmHWM").unwrap_or(f64::NAN)
}
