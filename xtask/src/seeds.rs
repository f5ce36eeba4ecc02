//! `cargo xtask seeds`: the tests of each row of `docs/parity.md`, found by their names; and that the tests which other tables
//! name exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::files;

const TABLE: &str = "docs/parity.md";
/// The last column of its tables names tests.
const NAMING: &str = "docs/testing.md";

/// How many rows each system has.
const ROWS: [(char, u32); 5] = [('L', 21), ('S', 11), ('N', 14), ('D', 19), ('E', 8)];
/// The tests that show most of their rows, where these are not the first ones.
const SHOWN: [(&str, &str); 23] = [
    ("L9", "l9_by_node_each_queue_is_one_node_s_and_moves_only_when_that_one_leaves"),
    ("L12", "l12_client_middleware_computes_the_key_and_refuses"),
    ("L13", "l13_middleware_stands_around_every_call_the_first_outermost"),
    (
        "L14",
        "l14_payloads_lie_encrypted_in_the_store_and_reach_workers_and_people_as_they_were_pushed",
    ),
    ("L15", "l15_a_call_that_takes_too_long_is_given_up"),
    ("L17", "l17_stats_have_the_shape_of_lowkiq"),
    ("L18", "l18_a_stopping_engine_lets_calls_finish_and_takes_no_more"),
    ("S1", "l11_s1_so_many_calls_run_at_once_whatever_the_number_of_queues"),
    ("S2", "s2_weighted_order_serves_by_weight"),
    ("S4", "s4_the_default_backoff_is_the_one_that_people_know"),
    ("N1", "n1_n3_d17_nothing_is_lost_and_nothing_overlaps"),
    ("N3", "n1_n3_d17_nothing_is_lost_and_nothing_overlaps"),
    ("N4", "n4_a_worker_that_dies_is_restarted_and_the_poison_is_buried_alone"),
    ("N5", "n5_periodic_programs_run_pause_and_run_again_and_their_node_shows_them"),
    ("N6", "n6_a_worker_s_own_limit_holds"),
    ("N13", "n13_replicate_copies_skips_what_is_equal_and_resumes_what_is_begun"),
    ("D1", "d1_a_job_is_triggered_as_before"),
    ("D3", "d3_the_status_tells_attempt_times_heartbeat_error_and_progress"),
    ("D7", "l1_d7_a_busy_key_cannot_be_claimed"),
    ("D12", "d12_a_pipeline_whose_node_died_goes_on_elsewhere_at_the_last_finished_step"),
    ("D15", "d15_each_action_is_written_down_with_who_where_what_and_how_it_ended"),
    ("D17", "n1_n3_d17_nothing_is_lost_and_nothing_overlaps"),
    ("D18", "d18_what_is_stuck_slow_or_failing_is_named_with_what_to_do"),
];

/// A test, and its file from the root.
type Test = (String, String);

/// Compares the last column of the tables with the tests.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    check_named(root)?;
    let (now, filled) = (read(root)?, filled(root)?);
    if now == filled {
        return Ok(());
    }
    Err(format!("{TABLE}: its tests have changed: run `cargo xtask seeds --write`"))
}

/// Refuses a table that names a test which does not exist.
fn check_named(root: &Path) -> Result<(), String> {
    let page = fs::read_to_string(root.join(NAMING)).map_err(|e| format!("{NAMING}: {e}"))?;
    let mut missing: BTreeSet<&str> = page.lines().flat_map(names_in_row).collect();
    for path in sources(root)? {
        let text = fs::read_to_string(root.join(&path)).map_err(|e| format!("{path}: {e}"))?;
        let known = tests_in(&text);
        missing.retain(|name| !known.contains(name));
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("{NAMING}: there are no tests of these names: {missing:?}")),
    }
}

/// The tests that the last column of a row names.
fn names_in_row(line: &str) -> Vec<&str> {
    let Some(row) = line.strip_prefix('|').and_then(|line| line.trim_end().strip_suffix('|'))
    else {
        return Vec::new();
    };
    let quoted = row.rsplit('|').next().unwrap_or_default().split('`').skip(1).step_by(2);
    // A test has a sentence for a name.
    quoted.filter(|name| name.matches('_').count() > 2 && !name.contains(' ')).collect()
}

/// Fills the last column of the tables.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    fs::write(root.join(TABLE), filled(root)?).map_err(|e| format!("{TABLE}: {e}"))
}

fn read(root: &Path) -> Result<String, String> {
    fs::read_to_string(root.join(TABLE)).map_err(|e| format!("{TABLE}: {e}"))
}

/// The page, with the tests of each row. A row without a test is refused, and one that does not say what differs.
fn filled(root: &Path) -> Result<String, String> {
    let (page, mut tests) = (read(root)?, tests(root)?);
    check_rows(&page)?;
    show(&mut tests, &SHOWN)?;
    let missing: Vec<&str> =
        page.lines().filter_map(row_of).filter(|row| !tests.contains_key(*row)).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(format!("{TABLE}: rows without a test: {missing}"));
    }
    let silent: Vec<&str> = page.lines().filter_map(silent_row).collect();
    if !silent.is_empty() {
        let silent = silent.join(", ");
        return Err(format!(
            "{TABLE}: rows that do not say what differs: {silent}; write `nothing`?"
        ));
    }
    Ok(page.lines().map(|line| filled_line(line, &tests) + "\n").collect())
}

/// Refuses a page that lacks a row, or has one twice.
fn check_rows(page: &str) -> Result<(), String> {
    let wanted =
        ROWS.iter().flat_map(|(letter, last)| (1..=*last).map(move |n| format!("{letter}{n}")));
    let mut wanted: Vec<String> = wanted.collect();
    let mut rows: Vec<&str> = page.lines().filter_map(row_of).collect();
    wanted.sort_unstable();
    rows.sort_unstable();
    if wanted == rows {
        return Ok(());
    }
    let lost: Vec<&String> = wanted.iter().filter(|row| !rows.contains(&row.as_str())).collect();
    Err(format!("{TABLE}: {} rows instead of {}; missing: {lost:?}", rows.len(), wanted.len()))
}

/// Puts these tests before the others of their rows.
fn show(tests: &mut BTreeMap<String, Vec<Test>>, shown: &[(&str, &str)]) -> Result<(), String> {
    for (row, wanted) in shown {
        let named = tests.get_mut(*row).map(Vec::as_mut_slice).unwrap_or_default();
        let place = named.iter().position(|(name, _)| name == wanted);
        let place =
            place.ok_or_else(|| format!("{row}: there is no test `{wanted}`: change SHOWN"))?;
        named[..=place].rotate_right(1);
    }
    Ok(())
}

/// The row of a line that leaves open what differs.
fn silent_row(line: &str) -> Option<&str> {
    row_of(line).filter(|_| line.split('|').nth(4).is_none_or(|cell| cell.trim().is_empty()))
}

fn filled_line(line: &str, tests: &BTreeMap<String, Vec<Test>>) -> String {
    let Some(row) = row_of(line) else {
        return line.to_owned();
    };
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let cell = cell(tests.get(row).map_or(&[], Vec::as_slice));
    let of = |place: usize| cells.get(place).copied().unwrap_or_default();
    format!("| {} | {} | {} | {} | {cell} |", of(1), of(2), of(3), of(4))
}

/// The first test, and how many others there are.
fn cell(tests: &[Test]) -> String {
    let Some((name, path)) = tests.first() else {
        return "none yet".to_owned();
    };
    let stores = if path.contains("/conformance/") { ", on every store" } else { "" };
    let more = match tests.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("[`{name}`](../{path}){stores}{more}")
}

/// The tests of each row: those of the conformance suite first, then by file and name.
fn tests(root: &Path) -> Result<BTreeMap<String, Vec<Test>>, String> {
    let mut tests: BTreeMap<String, Vec<Test>> = BTreeMap::new();
    for path in sources(root)? {
        let text = fs::read_to_string(root.join(&path)).map_err(|e| format!("{path}: {e}"))?;
        for name in tests_in(&text) {
            for row in rows_of(name) {
                tests.entry(row).or_default().push((name.to_owned(), path.clone()));
            }
        }
    }
    for named in tests.values_mut() {
        named.sort_by_key(|(name, path)| {
            (!path.contains("/conformance/"), path.clone(), name.clone())
        });
        named.dedup_by(|a, b| a.0 == b.0);
    }
    Ok(tests)
}

/// All files in Rust.
fn sources(root: &Path) -> Result<Vec<String>, String> {
    let is_source = |path: &String| Path::new(path).extension().is_some_and(|e| e == "rs");
    Ok(files::list(root)?.into_iter().filter(is_source).collect())
}

/// The row that a line of a table describes.
fn row_of(line: &str) -> Option<&str> {
    line.strip_prefix("| ")?.split(" | ").next().filter(|row| is_row(row))
}

fn is_row(text: &str) -> bool {
    let (letter, digits) = text.split_at(text.len().min(1));
    matches!(letter, "L" | "S" | "N" | "D" | "E")
        && !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
}

/// The rows after which a test is named, as in `l13_s7_middleware_stands_around_a_push`.
fn rows_of(name: &str) -> Vec<String> {
    let words = name.split('_').map(str::to_uppercase);
    let rows: Vec<String> = words.take_while(|word| is_row(word)).collect();
    if name.split('_').count() > rows.len() { rows } else { Vec::new() }
}

/// The tests of a file: functions with the attribute, and those that a list of cases or a macro names.
fn tests_in(text: &str) -> BTreeSet<&str> {
    let cases: BTreeSet<&str> = text.lines().filter_map(case).collect();
    let (mut tests, mut is_marked) = (BTreeSet::new(), false);
    for line in text.lines() {
        match function(line) {
            Some(name) => {
                if is_marked || cases.contains(name) {
                    tests.insert(name);
                }
                is_marked = false;
            }
            None if is_attribute_of_test(line) => is_marked = true,
            None if line.trim().is_empty() || line.starts_with('}') => is_marked = false,
            None => {}
        }
    }
    tests
}

fn is_attribute_of_test(line: &str) -> bool {
    let line = line.trim_start();
    ["#[test]", "#[tokio::test", "#[proptest"].iter().any(|start| line.starts_with(start))
}

/// The case on a line of a list: `    a_job_runs,`, or of a macro: `    on_sqlite: a_job_runs(sqlite);`.
fn case(line: &str) -> Option<&str> {
    let line = line.trim();
    let name = match line.strip_suffix(',') {
        Some(name) => name,
        None => line.split_once(": ")?.1.split('(').next()?,
    };
    let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (name.contains('_') && is_name(name)).then_some(name)
}

/// The function that begins on a line.
fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.trim_start().split_once("fn ")?;
    let is_part =
        |word: &str| ["async", "pub", "crate::"].iter().any(|part| word.starts_with(part));
    before.split_whitespace().all(is_part).then(|| rest.split(['(', '<']).next())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_by_the_rows_in_their_names() {
        let rows = |name| rows_of(name).join("+");
        assert_eq!(rows("l7_jobs_die"), "L7");
        assert_eq!(rows("s4_e5_both"), "S4+E5");
        assert_eq!(rows("lane_of"), "");
        assert_eq!(rows("l7"), "");
    }

    #[test]
    fn a_function_is_a_test_if_it_is_marked_or_listed() {
        let text = "#[tokio::test(start_paused = true)]\nasync fn l1_marked() {\n}\n\nfn l2_helper() {\n}\n
            listed![\n    l3_listed,\n]\nasync fn l3_listed(bench: Bench) {\n}\n
            on_each_server! {\n    on_sqlite: l4_of_a_macro(sqlite);\n}\npub(in crate::a) async fn l4_of_a_macro<T>() {}";
        let tests: Vec<&str> = tests_in(text).into_iter().collect();
        assert_eq!(tests, ["l1_marked", "l3_listed", "l4_of_a_macro"]);
    }

    #[test]
    fn the_last_column_of_a_row_names_tests_by_sentences() {
        let row = "| 1 | `a_b_c_d` | `one_of_two_tests` and `another_one_of_them`, `[http]` |";
        assert_eq!(names_in_row(row), ["one_of_two_tests", "another_one_of_them"]);
        assert_eq!(names_in_row("`not_in_a_table`"), [""; 0]);
    }

    #[test]
    fn a_row_says_what_differs() {
        assert_eq!(silent_row("| L7 | a morgue | morgue |  | old |"), Some("L7"));
        assert_eq!(silent_row("| L7 | a morgue | morgue | nothing | old |"), None);
        assert_eq!(silent_row("| row | a | b | | |"), None);
    }

    #[test]
    fn a_row_that_is_gone_is_missed() {
        let rows = ROWS.iter().flat_map(|(letter, last)| (1..=*last).map(move |n| (letter, n)));
        let rows = rows.map(|(letter, n)| format!("| {letter}{n} | a | b | c | d |"));
        let page = rows.collect::<Vec<_>>().join("\n");
        assert_eq!(check_rows(&page), Ok(()));
        let less = page.replace("| S7 | a | b | c | d |\n", "");
        assert!(check_rows(&less).is_err_and(|error| error.contains("72 rows instead of 73") && error.contains("S7")));
    }

    #[test]
    fn the_test_that_shows_most_of_a_row_comes_first() {
        let named = ["l7_a", "l7_b", "l7_c"].map(|name| (name.to_owned(), "x.rs".to_owned()));
        let mut tests = BTreeMap::from([("L7".to_owned(), named.to_vec())]);
        show(&mut tests, &[("L7", "l7_c")]).unwrap();
        let names: Vec<&str> = tests["L7"].iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["l7_c", "l7_a", "l7_b"]);
        assert!(show(&mut tests, &[("L7", "l7_d")]).is_err());
    }

    #[test]
    fn the_last_column_names_the_first_test_and_counts_the_others() {
        let test = |name: &str, path: &str| (name.to_owned(), path.to_owned());
        let of_l7 =
            vec![test("l7_a", "v/conformance/dead.rs"), test("l7_b", "s/tests/cli/morgue.rs")];
        let tests = BTreeMap::from([("L7".to_owned(), of_l7)]);
        assert_eq!(
            filled_line("| L7 | a morgue | morgue | capped | old |", &tests),
            "| L7 | a morgue | morgue | capped | \
             [`l7_a`](../v/conformance/dead.rs), on every store, and 1 more |"
        );
        assert_eq!(filled_line("| row | x | y | z | test |", &tests), "| row | x | y | z | test |");
        assert_eq!(filled_line("| S11 | a | b | | |", &tests), "| S11 | a | b |  | none yet |");
    }
}
