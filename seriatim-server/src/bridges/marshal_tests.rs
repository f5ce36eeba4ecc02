//! Marshal, compared with the real Ruby.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use seriatim_testkit::find_program;

use super::form::Form;
use super::marshal::to_json;

const PROPERTY: &str = include_str!("marshal_property.rb");
/// The corpus of the fuzzer: what each dump is, and below it its bytes in hexadecimal.
const DUMPS: &str = include_str!("../../../testkit/corpus/marshal/dumps.lines");
/// Random values of one run.
const VALUES: usize = 3_000;

pub(super) fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).filter_map(digit).collect()
}

/// The dump of this name.
fn dump(what: &str) -> Vec<u8> {
    let mut lines = DUMPS.lines();
    lines.find(|line| *line == format!("## {what}")).unwrap();
    bytes(lines.next().unwrap())
}

#[test]
fn b14_plain_data_becomes_the_json_that_ruby_itself_would_make_of_it() {
    for (what, json) in [
        ("the payload of a job without one", r#""""#),
        ("floats", "[0.0,-0.0,1.0,1.5,-2.25e-7,1e+20,1.7e+308,5e-324]"),
        ("words", "[null,true,false]"),
        ("texts of UTF-8, US-ASCII and none", "[\"ü\\u0000\\\"\\\\\\n\u{2028}\",\"a\",\"abc\"]"),
        ("symbols, one of them twice, and not of ASCII", r#"["a","b","a","ü","ü"]"#),
        ("a map", r#"{"id":1,"version":7,"3":null,"-5":[],"1099511627776":{},"a":{"b":[1.5]}}"#),
        ("a map with a default", r#"{"a":1}"#),
    ] {
        let told = to_json(&dump(what)).unwrap();
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&told), value(json), "{what}: {told}");
    }
    let twice = r#"["xxxxx","xxxxx",[1,2],[1,2],{"xxxxx":[1,2]},1.25,1.25,1180591620717411303424,1180591620717411303424]"#;
    assert_eq!(to_json(&dump("objects that are there twice")).unwrap(), twice);
    let numbers = to_json(&dump("numbers of all lengths")).unwrap();
    assert!(numbers.ends_with(",1073741823,-1073741824,1073741824,2147483648,-2147483649,4611686018427387904,18446744073709551616,-1606938044258990275541962092341162602522202993782792835301376]"), "{numbers}");
}

#[test]
fn b14_what_is_no_plain_data_is_refused_with_what_it_is() {
    for (what, why) in [
        ("a time", "has an object of class \"Time\": only plain data is read"),
        ("a big decimal", "has an object of class \"BigDecimal\""),
        ("a set", "has an object of class \"Set\""),
        ("an object", "has an object of class \"Order\""),
        ("a struct", "has an object of class \"S\""),
        ("a class", "has a class"),
        ("a regular expression", "has a regular expression"),
        ("a range", "has an object of class \"Range\""),
        ("binary", "has a binary string"),
        ("another encoding", "has a string in \"UTF-16LE\": only UTF-8 is read"),
        ("no number", "has \"nan\", which is not a JSON number"),
        ("itself", "contains itself"),
        ("a default that is an object", "has a map with a default value"),
        ("a subclass of String", "has an object of class \"Sub\""),
        ("a text with a variable", "has a string with instance variables"),
        ("two keys that become one", "has a map with two keys"),
        ("a key that is a list", "has a map with a key that is not a string"),
        ("what would be long", "is longer than 4194304 bytes as JSON"),
        ("cut", "ends early"),
    ] {
        let told = to_json(&dump(what)).unwrap_err();
        assert!(told.contains(why), "{what}: {told}");
    }
    let deep = |depth: usize| [&[4, 8][..], &b"[\x06".repeat(depth), b"0"].concat();
    assert_eq!(to_json(&deep(100)).unwrap().len(), 204);
    assert_eq!(to_json(&deep(101)).unwrap_err(), "is nested more than 100 deep");
    // 1,026 bytes of a number, and many bytes of nothing.
    let large = [&[4, 8, b'l', b'+', 2, 1, 2][..], &[1; 1_026]].concat();
    assert!(to_json(&large).unwrap_err().contains("of 1026 bytes: at most 1024"));
    assert!(to_json(&[4, 8, b'0', b'0']).unwrap_err().contains("1 bytes behind its end"));
    assert!(to_json(&vec![4; (4 << 20) + 1]).unwrap_err().contains("at most"));
}

#[test]
fn b14_what_ruby_dumps_of_random_plain_data_is_the_json_that_ruby_makes_of_it() {
    let ruby = find_program("ruby", "ruby").unwrap_or_else(|missing| panic!("{missing}"));
    let mut command = Command::new(ruby);
    command.args(["-e", PROPERTY, &VALUES.to_string()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut answers = child.stdin.take().unwrap();
    let mut compared = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let json = to_json(&bytes(&line)).unwrap_or_else(|why| panic!("{why}: {line}"));
        writeln!(answers, "{json}").unwrap();
        compared += 1;
    }
    assert!(child.wait().unwrap().success(), "it told the difference on stderr");
    assert_eq!(compared, VALUES);
}

#[test]
fn a_signature_is_about_key_queue_id_and_payload() {
    let key = |text: &str| Form::signed(text.as_bytes()).unwrap();
    let sign = |form: &Form, queue: &str, id: &str, payload: &[u8]| {
        let payload = form.payload(queue, id, payload).unwrap();
        String::from_utf8(payload.as_bytes().to_vec()).unwrap()
    };
    let first = sign(&key("k"), "Shop::Sync", "7", b"\x04\x08i\x06");
    // As `OpenSSL::HMAC.digest("SHA256", "k", "seriatim lowkiq 1\0Shop::Sync\0007\0\x04\bi\x06")` of Ruby says.
    assert_eq!(
        first,
        r#"{"$marshal":"BAhpBg==","mac":"gb7fs5wdXF06I+Yhk6H1TdACCV9zadkeO/GpA4tTAlw="}"#
    );
    assert_eq!(first, sign(&key("k"), "Shop::Sync", "7", b"\x04\x08i\x06"));
    for other in [
        sign(&key("l"), "Shop::Sync", "7", b"\x04\x08i\x06"),
        sign(&key("k"), "Shop::Other", "7", b"\x04\x08i\x06"),
        sign(&key("k"), "Shop::Sync", "8", b"\x04\x08i\x06"),
        sign(&key("k"), "Shop::Sync", "7", b"\x04\x08i\x07"),
    ] {
        assert_ne!(first, other);
    }
    let plain = |bytes: &[u8]| {
        Form::Plain.payload("q", "1", bytes).map(|payload| payload.as_bytes().to_vec())
    };
    assert_eq!(plain(b"\x04\x08i\x06").unwrap(), b"1");
    assert_eq!(plain(b"{\"a\": 1}").unwrap(), b"{\"a\": 1}");
    assert!(plain(b"{\"a\": ").unwrap_err().contains("is neither Marshal's nor JSON"));
}
