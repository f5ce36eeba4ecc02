//! The settings of a queue as text: as a configuration has them.

use serde_json::Value;
use seriatim::{Mode, Queue};

/// The settings that are set and apply to its mode, one per line.
pub(crate) fn lines(queue: &Queue) -> String {
    let settings = serde_json::to_value(queue).unwrap_or_default();
    let says_something = |name: &str, value: &Value| match name {
        "name" => false,
        "merge" | "due" => queue.mode == Mode::Accumulate,
        "take" => queue.mode == Mode::Fifo,
        "throttled" => queue.throttle.is_some(),
        "limit" => queue.limit.is_set(),
        _ => !value.is_null(),
    };
    let fields = settings.as_object().into_iter().flatten();
    let set = fields.filter(|(name, value)| says_something(name, value));
    set.map(|(name, value)| format!("{name} = {}", as_toml(value))).collect::<Vec<_>>().join("\n")
}

/// The value on one line: texts and numbers look the same in both, tables do not.
fn as_toml(value: &Value) -> String {
    let Some(fields) = value.as_object() else { return value.to_string() };
    if fields.is_empty() {
        return "{}".to_owned();
    }
    let field = |(name, value): (&String, &Value)| format!("{} = {}", key(name), as_toml(value));
    format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
}

fn key(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => Value::from(name).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seriatim::{Groups, Rate, Share};

    use super::*;
    use crate::config::QueueConfig;

    #[test]
    fn the_settings_of_a_queue_can_be_read_as_a_configuration() {
        let groups = Groups::each(Share::default().running(2))
            .named("acme", Share::default().weight(3))
            .named("a \"b\".c", Share::default().rate(Rate::per_minute(5)));
        for queue in [
            Queue::fifo("q").running(10).rate(Rate::per_second(100)).groups(groups),
            Queue::accumulate("q").groups(Groups::default()),
            Queue::fifo("q").throttle(Duration::from_secs(300)).refuse_throttled(),
            Queue::parallel("q"),
        ] {
            let text = lines(&queue);
            let read: QueueConfig = toml::from_str(&text).unwrap();
            assert_eq!(read.define("q", None).unwrap(), queue, "{text}");
            assert_eq!(text.contains("limit"), queue.limit.is_set());
        }
    }
}
