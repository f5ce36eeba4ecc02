//! The rules on small samples. Forbidden words are assembled here, never written out.

mod arrows;
mod imports;

use super::functions::{self, Function};
use super::judge;
use super::source::Source;
use super::sql::{self, Statement};

fn source(path: &str, text: impl Into<String>) -> Source {
    Source { path: path.to_owned(), text: text.into() }
}

/// The number of breaches in one file.
fn breaches(path: &str, text: impl Into<String>) -> usize {
    judge(&[source(path, text)]).len()
}

fn function_of(lines: usize) -> String {
    format!("fn long() {{\n{}}}\n", "    call();\n".repeat(lines - 2))
}

#[test]
fn whitespace_at_the_end_is_found_everywhere_and_tabs_in_rust_only() {
    assert_eq!(breaches("a.md", "fine\nnot fine \n"), 1);
    assert_eq!(breaches("a.md", "dos\r\n"), 1);
    assert_eq!(breaches("Makefile", "all:\n\ttouch it\n"), 0);
    assert_eq!(breaches("a.rs", "\tlet a = 1;\n"), 1);
}

#[test]
fn unfinished_work_is_found_in_rust() {
    for word in [["to", "do!()"], ["unimple", "mented!()"], ["db", "g!(x)"], ["// FIX", "ME"]] {
        assert_eq!(breaches("a.rs", word.concat()), 1, "{word:?}");
    }
    assert_eq!(breaches("a.rs", ["#[ig", "nore]"].concat()), 1);
}

#[test]
fn a_path_of_one_machine_is_found_and_an_endpoint_is_not() {
    for path in [["/ho", "me/ann/x"], ["`/wo", "rk/x"], ["cd=/ro", "ot/"]] {
        assert_eq!(breaches("a.md", path.concat()), 1, "{path:?}");
    }
    for path in ["/usr/lib/postgresql", "POST /api/v1/work/claim", "\"/work/settle\""] {
        assert_eq!(breaches("a.md", path), 0, "{path}");
    }
}

#[test]
fn sleeping_is_found_in_test_files_only() {
    let line = ["thread::sle", "ep(TICK);"].concat();
    for path in ["seriatim/tests/a.rs", "xtask/src/tests.rs", "xtask/src/tests/a.rs"] {
        assert_eq!(breaches(path, line.as_str()), 1, "{path}");
    }
    assert_eq!(breaches("xtask/src/a.rs", line.as_str()), 0);
    assert_eq!(breaches("a/tests/b.rs", format!("// no {line}")), 0);
}

#[test]
fn the_library_says_what_is_in_each_file() {
    assert_eq!(breaches("seriatim/src/lane.rs", "use std::fmt;\n"), 1);
    assert_eq!(breaches("seriatim/src/lane.rs", "//! Lanes.\n"), 0);
}

#[test]
fn long_functions_and_files_are_found() {
    assert_eq!(breaches("a.rs", function_of(80)), 0);
    assert_eq!(breaches("a.rs", function_of(81)), 1);
    assert_eq!(breaches("a.rs", "call();\n".repeat(1_000)), 0);
    assert_eq!(breaches("a.rs", "call();\n".repeat(1_001)), 1);
}

#[test]
fn script_and_style_of_the_dashboard_stay_small() {
    let script = "seriatim-server/assets/app.js";
    assert_eq!(breaches(script, "f();\n".repeat(300)), 0);
    assert_eq!(breaches(script, "f();\n".repeat(301)), 1);
    assert_eq!(breaches(script, "x".repeat((12 << 10) + 1)), 1);
    let style = "seriatim-server/assets/app.css";
    assert_eq!(breaches(style, "a{}\n".repeat(3_000)), 0);
    assert_eq!(breaches(style, "x".repeat((14 << 10) + 1)), 1);
}

#[test]
fn long_sql_is_found_in_rust_and_short_or_tested_sql_is_not() {
    let of =
        |lines: usize| format!("const SQL: &str = \"SELECT 1{}\";\n", ",\n 1".repeat(lines - 1));
    assert_eq!(breaches("a.rs", of(6)), 0);
    assert_eq!(breaches("a.rs", of(7)), 1);
    assert_eq!(breaches("tests/a.rs", of(7)), 0);
    assert_eq!(breaches("a.sql", of(7)), 0);
    assert_eq!(breaches("a.rs", of(7).replace("SELECT 1", "Select one")), 0);
    let text = "\
fn first() { query(\"DELETE FROM x\", concat!(\"no\", \"x\")); }
macro_rules! second {
    ($a:literal) => {
        concat!(
            \"SELECT \", up($a), \"
            FROM x\",
            $a,
        )
    };
}
";
    let expected = [(1, 1), (5, 3)];
    let expected = expected.map(|(first_line, lines)| Statement { first_line, lines });
    assert_eq!(sql::of(text), expected);
}

#[test]
fn functions_of_every_shape_are_measured() {
    let text = "\
fn one_line() {}
trait T {
    fn declared(
        &self,
    ) -> u8;
    pub(in crate::x) async fn within<T>(
        a: [u8; 3],
    ) -> T
    where
        T: Copy,
    {
        if a {
        }
    }
}
// an fn in prose
pub const extern \"C\" fn last() {
    call();
}
";
    let expected = [("one_line", 1, 1), ("within", 6, 9), ("last", 17, 3)];
    let expected = expected.map(|(name, first_line, lines)| Function { name, first_line, lines });
    assert_eq!(functions::of(text), expected);
}
