//! Lists the rows of `docs/parity.md`, and the tests named after them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::files;

const TABLE: &str = "docs/parity.md";

/// Prints each row with the number of its tests. A row without a test is not a failure.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let table = fs::read_to_string(root.join(TABLE)).map_err(|e| format!("{TABLE}: {e}"))?;
    let rows = rows(&table);
    let mut tests: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files::list(root)?
        .iter()
        .filter(|path| Path::new(path).extension().is_some_and(|e| e == "rs"))
    {
        let text = fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"))?;
        for name in named(&text) {
            let row = name.split('_').next().unwrap_or_default().to_uppercase();
            tests.entry(row).or_default().push(name);
        }
    }
    let mut missing = 0;
    for (row, title) in &rows {
        let named = tests.get(row).map_or(&[][..], Vec::as_slice);
        missing += usize::from(named.is_empty());
        let state = if named.is_empty() { "no test" } else { "" };
        println!("{row:<4} {:>3}  {title:<60} {state}", named.len());
        named.iter().for_each(|name| println!("            {name}"));
    }
    println!("{} rows, {missing} without a test", rows.len());
    Ok(())
}

/// The rows, as (row, feature).
fn rows(table: &str) -> Vec<(String, String)> {
    let cells = table.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        Some((cells.next()?.to_owned(), cells.next()?.to_owned()))
    });
    cells.filter(|(row, _)| is_row(row)).collect()
}

fn is_row(text: &str) -> bool {
    let (letter, digits) = text.split_at(text.len().min(1));
    matches!(letter, "L" | "S" | "N" | "D")
        && !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
}

/// The functions of a source file that are named after a row.
fn named(source: &str) -> Vec<String> {
    let functions = source.lines().filter_map(|line| {
        let rest = line.trim_start();
        let rest = rest.strip_prefix("async ").unwrap_or(rest).strip_prefix("fn ")?;
        let name = rest.split(['(', '<']).next()?;
        let row = name.split('_').next()?.to_uppercase();
        (is_row(&row) && name.contains('_')).then(|| name.to_owned())
    });
    functions.collect()
}

#[cfg(test)]
mod tests {
    use super::{named, rows};

    #[test]
    fn rows_and_the_tests_named_after_them_are_found() {
        let table = "| row | x | y |\n|---|---|---|\n| L7 | a morgue | b |\n| word | c | d |\n";
        assert_eq!(rows(table), [("L7".to_owned(), "a morgue".to_owned())]);
        let source =
            "    async fn l7_jobs_die() {}\nfn lane_of() {}\nfn d12_steps<T>() {}\nfn l7() {}\n";
        assert_eq!(named(source), ["l7_jobs_die", "d12_steps"]);
    }
}
