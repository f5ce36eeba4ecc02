//! The imports that are read from the files of a small crate, and their targets.

use crate::tidy::tokens;
use crate::tidy::tree::{Files, Tree};

/// The imports as `from -> home`, with ` by door` if another file re-exports it; a facade has a `!`.
fn imports(files: &[(&str, &str)]) -> Vec<String> {
    let files: Files = files.iter().copied().collect();
    let tree = Tree::read(&files);
    assert_eq!(tree.troubles, Vec::<String>::new());
    let imports = tree.imports().into_iter().map(|import| {
        let by =
            if import.door == import.home { String::new() } else { format!(" by {}", import.door) };
        let facade = if import.facade { "!" } else { "" };
        format!("{}:{} -> {}{by}{facade}", import.from, import.line, import.home)
    });
    let mut imports: Vec<String> = imports.collect();
    imports.dedup();
    imports
}

/// Four rooms, and `text` as a file in one of them.
fn of(text: &str) -> Vec<String> {
    let imports = imports(&[
        ("lib.rs", "mod a; mod b; mod c; mod d; pub use b::Item;"),
        ("a/mod.rs", "mod x; use std::fmt::Debug; pub(crate) fn own() {}"),
        ("a/x.rs", text),
        ("b/mod.rs", "mod inner; pub use inner::Item; pub(crate) struct Own;"),
        ("b/inner.rs", "pub struct Item; pub struct Other;"),
        ("c.rs", "pub mod deep; pub fn call() {}"),
        ("c/deep.rs", "pub const MAX: u8 = 1;"),
        ("d.rs", "pub struct D;"),
    ]);
    imports.into_iter().filter_map(|line| Some(line.strip_prefix("a/x:")?.to_owned())).collect()
}

#[test]
fn an_import_leads_to_the_file_that_has_the_item() {
    assert_eq!(of("use crate::d::D;"), ["1 -> d"]);
    assert_eq!(of("\nuse crate::c::deep;"), ["2 -> c/deep"]);
    assert_eq!(of("use crate::c::deep::MAX;"), ["1 -> c/deep"]);
    assert_eq!(of("use super::own;"), ["1 -> a/mod"]);
    assert_eq!(of("use super::super::d::D;"), ["1 -> d"]);
    assert_eq!(
        of("use self::inside::D; mod inside { pub use crate::d::D; }"),
        ["1 -> d by a/x", "1 -> d!"]
    );
}

#[test]
fn groups_and_renamings_are_taken_apart() {
    let text = "use crate::{\n    c::{self, deep::{MAX as M}},\n    d::D as Dee,\n};";
    assert_eq!(of(text), ["2 -> c", "2 -> c/deep", "3 -> d"]);
    let text = "use crate::{c::{self}};\nfn f() { c::deep::MAX; }";
    assert_eq!(of(text), ["1 -> c", "2 -> c/deep"]);
    assert_eq!(of("use crate::{d::{D},\nc::call};"), ["1 -> d", "2 -> c"]);
}

#[test]
fn a_folder_hands_on_what_it_re_exports_and_the_root_only_lists() {
    assert_eq!(of("use crate::b::Item;"), ["1 -> b/inner by b/mod"]);
    assert_eq!(of("use crate::Item;"), ["1 -> b/inner by b/mod"]);
    assert_eq!(of("use crate::b::Own;"), ["1 -> b/mod"]);
    assert_eq!(of("use crate::b::inner::Other;"), ["1 -> b/inner"]);
}

#[test]
fn re_exports_are_told_from_what_a_file_uses() {
    assert_eq!(of("pub(crate) use crate::d::D;"), ["1 -> d!"]);
    assert_eq!(of("pub use crate::d::D; fn f(_: D) {}"), ["1 -> d"]);
    assert_eq!(of("use crate::d::D;"), ["1 -> d"]);
}

#[test]
fn a_glob_brings_the_names_that_are_used() {
    assert_eq!(of("use crate::b::*; fn f(_: Item) {}"), ["1 -> b/inner by b/mod"]);
    assert_eq!(of("use crate::b::*; fn f(_: Own) {}"), ["1 -> b/mod"]);
    assert_eq!(of("use crate::b::*; fn f(_: Elsewhere) {}"), Vec::<String>::new());
    assert_eq!(of("use crate::b::*;\nuse crate::d::D as Own;\nfn f(_: Own) {}"), ["2 -> d"]);
    assert_eq!(of("pub use crate::d::*;"), ["1 -> d!"]);
    let crate_of_globs = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::C;"),
        ("b.rs", "pub use crate::c::*;"),
        ("c.rs", "pub struct C;"),
    ];
    assert_eq!(imports(&crate_of_globs), ["a:1 -> c by b", "b:1 -> c!"]);
}

#[test]
fn paths_in_the_code_are_imports_too() {
    assert_eq!(of("fn f() {\n    crate::c::call();\n}"), ["2 -> c"]);
    assert_eq!(of("fn f(_: super::super::d::D) {}"), ["1 -> d"]);
    assert_eq!(of("#[serde(with = \"crate::c::deep\")]\nstruct S;"), ["1 -> c/deep"]);
    assert_eq!(of("macro_rules! m { () => { $crate::c::call() } }"), ["1 -> c"]);
    // A path through an imported name counts for the file that has the item, not only for the folder.
    assert_eq!(of("use crate::c;\nfn f() { c::deep::MAX; }"), ["1 -> c", "2 -> c/deep"]);
    assert_eq!(of("use crate::c;\nfn f() { c::call(); }"), ["1 -> c", "2 -> c"]);
}

#[test]
fn what_only_looks_like_a_path_is_none() {
    for text in [
        "// use crate::d::D;",
        "/* /* */ use crate::d::D; */",
        "/// [`crate::d::D`]\nfn f() {}",
        "const S: &str = \"use crate::d::D;\";",
        "const S: &str = r#\"\"; use crate::d::D;\"#;",
        "pub(in crate::a) struct S;",
        "use std::fmt; use d::D; use super::Debug;",
        "fn f() { other::crate_::d(); }",
    ] {
        assert_eq!(of(text), Vec::<String>::new(), "{text}");
    }
    assert_eq!(imports(&[("lib.rs", "mod b; use ::b::B;"), ("b.rs", "pub struct B;")]), [""; 0]);
    // Imports of an inline module are not visible outside it.
    assert_eq!(of("mod inside { use crate::c; }\nfn f() { c::call(); }"), ["1 -> c"]);
    // The code after it is read again.
    for text in ["'\"'", "'\\''", "b'\"'", "\"\\\"\"", "br##\"\"#\"##", "'a: loop {}", "r#type"] {
        assert_eq!(of(&format!("fn f() {{ {text}; crate::d::D; }}")), ["1 -> d"], "{text}");
    }
}

#[test]
fn what_is_for_tests_only_is_not_read() {
    for text in [
        "#[cfg(test)]\nuse crate::d::D;",
        "#[cfg(test)]\nmod tests { use crate::d::D; }",
        "#[cfg(test)]\nmod tests;",
        "#[cfg(all(test, unix))]\n#[allow(unused)]\npub(crate) use crate::{d::D, c::call};",
        "#[cfg(test)]\n#[allow(unused)]\nfn f<A, B>(_: crate::d::D) {}",
        "#[cfg(any(test, all(unix, test)))]\nfn f<A, B>(_: A) -> B { crate::c::call() }",
        "struct S { #[cfg(test)] field: crate::d::D }",
    ] {
        assert_eq!(of(text), Vec::<String>::new(), "{text}");
    }
    for text in [
        "#[cfg(not(test))]\nuse crate::d::D;",
        "#[cfg(any(test, unix))]\nuse crate::d::D;",
        "#[cfg(test)]\nuse crate::{c::{call}};\nuse crate::d::D;",
        "#[cfg(test)]\nmod tests { use super::*; }\nuse crate::d::D;",
        "struct S {\n#[cfg(test)] a: u8,\nb: crate::d::D }",
        "struct S { a: u8, #[cfg(test)] b: u8 }\n\nuse crate::d::D;",
    ] {
        let last = text.lines().count();
        assert_eq!(of(text), [format!("{last} -> d")], "{text}");
    }
}

#[test]
fn modules_are_found_where_the_compiler_finds_them() {
    let files = [
        ("lib.rs", "mod a; mod b { mod c; }"),
        (
            "a/mod.rs",
            "#[cfg(unix)]\n#[path = \"one.rs\"]\nmod it;\n#[cfg(windows)]\n#[path = \"two/mod.rs\"]\nmod it;\nuse it::X;",
        ),
        ("a/one.rs", "pub struct X;"),
        ("a/two/mod.rs", "mod below; pub use below::X;"),
        ("a/two/below.rs", "pub struct X;"),
        ("b/c.rs", "use super::super::a::it::X; use super::d;"),
    ];
    let expected = [
        "a/mod:7 -> a/one",
        "a/mod:7 -> a/two/below by a/two/mod",
        "a/two/mod:1 -> a/two/below!",
        "b/c:1 -> a/one",
        "b/c:1 -> a/two/below by a/two/mod",
        "b/c:1 -> lib",
    ];
    assert_eq!(imports(&files), expected);
    let tree = Tree::read(&[("lib.rs", "\nmod gone;")].into_iter().collect());
    assert_eq!(tree.troubles, ["lib.rs:2: `mod gone` has no file"]);
}

#[test]
fn tokens_have_the_lines_on_which_they_begin() {
    let text = "a /* \n */ \"b\n\" 'c' \"d\"\ne::f";
    let tokens: Vec<(&str, usize)> = tokens::of(text).iter().map(|it| (it.text, it.line)).collect();
    let expected =
        [("a", 1), ("\"b\n\"", 2), ("'c'", 3), ("\"d\"", 3), ("e", 4), ("::", 4), ("f", 4)];
    assert_eq!(tokens, expected);
}
