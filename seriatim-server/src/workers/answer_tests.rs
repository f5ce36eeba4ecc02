//! The reader of answers, against what programs get wrong.

use super::*;
use crate::protocol::outcome::SNOOZE;

/// What is wrong, as a program prints it, and what the error says of it. `LANE` stands for a good
/// start of a result: its lane and the comma after it.
const MALFORMED: [(&str, &[&str]); 87] = [
    // Not JSON: cut off, spread, quoted as a language quotes.
    ("{\"ty", &["is not a JSON object", "{\"ty"]),
    ("{\"type", &["is not a JSON object"]),
    ("{'res", &["is not a JSON object"]),
    ("{\"type\":", &["is not a JSON object"]),
    ("{\"type\":\"done\",\"batch\":\"b\"", &["is not a JSON object", "EOF"]),
    (
        "{\"type\":\"result\",\"batch\":\"b\",\"results\":[{\"lane\":\"1-0-7\"",
        &["is not a JSON object"],
    ),
    ("{\"batch\":\"b\",\"results\":[", &["is not a JSON object"]),
    ("{\"type\":\"done\",\"batch\":\"b\",}", &["trailing comma"]),
    ("{\"type\":\"done\",\"batch\":\"b\"}}", &["trailing characters"]),
    (
        "{\"type\":\"done\",\"batch\":\"b\"}{\"type\":\"done\",\"batch\":\"b\"}",
        &["trailing characters"],
    ),
    ("{\"type\":\"done\",\"batch\":\"b\"} // done", &["trailing characters"]),
    ("{'type': 'result', 'batch': 'b', 'results': []}", &["is not a JSON object", "'type'"]),
    ("{ type: 'result', results: [ [Object] ] }", &["is not a JSON object"]),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retry\",\"retry_in\":NaN}]}",
        &["is not a JSON object"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retry\",\"retry_in\":Infinity}]}",
        &["is not a JSON object"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retry\",\"error\":\"a\tb\"}]}",
        &["is not a JSON object", "control character"],
    ),
    ("\"type\": \"result\",", &["on one line"]),
    ("  \"results\": [", &["on one line"]),
    // The type.
    (
        "{\"type\":\"results\",\"results\":[{LANE\"outcome\":\"done\"}]}",
        &[
            "`type` is \"results\"",
            "write result, done, progress, step or step_done",
            "did you mean \"result\"?",
        ],
    ),
    (
        "{\"type\":\"Result\",\"results\":[{LANE\"outcome\":\"done\"}]}",
        &["`type` is \"Result\"", "did you mean \"result\"?"],
    ),
    (
        "{\"type\":\"finished\",\"batch\":\"b\"}",
        &["`type` is \"finished\"", "write result, done, progress, step or step_done"],
    ),
    ("{\"type\":\"metrics\",\"batch\":\"b\"}", &["`type` is \"metrics\""]),
    ("{\"type\":\"perform\",\"batch\":\"b\"}", &["`type` is \"perform\""]),
    (
        "{\"type\":7,\"batch\":\"b\"}",
        &["`type` is 7", "write result, done, progress, step or step_done"],
    ),
    ("{\"type\":null,\"batch\":\"b\"}", &["`type` is missing"]),
    (
        "{\"batch\":\"b\"}",
        &["`type` is missing", "write result, done, progress, step or step_done"],
    ),
    ("{\"results\":[{LANE\"outcome\":\"retry\"}]}", &["`type` is missing"]),
    (
        "{\"typ\":\"result\",\"results\":[{LANE\"outcome\":\"retry\"}]}",
        &["`type` is missing", "`typ` is not a field", "did you mean `type`?"],
    ),
    ("{\"type\":\"done\",\"type\":\"result\",\"batch\":\"b\"}", &["`type` is given twice"]),
    ("{\"type\":\"\\u001b[2Jdone\",\"batch\":\"b\"}", &["`type` is \"\\u001b[2Jdone\""]),
    // The message.
    ("{\"type\":\"done\",\"batch\":7}", &["`batch` is 7", "write a string"]),
    ("{\"type\":\"done\",\"bach\":\"b\"}", &["`bach` is not a field", "did you mean `batch`?"]),
    (
        "{\"type\":\"done\",\"batch\":\"b\",\"results\":[]}",
        &["`results` is not a field here", "write type, batch or result"],
    ),
    ("{\"type\":\"done\",\"batch\":\"b\",\"error\":\"no\"}", &["`error` is not a field here"]),
    (
        "{\"type\":\"result\",\"result\":[]}",
        &["`result` is not a field", "did you mean `results`?"],
    ),
    ("{\"type\":\"result\"}", &["`results` is missing", "write a list"]),
    ("{\"type\":\"result\",\"results\":null}", &["`results` is missing"]),
    ("{\"type\":\"result\",\"results\":\"fine\"}", &["`results` is \"fine\"", "write a list"]),
    ("{\"type\":\"result\",\"results\":{}}", &["`results` is {}", "write a list"]),
    ("{\"type\":\"result\",\"results\":[]}", &["`results` is []", "does not name any lane"]),
    ("{\"type\":\"result\",\"results\":[],\"results\":[]}", &["`results` is given twice"]),
    (
        "{\"type\":\"result\",\"outcome\":\"retry\",\"results\":[]}",
        &["`outcome` is not a field here"],
    ),
    // One result.
    (
        "{\"type\":\"result\",\"results\":[\"1-0-7\"]}",
        &[
            "`results[0]` is \"1-0-7\"",
            "write an object with lane, outcome, error, retry_in, done or result",
        ],
    ),
    ("{\"type\":\"result\",\"results\":[null]}", &["`results[0]` is null"]),
    ("{\"type\":\"result\",\"results\":[{}]}", &["`results[0].lane` is missing"]),
    (
        "{\"type\":\"result\",\"results\":[{\"outcome\":\"done\"}]}",
        &["`results[0].lane` is missing"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{\"lane\":7,\"outcome\":\"done\"}]}",
        &["`results[0].lane` is 7"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{\"lane\":\"first\",\"outcome\":\"done\"}]}",
        &["`results[0].lane` is \"first\""],
    ),
    (
        "{\"type\":\"result\",\"results\":[{\"lane\":\"1-0-9\",\"outcome\":\"done\"}]}",
        &["`results[0].lane` is \"1-0-9\"", "this call has \"1-0-7\""],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"done\"},{LANE\"outcome\":\"retry\"}]}",
        &["`results[1].lane` is \"1-0-7\"", "already names"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"done\"},{LANE\"outcome\":\"done\"}]}",
        &["`results[1].lane`"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcom\":\"retry\"}]}",
        &["`results[0].outcom` is not a field", "did you mean `outcome`?"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{\"lane\":\"1-0-7\"}]}",
        &["`results[0].outcome` is missing", "write done, retry, snooze, bury, cancel or release"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":null}]}",
        &["`results[0].outcome` is missing"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retri\"}]}",
        &["`results[0].outcome` is \"retri\"", "did you mean \"retry\"?"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"Done\"}]}",
        &["`results[0].outcome` is \"Done\"", "write done, retry"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"release\"}]}",
        &["`results[0].outcome` is \"release\""],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":true}]}",
        &["`results[0].outcome` is true"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"done\",\"outcome\":\"retry\"}]}",
        &["`results[0].outcome` is given twice"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retry\",\"reason\":\"x\"}]}",
        &[
            "`results[0].reason` is not a field",
            "write lane, outcome, error, retry_in, done or result",
        ],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retry\",\"error\":7}]}",
        &["`results[0].error` is 7", "write a string"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"done\",\"error\":\"no\"}]}",
        &["`results[0].error` is \"no\"", "`outcome` is \"done\""],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retry\",\"retry_in\":\"10s\"}]}",
        &["`results[0].retry_in` is \"10s\"", "a number of seconds", "as in 10"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retry\",\"retry_in\":\"10\"}]}",
        &["`results[0].retry_in` is \"10\""],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retry\",\"retry_in\":-1}]}",
        &["`results[0].retry_in` is -1", "from 0"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"snooze\",\"retry_in\":1e999}]}",
        &["`results[0].retry_in` is 1e999"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"snooze\",\"retry_in\":1764000000}]}",
        &["`results[0].retry_in` is 1764000000", "to 315360000"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"bury\",\"retry_in\":5}]}",
        &["`results[0].retry_in` is 5", "goes with retry or snooze"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retry\",\"done\":99}]}",
        &["`results[0].done` is 99", "the lane has 3"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retry\",\"done\":3}]}",
        &["`results[0].done` is 3", "no job for the outcome"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"done\",\"done\":2}]}",
        &["`results[0].done` is 2", "all 3 jobs"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retry\",\"done\":-1}]}",
        &["`results[0].done` is -1", "a number of jobs"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retry\",\"done\":1.5}]}",
        &["`results[0].done` is 1.5"],
    ),
    (
        "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retry\",\"done\":true}]}",
        &["`results[0].done` is true"],
    ),
    ("{\"type\":\"progress\",\"batch\":\"b\",\"lane\":7,\"progress\":{}}", &["`lane` is 7"]),
    // A result that is in no message.
    ("{LANE\"outcome\":\"retry\"}", &["is not an answer", "write {\"type\":\"result\""]),
    ("[{LANE\"outcome\":\"retry\"}]", &["is not an answer"]),
    (
        "{\"Type\":\"result\",\"Results\":[{\"Lane\":\"1-0-7\",\"Outcome\":\"retry\"}]}",
        &["is not an answer"],
    ),
    ("{\"tpye\":\"result\",\"result\":[{LANE\"outcome\":\"retry\"}]}", &["is not an answer"]),
    (
        "\"{\\\"type\\\":\\\"result\\\",\\\"results\\\":[{\\\"lane\\\":\\\"1-0-7\\\",\\\"outcome\\\":\\\"retry\\\"}]}\"",
        &["is not an answer"],
    ),
    ("{ lane: '1-0-7', outcome: 'retry' }", &["is not an answer"]),
    (r#"{"type":"step","batch":"b",LANE"step":null}"#, &["`step` is missing", "extract"]),
    (r#"{"type":"step","batch":"b",LANE"step":7}"#, &["`step` is 7", "write a string"]),
    (r#"{"type":"step","batch":"b",LANE"step":"a","result":1}"#, &["`result` is not a field here"]),
    (r#"{"type":"step_done","batch":"b","step":"a"}"#, &["`lane` is missing"]),
    (
        r#"{"type":"result","results":[{LANE"outcome":"release"}]}"#,
        &["`results[0].outcome` is \"release\"", "stopping"],
    ),
    (
        r#"{"type":"result","results":[{LANE"outcome":"release","error":"e"}]}"#,
        &["`results[0].error`", "it goes with retry"],
    ),
];

fn line(text: &str) -> Line {
    Line { text: text.to_owned(), is_cut: false, is_whole: true }
}

/// A call of one lane with three jobs.
fn held() -> Held {
    Held { batch: "b".to_owned(), lanes: vec![("1-0-7".parse().unwrap(), 3)], may_release: false }
}

fn heard(text: &str) -> Heard {
    read(&line(&text.replace("LANE", "\"lane\":\"1-0-7\",")))
}

/// As both kinds of worker read a line: what it says, or why it cannot be used.
fn answered(text: &str) -> Result<Option<Said>, String> {
    match heard(text) {
        Heard::Fault(fault) => Err(fault.why),
        Heard::Answer { batch, said } => {
            held().check_name(batch.as_deref())?;
            held().check(&said).map(|()| Some(said))
        }
        Heard::Progress { lane, .. } | Heard::Step { lane, .. } => {
            held().check_lane("lane", lane).map(|_| None)
        }
        Heard::Output | Heard::Suspect(_) => Ok(None),
    }
}

#[test]
fn whatever_looks_like_an_answer_and_cannot_be_used_says_what_is_wrong() {
    for (text, parts) in MALFORMED {
        let why = answered(text).expect_err(text);
        for part in parts {
            assert!(why.contains(part), "{text}\n  should say {part:?}, but says\n  {why}");
        }
        assert!(why.len() < 400 && !why.contains(char::is_control), "{text}: {why:?}");
    }
}

#[test]
fn d12_a_message_about_a_step_is_what_it_says() {
    let step = |text: &str| match heard(text) {
        Heard::Step { batch, step, .. } => (batch, step.name, step.ended),
        other => panic!("{text}: {other:?}"),
    };
    let (b, name) = (Some("b".to_owned()), "extract".to_owned());
    let begun = r#"{"type":"step","batch":"b",LANE"step":"extract"}"#;
    assert_eq!(step(begun), (b.clone(), name.clone(), None));
    let ended = r#"{"type":"step_done","batch":"b",LANE"step":"extract","result":[1]}"#;
    assert_eq!(step(ended), (b.clone(), name.clone(), Some(serde_json::json!([1]))));
    let ended = r#"{"type":"step_done","batch":"b",LANE"step":"extract"}"#;
    assert_eq!(step(ended), (b, name, Some(serde_json::Value::Null)));
    let released = r#"{"type":"result","batch":"b","results":[{LANE"outcome":"release"}]}"#;
    let Heard::Answer { said, .. } = heard(released) else { panic!("{released}") };
    assert!(held().check(&said).is_err());
    assert_eq!(Held { may_release: true, ..held() }.check(&said), Ok(()));
}

#[test]
fn a_good_answer_is_what_it_says() {
    let result = |rest: &str| {
        let text = format!("{{\"type\":\"result\",\"batch\":\"b\",\"results\":[{{LANE{rest}}}]}}");
        match answered(&text).unwrap_or_else(|why| panic!("{text}: {why}")) {
            Some(Said::Results(results)) => (results[0].done, results[0].outcome.clone()),
            other => panic!("{text}: {other:?}"),
        }
    };
    let (error, retry_in): (Arc<str>, _) = ("e".into(), Some(Duration::from_millis(1_500)));
    for (text, expected) in [
        (r#""outcome":"done""#, (0, Outcome::Done)),
        (r#""outcome":"done","done":0,"error":"","retry_in":null"#, (0, Outcome::Done)),
        (r#""outcome":"done","done":3"#, (3, Outcome::Done)),
        (
            r#""outcome":"retry","error":"e","retry_in":1.5,"done":2"#,
            (2, Outcome::Retry { error: error.clone(), retry_in }),
        ),
        (
            r#""outcome":"retry""#,
            (0, Outcome::Retry { error: "no reason given".into(), retry_in: None }),
        ),
        (r#""outcome":"snooze""#, (0, Outcome::Snooze { length: SNOOZE })),
        (r#""outcome":"snooze","retry_in":0"#, (0, Outcome::Snooze { length: Duration::ZERO })),
        (r#""outcome":"bury","error":"e""#, (0, Outcome::Bury { error: error.clone() })),
        (r#""outcome":"cancel","error":"e""#, (0, Outcome::Cancel { reason: error })),
    ] {
        assert_eq!(result(text), expected, "{text}");
    }
    for text in ["{\"type\":\"done\",\"batch\":\"b\"}", "\u{feff} {\"type\" : \"done\"}\r"] {
        assert_eq!(answered(text), Ok(Some(Said::Done(None))), "{text}");
    }
    let shared = r#"{"type":"done","batch":"b","result":{"sum": 6.50}}"#;
    assert_eq!(answered(shared), Ok(Some(Said::Done(Some(r#"{"sum": 6.50}"#.into())))));
    let progress = r#"{"type":"progress","batch":"b","lane":"1-0-7","progress":{"percent":4}}"#;
    assert!(
        matches!(heard(progress), Heard::Progress { progress, .. } if progress.get().contains('4'))
    );
}

#[test]
fn ordinary_output_is_no_answer() {
    for text in [
        "",
        "hello",
        "{",
        "}",
        "[1]",
        "null",
        "{}",
        "{\"level\":\"info\",\"message\":\"the type of results\"}",
        "{\"inner\":{\"type\":\"done\",\"batch\":\"b\"}}",
        "{\"cut\":\"off",
        "a line with {\"type\":\"done\"} in it",
        "type: result",
        "results are in",
        "the outcome for the lane: fine",
        "got {\"type\":\"perform\",\"lanes\":[{\"lane\":\"1-0-7\"}]}",
        "[{\"type\":\"done\"}]",
    ] {
        assert!(matches!(heard(text), Heard::Output), "{text}: {:?}", heard(text));
    }
}

#[test]
fn a_result_beside_other_output_is_suspected_to_be_an_answer() {
    let answer = "{\"type\":\"result\",\"results\":[{LANE\"outcome\":\"retry\"}]}";
    let wide: String =
        answer.replace("LANE", "\"lane\":7,").chars().flat_map(|c| [c, '\0']).collect();
    for text in [
        &format!("Checking stock... {answer}"),
        &format!("\u{1b}[0m{answer}"),
        &format!("result={answer}"),
        "lane => 1-0-7, outcome => retry",
        &format!("\0{wide}"),
    ] {
        match heard(text) {
            Heard::Suspect(why) => assert!(why.contains("alone on its line"), "{why}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn a_fault_names_its_call_as_far_as_it_can_be_read_and_whether_it_ended_it() {
    for (text, call, is_final) in [
        (r#"{"type":"result","batch":"b","results":7}"#, Some("b"), true),
        (r#"{"type":"result","batch":"b","results":[{"la"#, Some("b"), true),
        (r#"{"type":"results","batch":"b"}"#, Some("b"), true),
        (r#"{"type":"Done","batch":"b"}"#, Some("b"), true),
        (r#"{"type":"log","batch":"b"}"#, Some("b"), false),
        (r#"{"type":"progress","batch":"b","lane":7}"#, Some("b"), false),
        (r#"{"type":"progress","batch":7}"#, None, false),
        (r#"{"type":"res"#, None, false),
    ] {
        match heard(text) {
            Heard::Fault(fault) => {
                assert_eq!((fault.batch.as_deref(), fault.is_final), (call, is_final), "{text}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn a_line_that_is_too_long_is_an_answer_only_if_it_begins_like_one() {
    let cut = |text: &str| read(&Line { text: text.to_owned(), is_cut: true, is_whole: true });
    assert!(matches!(cut("xxxx"), Heard::Output));
    let Heard::Fault(fault) = cut("{\"type\":\"result\",\"batch\":\"b\",\"results\":[{") else {
        panic!("it begins like one");
    };
    assert!(fault.why.contains("longer than 4194304 bytes"), "{}", fault.why);
}

#[test]
fn two_answers_are_the_same_if_they_say_the_same_of_each_lane() {
    let said = |text: &str| answered(text).unwrap().unwrap();
    let done = said("{\"type\":\"done\"}");
    let named = said(r#"{"type":"result","results":[{LANE"outcome":"done","done":3}]}"#);
    let later = said(r#"{"type":"result","results":[{LANE"outcome":"snooze"}]}"#);
    assert!(held().is_same(&done, &named) && !held().is_same(&done, &later));
}

#[test]
fn a_result_goes_with_the_lane_that_it_is_of() {
    let text = r#"{"type":"result","results":[{LANE"outcome":"done","result":[1]}]}"#;
    let said = answered(text).unwrap().unwrap();
    let held = held();
    assert_eq!(held.check(&said), Ok(()));
    let lane = held.lanes[0].0;
    let verdict = said.outcomes(&held, &Outcome::Release).of(lane);
    assert_eq!((verdict.outcome, verdict.result.as_deref()), (Outcome::Done, Some("[1]")));
    let null = text.replace("[1]", "null");
    let said = answered(&null).unwrap().unwrap();
    assert_eq!(said.outcomes(&held, &Outcome::Release).of(lane).result, None);
    let failed = text.replace("done", "retry");
    let why = answered(&failed).unwrap_err();
    assert!(why.contains("`results[0].result` is [1], but `outcome` is \"retry\""), "{why}");
    let long = "7".repeat(seriatim::limits::RESULT_BYTES_MAX + 1);
    for text in [text.replace("[1]", &long), format!("{{\"type\":\"done\",\"result\":{long}}}")] {
        let Heard::Answer { said, .. } = heard(&text) else { panic!("it is an answer") };
        let why = held.check(&said).unwrap_err();
        assert!(why.contains("at most 65536 are kept"), "{why}");
    }
}
