//! The table of arrows on a small crate.

use std::collections::BTreeSet;

use super::source;
use crate::tidy::arrows::judge;
use crate::tidy::circles::{self, Graph};
use crate::tidy::source::Source;

const ROOMS: &str = "x/src:\n  low ->\n  high -> low\n  lib -> *\n";

/// A crate with the rooms `low` and `high`, and its table.
fn repository(table: &str, files: &[(&str, &str)]) -> Vec<Source> {
    let mut sources = vec![
        source("ARCHITECTURE.md", format!("# A\n\n```arrows\n{table}```\n\nMore.\n")),
        source("x/src/lib.rs", "mod low; mod high;"),
    ];
    let rest = files.iter().map(|(path, text)| source(&format!("x/src/{path}"), *text));
    sources.extend(rest);
    sources
}

/// The breaches of `files` against the table of the two rooms.
fn breaches(files: &[(&str, &str)]) -> Vec<String> {
    judge(&repository(ROOMS, files))
}

const UP: &str = "//! Low.\nuse crate::high::High;\npub struct Low;";
const DOWN: &str = "use crate::low::Low;\npub struct High;";
const NONE: [&str; 0] = [];

#[test]
fn an_import_against_the_arrows_is_named_with_what_is_allowed() {
    let [low, high] = [("low.rs", "pub struct Low;"), ("high.rs", DOWN)];
    assert_eq!(breaches(&[low, high]), NONE);
    let said = "x/src/low.rs:2: `crate::high::High`: low may import nothing, not high (Arrows)";
    assert_eq!(breaches(&[("low.rs", UP), high]), [said]);
    let other = "x/src:\n  low ->\n  high -> low\n  third ->\n  lib -> *\n";
    let mut sources = repository(other, &[low, ("high.rs", "use crate::third::T;")]);
    sources.push(source("x/src/third.rs", "pub struct T;"));
    sources[1].text.push_str("mod third;");
    let said = "x/src/high.rs:1: `crate::third::T`: high may import low, not third (Arrows)";
    assert_eq!(judge(&sources), [said]);
}

/// Three files of `low`; `last` decides whether they form a circle.
fn ring(last: &'static str) -> [(&'static str, &'static str); 5] {
    [
        ("low/mod.rs", "mod a; mod b; mod c; pub use a::A; pub use b::B; pub use c::C;"),
        ("low/a.rs", "use super::B;\npub struct A;"),
        ("low/b.rs", "use super::C;\npub struct B;"),
        ("low/c.rs", last),
        ("high.rs", ""),
    ]
}

#[test]
fn three_files_of_a_room_make_a_forbidden_circle_and_two_do_not() {
    assert_eq!(breaches(&ring("use super::B;\npub struct C;")), NONE);
    let found = breaches(&ring("use super::A;\npub struct C;"));
    assert_eq!(found.len(), 3, "{found:?}");
    let said = "x/src/low/a.rs:1: `super::B`: low/a -> low/b is in a circle of 3 files of low, 2 at most (Arrows)";
    assert_eq!(found[0], said);
}

#[test]
fn the_front_page_of_a_room_is_in_a_circle_only_with_what_it_defines_and_uses() {
    let files = |page: &'static str| {
        [
            ("low/mod.rs", page),
            ("low/a.rs", "use super::own;\npub fn a() {}"),
            ("low/b.rs", "use super::own;\npub fn b() {}"),
            ("high.rs", ""),
        ]
    };
    let re_exports = files("mod a; mod b; pub use a::a; pub use b::b; pub fn own() {}");
    assert_eq!(breaches(&re_exports), NONE);
    let calls = files("mod a; mod b; pub use a::a; pub use b::b; pub fn own() { a(); b(); }");
    assert_eq!(breaches(&calls).len(), 4);
}

#[test]
fn folders_of_a_room_make_no_circle_though_their_files_do_not() {
    let files = [
        ("low/mod.rs", "mod a; mod b; mod c;"),
        ("low/a/mod.rs", "pub mod one; pub mod two;"),
        ("low/a/one.rs", "use super::super::b::one::One;"),
        ("low/a/two.rs", "use super::one; pub struct Two;"),
        ("low/b/mod.rs", "pub mod one; pub mod two;"),
        ("low/b/one.rs", "pub struct One;"),
        ("low/b/two.rs", "use crate::low::a::two::Two;"),
        ("low/c.rs", "use super::a::one; use super::b::one;"),
        ("high.rs", ""),
    ];
    let is = "low/a/ -> low/b/ is in a circle of 2 folders of low (Arrows)";
    let found = breaches(&files);
    assert_eq!(found[0], format!("x/src/low/a/one.rs:1: `super::super::b::one::One`: {is}"));
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn a_table_that_does_not_fit_is_refused() {
    let files = [("low.rs", ""), ("high.rs", "")];
    let says = |table: &str, text: &str| {
        let found = judge(&repository(table, &files));
        assert!(found.iter().any(|line| line.contains(text)), "{text}: {found:?}");
    };
    says("x/src:\n  low -> high\n  high -> low\n  lib -> *\n", "allows a circle: high, low");
    says("x/src:\n  low -> *\n  high ->\n  lib -> low\n", "allows a circle: lib, low");
    says(
        "x/src:\n  low ->\n  lib -> *\n",
        "x/src/high.rs:1: the table in ARCHITECTURE.md has no room `high`",
    );
    says("x/src:\n  low -> hihg\n  high ->\n  lib -> *\n", "the table has no room `hihg`");
    says(
        "x/src:\n  low ->\n  high ->\n  lib -> *\n  gone ->\n",
        "`gone ->`: no file is in this room",
    );
    says(
        "x/src:\n  low = gone\n  low ->\n  high ->\n  lib -> *\n",
        "`low = gone`: there is no such",
    );
    says("x/src:\n  low -> \n  low ->\n", "ARCHITECTURE.md:6: no line of the table: `low ->`");
    says("x/src:\n  low high\n", "ARCHITECTURE.md:5: no line");
    says("low ->\n", "ARCHITECTURE.md:4: no line");
    let mut sources = repository(ROOMS, &files);
    sources.push(source("seriatim/src/lib.rs", ""));
    let said = "ARCHITECTURE.md: the table lacks `seriatim/src:` (Arrows)";
    assert_eq!(judge(&sources), [said]);
    let without = [source("ARCHITECTURE.md", "# A\n")];
    assert_eq!(judge(&without), ["ARCHITECTURE.md: it has no block that begins with ```arrows"]);
}

#[test]
fn a_room_may_be_a_list_and_a_folder_of_one_may_be_of_another() {
    let table = "x/src:\n  base = high/parts low\n  base ->\n  high -> base\n  lib -> *\n";
    let files = [
        ("low.rs", "use crate::high::parts::P; pub struct Low;"),
        ("high/mod.rs", "pub mod parts; pub mod parts_list; use parts::P;"),
        ("high/parts.rs", "use super::parts_list::Q; pub struct P;"),
        ("high/parts_list.rs", "pub struct Q;"),
    ];
    let said =
        "x/src/high/parts.rs:1: `super::parts_list::Q`: base may import nothing, not high (Arrows)";
    assert_eq!(judge(&repository(table, &files)), [said]);
}

#[test]
fn circles_are_the_nodes_that_reach_each_other() {
    let arrows = ["ab", "bc", "ca", "cd", "de", "ed", "ef", "gg", "ha"];
    let mut graph = Graph::new();
    for arrow in arrows {
        graph.entry(&arrow[..1]).or_default().insert(&arrow[1..]);
    }
    let circles = circles::of(&graph);
    let expected = [["a", "b", "c"].as_slice(), &["d", "e"]];
    let expected: Vec<BTreeSet<&str>> =
        expected.iter().map(|it| it.iter().copied().collect()).collect();
    assert_eq!(circles, expected);
}
