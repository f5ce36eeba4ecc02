//! Schedules in words.

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// What a schedule of five fields means: `0 3 * * 1` is `at 03:00, on Monday`. What has no simple words stays as it is
/// written, with the name of its field.
pub(crate) fn in_words(schedule: &str) -> String {
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields[..] else { return schedule.to_owned() };
    let mut parts = vec![time(minute, hour)];
    match (day, weekday) {
        ("*", "*") => {}
        ("*", weekday) => parts.push(format!("on {}", named(weekday, weekday_name, "day of week"))),
        (day, "*") => parts.push(format!("on {}", named(day, month_day, "day of month"))),
        (day, weekday) => {
            // As in every cron: with a star in front of one of them, a day must be in both.
            let link = if day.starts_with('*') || weekday.starts_with('*') { "and" } else { "or" };
            let day = named(day, month_day, "day of month");
            parts.push(format!("on {day} {link} {}", named(weekday, weekday_name, "day of week")));
        }
    }
    if month != "*" {
        parts.push(format!("in {}", named(month, month_name, "month")));
    }
    parts.join(", ")
}

fn time(minute: &str, hour: &str) -> String {
    let every = |field: &str, what: &str| {
        let step = field.strip_prefix("*/")?.parse::<u32>().ok()?;
        Some(if step == 1 { format!("every {what}") } else { format!("every {step} {what}s") })
    };
    match (minute, hour) {
        ("*", "*") => return "every minute".to_owned(),
        (minute, "*") if every(minute, "minute").is_some() => {
            return every(minute, "minute").unwrap_or_default();
        }
        _ => {}
    }
    let numbers = |field: &str, most: u32| {
        let all: Option<Vec<u32>> =
            field.split(',').map(|one| one.parse().ok().filter(|one| *one <= most)).collect();
        all
    };
    match (numbers(minute, 59), numbers(hour, 23)) {
        (Some(minutes), Some(hours)) => {
            let times = hours.iter().flat_map(|hour| {
                minutes.iter().map(move |minute| format!("{hour:02}:{minute:02}"))
            });
            format!("at {}", listed(&times.collect::<Vec<_>>()))
        }
        (Some(minutes), None) => {
            let minutes: Vec<String> = minutes.iter().map(ToString::to_string).collect();
            let hours = match (hour, every(hour, "hour")) {
                ("*", _) => "every hour".to_owned(),
                (_, Some(every)) => every,
                _ => format!("of hour {hour}"),
            };
            format!("at minute {} {hours}", listed(&minutes)).replace(" every", " of every")
        }
        (None, _) => {
            let minutes = match (minute, every(minute, "minute")) {
                ("*", _) => "every minute".to_owned(),
                (_, Some(every)) => every,
                _ => format!("at minute {minute}"),
            };
            if hour == "*" { minutes } else { format!("{minutes} of hour {hour}") }
        }
    }
}

/// A field by the names of its values: `1-5` is `Monday to Friday`.
fn named(field: &str, name: fn(&str) -> Option<String>, what: &str) -> String {
    let part = |part: &str| match part.split_once('-') {
        Some((first, last)) => Some(format!("{} to {}", name(first)?, name(last)?)),
        None => name(part),
    };
    let parts: Option<Vec<String>> = field.split(',').map(part).collect();
    parts.map_or_else(|| format!("{what} {field}"), |parts| listed(&parts))
}

fn weekday_name(text: &str) -> Option<String> {
    let by_name = DAYS.iter().find(|day| day[..3].eq_ignore_ascii_case(text));
    let by_number = || DAYS.get(text.parse::<usize>().ok()? % 7);
    by_name.or_else(by_number).map(|day| (*day).to_owned())
}

fn month_name(text: &str) -> Option<String> {
    let by_name = MONTHS.iter().find(|month| month[..3].eq_ignore_ascii_case(text));
    let by_number = || MONTHS.get(text.parse::<usize>().ok()?.checked_sub(1)?);
    by_name.or_else(by_number).map(|month| (*month).to_owned())
}

fn month_day(text: &str) -> Option<String> {
    match text {
        "L" => Some("the last day of the month".to_owned()),
        text => text.parse::<u32>().ok().map(|day| format!("day {day}")),
    }
}

fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_told_in_words_or_as_it_is_written() {
        for (schedule, words) in [
            ("* * * * *", "every minute"),
            ("*/10 * * * *", "every 10 minutes"),
            ("0 3 * * *", "at 03:00"),
            ("0,30 8,20 * * *", "at 08:00, 08:30, 20:00 and 20:30"),
            ("5 * * * *", "at minute 5 of every hour"),
            ("5 */2 * * *", "at minute 5 of every 2 hours"),
            ("0 9 * * 1-5", "at 09:00, on Monday to Friday"),
            ("0 9 * * mon,7", "at 09:00, on Monday and Sunday"),
            ("0 0 1 * *", "at 00:00, on day 1"),
            ("0 0 L 1,jun *", "at 00:00, on the last day of the month, in January and June"),
            ("*/5 9-17 * * *", "every 5 minutes of hour 9-17"),
            ("0 0 * * 5#3", "at 00:00, on day of week 5#3"),
            ("0 0 13 * fri", "at 00:00, on day 13 or Friday"),
            ("0 0 */2 * 1", "at 00:00, on day of month */2 and Monday"),
            ("0 0 13 * */2", "at 00:00, on day 13 and day of week */2"),
            ("0 0 15W * *", "at 00:00, on day of month 15W"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(in_words(schedule), words, "{schedule}");
        }
    }
}
