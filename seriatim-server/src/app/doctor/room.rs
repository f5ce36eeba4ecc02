//! The room that the store's server has left.

use seriatim::store::Vitals;

use super::finding::{Finding, Severity};
use crate::base::text::size;

/// From this share of the limit on, in percent.
const NEARLY_FULL: u64 = 90;

pub(super) fn check(vitals: &Vitals) -> Option<Finding> {
    let (bytes, most) = (vitals.bytes?, vitals.bytes_max?);
    let is_full = bytes >= most;
    if !is_full && bytes / most.div_ceil(100).max(1) < NEARLY_FULL {
        return None;
    }
    let (severity, state) = match is_full {
        true => (Severity::Serious, "is full: pushes are refused"),
        false => (Severity::Warning, "is nearly full: pushes will be refused"),
    };
    let found = format!("the server's memory {state} ({} of {})", size(bytes), size(most));
    let advice = "raise `maxmemory`, or let workers finish jobs, which is still possible; `seriatim stats` shows where jobs wait";
    Some(Finding::new(severity, "store", found, advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severity(bytes: u64, most: u64) -> Option<Severity> {
        let vitals = Vitals { bytes: Some(bytes), bytes_max: Some(most), ..Vitals::default() };
        check(&vitals).map(|finding| finding.severity)
    }

    #[test]
    fn a_server_without_room_is_found_before_it_refuses_pushes() {
        assert_eq!(check(&Vitals { bytes: Some(u64::MAX), ..Vitals::default() }).map(|_| ()), None);
        assert_eq!(severity(89 << 20, 100 << 20), None);
        assert_eq!(severity(91 << 20, 100 << 20), Some(Severity::Warning));
        assert_eq!(severity(100 << 20, 100 << 20), Some(Severity::Serious));
        assert_eq!(severity(1, 0), Some(Severity::Serious));
    }
}
