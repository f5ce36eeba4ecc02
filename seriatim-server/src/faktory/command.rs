//! Commands, a line each: a word, and JSON or words behind it.

use serde::Deserialize;

use super::mutation::Mutation;
use super::track::Progress;

/// Most queues that a command names.
const QUEUES_MAX: usize = 100;
/// Most characters of a wrong word that an error shows.
const SHOWN_CHARS_MAX: usize = 40;

/// What a client says after its greeting.
#[derive(Debug, PartialEq)]
pub(super) enum Command<'a> {
    /// A job, as JSON.
    Push(&'a str),
    /// A list of jobs, as JSON.
    PushBulk(&'a str),
    Fetch(Vec<&'a str>),
    Ack(Named),
    Fail(Failed),
    Beat(Beat),
    /// How far this job is.
    Track(&'a str),
    Progress(Progress),
    Mutate(Mutation),
    Info,
    Pause(Vec<&'a str>),
    Resume(Vec<&'a str>),
    End,
}

/// A job that was fetched.
#[derive(Debug, Deserialize, PartialEq)]
pub(super) struct Named {
    pub(super) jid: String,
}

/// How a job failed.
#[derive(Debug, Deserialize, PartialEq)]
pub(super) struct Failed {
    pub(super) jid: String,
    pub(super) errtype: Option<String>,
    pub(super) message: Option<String>,
}

/// A heartbeat of a worker.
#[derive(Debug, Deserialize, PartialEq)]
pub(super) struct Beat {
    pub(super) wid: String,
    /// `quiet` or `terminate`: it has heard that, or was told so itself.
    pub(super) current_state: Option<String>,
}

/// Reads a line, without its end.
pub(super) fn read(line: &[u8]) -> Result<Command<'_>, String> {
    let text = std::str::from_utf8(line).map_err(|_| "a command must be UTF-8".to_owned())?;
    let text = text.trim();
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim();
    Ok(match word {
        "PUSH" => Command::Push(rest),
        "PUSHB" => Command::PushBulk(rest),
        "FETCH" => Command::Fetch(queues(rest)?),
        "ACK" => Command::Ack(json(word, rest)?),
        "FAIL" => Command::Fail(json(word, rest)?),
        "BEAT" => Command::Beat(json(word, rest)?),
        "INFO" => Command::Info,
        "QUEUE" => match rest.split_once(' ').unwrap_or((rest, "")) {
            ("PAUSE", names) => Command::Pause(some(queues(names)?)?),
            ("RESUME", names) => Command::Resume(some(queues(names)?)?),
            _ => {
                return Err(
                    "QUEUE: write PAUSE or RESUME and names of queues, or * for all".to_owned()
                );
            }
        },
        "END" => Command::End,
        "TRACK" => match rest.split_once(' ') {
            Some(("GET", jid)) => Command::Track(jid.trim()),
            Some(("SET", text)) => Command::Progress(json::<Progress>(word, text)?.checked()?),
            _ => return Err("TRACK: write GET and a jid, or SET and the progress".to_owned()),
        },
        "MUTATE" => Command::Mutate(json::<Mutation>(word, rest)?.checked()?),
        "FLUSH" | "BATCH" => return Err(format!("{word} is not supported")),
        _ => {
            let word: String = word.chars().take(SHOWN_CHARS_MAX).collect();
            return Err(format!(
                "Unknown command {word:?}: write PUSH, PUSHB, FETCH, ACK, FAIL, BEAT, TRACK, MUTATE, INFO, QUEUE or END"
            ));
        }
    })
}

fn queues(text: &str) -> Result<Vec<&str>, String> {
    let names: Vec<&str> = text.split_whitespace().collect();
    if names.len() > QUEUES_MAX {
        return Err(format!("{} queues: name at most {QUEUES_MAX}", names.len()));
    }
    Ok(names)
}

fn some(names: Vec<&str>) -> Result<Vec<&str>, String> {
    if names.is_empty() { Err("QUEUE: no queue is named".to_owned()) } else { Ok(names) }
}

fn json<'a, T: Deserialize<'a>>(word: &str, text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{word}: {error}"))
}

#[cfg(test)]
mod tests {
    use seriatim_testkit::fuzz::Surface;

    use super::super::greeting::{Greeting, Hello};
    use super::super::{job, reply};
    use super::*;

    #[test]
    fn a_line_is_a_word_and_what_it_is_about() {
        assert_eq!(read(b"PUSH {}\r"), Ok(Command::Push("{}")));
        assert_eq!(read(b"FETCH a  b "), Ok(Command::Fetch(vec!["a", "b"])));
        assert_eq!(read(b"FETCH"), Ok(Command::Fetch(vec![])));
        assert_eq!(read(b"QUEUE PAUSE *"), Ok(Command::Pause(vec!["*"])));
        assert_eq!(
            read(br#"ACK {"jid":"12345678"}"#),
            Ok(Command::Ack(Named { jid: "12345678".to_owned() }))
        );
        for (line, why) in [
            (&b"PULL x"[..], "Unknown command \"PULL\""),
            (b"ACK", "ACK: EOF"),
            (b"QUEUE REMOVE a", "QUEUE: write PAUSE"),
            (b"QUEUE PAUSE", "no queue is named"),
            (b"TRACK 12345678", "TRACK: write GET"),
            (br#"TRACK SET {"jid":"12345678","percent":-1}"#, "TRACK: invalid value"),
            (b"FLUSH", "FLUSH is not supported"),
            (b"\xff", "UTF-8"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let many = format!("FETCH {}", "q ".repeat(QUEUES_MAX + 1));
        assert!(read(many.as_bytes()).unwrap_err().contains("at most"));
    }

    #[test]
    fn whatever_a_client_of_faktory_sends_is_a_command_or_explained() {
        let greeting = Greeting::new(false).unwrap();
        Surface::new("faktory").inputs(10_000).attack(|input| {
            let why = match read(input) {
                Ok(Command::Push(text)) => job::Pushed::read(text).err(),
                Ok(Command::PushBulk(text)) => job::read_list(text).err(),
                Ok(_) => None,
                Err(why) => Some(why),
            };
            let hello = Hello::read(input).and_then(|hello| greeting.check(&hello, &[]));
            for why in why.into_iter().chain(hello.err()) {
                let line = reply::error(&why);
                assert!(line.starts_with("-ERR ") && line.ends_with("\r\n"), "{line:?}");
                assert_eq!(line.matches(['\r', '\n']).count(), 2, "{line:?}");
            }
        });
    }
}
