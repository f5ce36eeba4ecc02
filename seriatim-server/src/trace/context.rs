//! W3C trace context, as jobs carry it.

use seriatim::store::{Turn, TurnJob};

/// Bytes of `00-TRACE-PARENT-FLAGS`.
const BYTES: usize = 55;

/// The trace id of a `traceparent`; `None` if it is invalid, which the standard demands to ignore.
pub(crate) fn id(traceparent: &str) -> Option<&str> {
    let parts: Vec<&str> = traceparent.split('-').collect();
    let [version, trace, parent, flags] = parts[..] else { return None };
    let is_hex =
        |part: &str| part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let is_set = |part: &str| part.bytes().any(|b| b != b'0');
    let lengths = (version.len(), trace.len(), parent.len(), flags.len());
    let is_whole = traceparent.len() == BYTES && lengths == (2, 32, 16, 2) && version != "ff";
    let is_one =
        is_whole && parts.iter().all(|part| is_hex(part)) && is_set(trace) && is_set(parent);
    is_one.then_some(trace)
}

/// The trace context of a job.
pub(crate) fn of_job(job: &TurnJob) -> Option<&str> {
    job.options.as_ref()?.traceparent.as_deref().filter(|traceparent| id(traceparent).is_some())
}

/// The trace context of a turn: that of its first job with one.
pub(crate) fn of_turn(turn: &Turn) -> Option<&str> {
    turn.jobs.iter().find_map(of_job)
}

/// The trace id of a turn.
pub(crate) fn id_of_turn(turn: &Turn) -> Option<&str> {
    of_turn(turn).and_then(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_trace_context_is_ignored() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(id(good), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        for bad in [
            "",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-011",
        ] {
            assert_eq!(id(bad), None, "{bad}");
        }
    }
}
