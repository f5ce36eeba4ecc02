//! The style rules.

use super::functions;
use super::source::Source;
use super::sql;

const FUNCTION_LINES_MAX: usize = 80;
const FILE_LINES_MAX: usize = 1_000;
/// Lines of an SQL statement in Rust code.
const SQL_LINES_MAX: usize = 6;

/// What every visitor of the dashboard loads: bytes, and lines of the script.
const ASSETS: [(&str, usize, usize); 2] = [
    ("seriatim-server/assets/app.js", 12 << 10, 300),
    ("seriatim-server/assets/app.css", 14 << 10, usize::MAX),
];

/// Split, so that this file does not break its own rules.
const UNFINISHED: [&str; 4] = [
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("db", "g!"),
    concat!("FIX", "ME"),
];
const MACHINE_ROOTS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/fa", "rm/")];
/// Endpoints of the HTTP API that only look like a machine's directory.
const ENDPOINTS: [&str; 3] = ["claim", "heartbeat", "settle"];
const IGNORED_TEST: &str = concat!("#[ig", "nore");
const SLEEP: &str = concat!("sle", "ep(");
/// Time is virtual there: the tests let it pass by a sleep, which takes no real time.
const VIRTUAL_TIME: &str = "seriatim/src/engine/tests/rig.rs";

/// Finds all breaches of one rule in a file: a line each, with the name of the rule.
pub(super) type Rule = fn(&Source) -> Vec<String>;

/// All rules.
pub(super) const RULES: &[Rule] = &[
    whitespace,
    unfinished,
    machine_path,
    ignored_test,
    sleep_in_test,
    long_function,
    long_file,
    large_asset,
    undocumented_file,
    long_sql,
];

fn whitespace(source: &Source) -> Vec<String> {
    by_line(source, "Whitespace", |line| {
        if line.ends_with(char::is_whitespace) {
            Some("whitespace at the end of the line".to_owned())
        } else {
            let tab = source.is_rust() && line.contains('\t');
            tab.then(|| "a tab; in a string write it as \\t".to_owned())
        }
    })
}

fn unfinished(source: &Source) -> Vec<String> {
    if !source.is_rust() {
        return Vec::new();
    }
    by_line(source, "Unfinished", |line| {
        let word = UNFINISHED.iter().find(|word| line.contains(**word))?;
        Some(format!("`{word}` is for work that is not ready to be merged"))
    })
}

fn machine_path(source: &Source) -> Vec<String> {
    by_line(source, "MachinePath", |line| {
        let root = MACHINE_ROOTS.iter().find(|root| has_absolute_path(line, root))?;
        Some(format!("`{root}…` is a path of one machine"))
    })
}

/// Whether a path starts with `root` here, and it is neither the middle of a path nor an endpoint.
fn has_absolute_path(line: &str, root: &str) -> bool {
    line.match_indices(root).any(|(at, _)| {
        let within = line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.}*~/".contains(c));
        let rest = &line[at + root.len()..];
        !within && !ENDPOINTS.iter().any(|endpoint| rest.starts_with(endpoint))
    })
}

fn ignored_test(source: &Source) -> Vec<String> {
    if !source.is_rust() {
        return Vec::new();
    }
    by_line(source, "IgnoredTest", |line| {
        line.contains(IGNORED_TEST).then(|| "a test that never runs proves nothing".to_owned())
    })
}

fn sleep_in_test(source: &Source) -> Vec<String> {
    if !source.is_test() || source.path == VIRTUAL_TIME {
        return Vec::new();
    }
    by_line(source, "SleepInTest", |line| {
        let code = line.split("//").next().unwrap_or(line);
        code.contains(SLEEP).then(|| "a test awaits a signal, it does not sleep".to_owned())
    })
}

fn long_function(source: &Source) -> Vec<String> {
    if !source.is_rust() {
        return Vec::new();
    }
    let functions = functions::of(&source.text).into_iter();
    let long = functions.filter(|function| function.lines > FUNCTION_LINES_MAX);
    let breaches = long.map(|functions::Function { name, first_line, lines }| {
        let message = format!("`{name}` has {lines} lines, of {FUNCTION_LINES_MAX} at most");
        breach(source, "LongFunction", first_line, &message)
    });
    breaches.collect()
}

fn long_file(source: &Source) -> Vec<String> {
    let size = source.text.lines().count();
    if !source.is_rust() || size <= FILE_LINES_MAX {
        return Vec::new();
    }
    let message = format!("{size} lines, of {FILE_LINES_MAX} at most");
    vec![breach(source, "LongFile", 1, &message)]
}

fn large_asset(source: &Source) -> Vec<String> {
    let Some((_, bytes_max, lines_max)) = ASSETS.iter().find(|(path, ..)| *path == source.path)
    else {
        return Vec::new();
    };
    let (bytes, lines) = (source.text.len(), source.text.lines().count());
    let mut found = Vec::new();
    if bytes > *bytes_max {
        let message = format!("{bytes} bytes, of {bytes_max} at most: visitors load it");
        found.push(breach(source, "LargeAsset", 1, &message));
    }
    if lines > *lines_max {
        let message = format!("{lines} lines, of {lines_max} at most");
        found.push(breach(source, "LargeAsset", 1, &message));
    }
    found
}

fn undocumented_file(source: &Source) -> Vec<String> {
    let libraries = ["seriatim/src/", "seriatim-verify/src/"];
    let applies =
        source.is_rust() && libraries.iter().any(|sources| source.path.starts_with(sources));
    if !applies || source.text.starts_with("//!") {
        return Vec::new();
    }
    let message = "begin with a line of `//!` that says what is in here";
    vec![breach(source, "UndocumentedFile", 1, message)]
}

fn long_sql(source: &Source) -> Vec<String> {
    if !source.is_rust() || source.is_test() {
        return Vec::new();
    }
    let statements = sql::of(&source.text).into_iter();
    let long = statements.filter(|statement| statement.lines > SQL_LINES_MAX);
    let breaches = long.map(|sql::Statement { first_line, lines }| {
        let message =
            format!("SQL of {lines} lines: {SQL_LINES_MAX} at most, longer ones in a .sql file");
        breach(source, "LongSql", first_line, &message)
    });
    breaches.collect()
}

fn by_line(source: &Source, rule: &str, message: impl Fn(&str) -> Option<String>) -> Vec<String> {
    source
        .lines()
        .filter_map(|(number, line)| Some(breach(source, rule, number, &message(line)?)))
        .collect()
}

fn breach(source: &Source, rule: &str, line: usize, message: &str) -> String {
    format!("{}:{line}: {message} ({rule})", source.path)
}
