//! A `traceparent` as the SDK knows it, and back.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

use crate::trace::context;

/// The context that a `traceparent` names.
pub(super) fn context_of(traceparent: &str) -> Option<SpanContext> {
    context::id(traceparent)?;
    let mut parts = traceparent.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(parts.next()?, 16).ok()?);
    Some(SpanContext::new(trace, span, flags, true, TraceState::NONE))
}

pub(super) fn traceparent_of(context: &SpanContext) -> String {
    let flags = context.trace_flags().to_u8();
    format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_written_as_it_was_read() {
        for flags in ["00", "01", "03"] {
            let text = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
            assert_eq!(context_of(&text).as_ref().map(traceparent_of), Some(text));
        }
        assert_eq!(context_of("00-0-0-01"), None);
    }
}
