//! Audit logs under fuzz.

use seriatim_testkit::fuzz::Surface;

use super::{Chain, verify};

#[test]
fn an_audit_log_is_followed_to_where_it_breaks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let mut chain = Chain::open(&path).unwrap();
    for action in ["pause", "delete", "requeue"] {
        let line = format!(
            "{{\"at\":\"2026-01-31T12:00:00Z\",\"action\":\"{action}\",\"on\":\"orders\"}}"
        );
        chain.append(&[line]).unwrap();
    }
    let mut whole = 0;
    let written = std::fs::read(&path).unwrap();
    Surface::new("audit").and([written]).inputs(10_000).attack(|input| {
        let seen = verify(input, None).unwrap();
        let lines: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
        assert!(seen.lines <= lines.len() as u64);
        if let Some((line, _)) = seen.broken {
            assert!((1..=lines.len() as u64).contains(&line));
        } else if seen.lines > 1 {
            whole += 1;
            // A change of its first line shows.
            let mut changed = input.to_vec();
            let place = input.len() % lines[0].len();
            changed[place] = if changed[place] == b'!' { b'?' } else { b'!' };
            assert!(verify(&changed[..], None).unwrap().broken.is_some());
        }
    });
    assert!(whole > 0, "the corpus is no longer one of audit logs");
}
