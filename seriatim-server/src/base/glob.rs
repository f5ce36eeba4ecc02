//! Names with `*`, which stands for any characters.

/// Whether the name is one that the pattern means.
pub(crate) fn is_match(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to go on if the last `*` must stand for one byte more.
    let mut back: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                back = Some((p + 1, n));
                p += 1;
            }
            Some(byte) if *byte == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((after, from)) = back else { return false };
                back = Some((after, from + 1));
                (p, n) = (after, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::is_match;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name) in [
            ("*", ""),
            ("*", "A::B"),
            ("Order*", "OrderSync"),
            ("*::Sync", "A::B::Sync"),
            ("A*B*C", "AxxBxBxC"),
            ("Mail", "Mail"),
            ("**", "x"),
        ] {
            assert!(is_match(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("", "x"), ("Order", "OrderSync"), ("*Sync", "SyncX"), ("a*b", "a"), ("A*B*C", "ABB")]
        {
            assert!(!is_match(pattern, name), "{pattern} {name}");
        }
        // No pattern takes long.
        assert!(!is_match(&"*a".repeat(100), &"a".repeat(99)));
        assert!(!is_match(&format!("{}b", "*a".repeat(100)), &"a".repeat(10_000)));
    }
}
