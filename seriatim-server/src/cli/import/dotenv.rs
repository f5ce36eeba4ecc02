//! Files of variables: `NAME=value`, a line each.

use std::collections::BTreeMap;

/// The variables. Values may be quoted; ` #` begins a comment, as on a line of its own; a later line wins.
pub(super) fn read(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut variables = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = at + 1;
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, value) = line
            .split_once('=')
            .map(|(name, value)| (name.trim_end(), value.trim()))
            .filter(|(name, _)| !name.is_empty() && name.chars().all(is_of_name))
            .ok_or_else(|| format!("line {number}: write NAME=value"))?;
        let value =
            unquoted(value).ok_or_else(|| format!("line {number}: the quote does not end"))?;
        variables.insert(name.to_owned(), value.to_owned());
    }
    Ok(variables)
}

fn unquoted(value: &str) -> Option<&str> {
    let Some(quote) = value.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        let comment = value.match_indices(" #").chain(value.match_indices("\t#")).map(|(at, _)| at);
        return Some(value[..comment.min().unwrap_or(value.len())].trim_end());
    };
    let (text, behind) = value[1..].split_once(quote)?;
    match behind.is_empty() || behind.trim_start().starts_with('#') {
        true => Some(text),
        false => value[1..].strip_suffix(quote),
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_comment_behind_a_value_is_not_a_part_of_it() {
        let read_all = read("A=/x # y\nB='x # y' # z\nC=x#y\nD=\"a\"b\"\nE=x\t#y # z").unwrap();
        let values: Vec<&str> = read_all.values().map(String::as_str).collect();
        assert_eq!(values, ["/x", "x # y", "x#y", "a\"b", "x"]);
        assert_eq!(read("A='1 # y").unwrap_err(), "line 1: the quote does not end");
    }

    #[test]
    fn lines_are_read_and_what_is_no_line_is_refused_with_its_number() {
        let read_all = read("# db\nexport PG_HOST = db.example\nA='x # y'\n\nB=\"\"\nA=2").unwrap();
        let pairs: Vec<(&str, &str)> = read_all.iter().map(|(n, v)| (&**n, &**v)).collect();
        assert_eq!(pairs, [("A", "2"), ("B", ""), ("PG_HOST", "db.example")]);
        assert_eq!(read("A=1\nnonsense").unwrap_err(), "line 2: write NAME=value");
        assert_eq!(read("A='1").unwrap_err(), "line 1: the quote does not end");
        assert_eq!(read("A='").unwrap_err(), "line 1: the quote does not end");
    }
}
