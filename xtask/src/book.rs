//! `cargo xtask book`: README.md and the pages that its table names, as a book with search, by mdBook.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::files::{self, copy, write};
use crate::step;

const INSTALL: &str = "the book needs mdBook: cargo install --locked mdbook";
/// Files that are no page are read there.
const REPOSITORY: &str = "https://github.com/seriatim/seriatim/tree/main";
const DECISIONS: &str = "docs/decisions/";
const SETTINGS: &str = r#"[book]
title = "Seriatim"
language = "en"
[output.html]
git-repository-url = "https://github.com/seriatim/seriatim"
default-theme = "light"
preferred-dark-theme = "navy"
[output.html.search]
limit-results = 20
"#;

/// A page of the table of contents.
struct Chapter {
    depth: usize,
    title: String,
    path: String,
}

/// Makes the book in `target/book/html`.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let book = root.join("target/book");
    let chapters = write_source(root, &book.join("src"))?;
    write(&book.join("book.toml"), SETTINGS)?;
    let mut build = Command::new("mdbook");
    build.args(["build", "--dest-dir", "html"]).current_dir(&book);
    if Command::new("mdbook").arg("--version").output().is_err() {
        return Err(INSTALL.to_owned());
    }
    step::run("mdbook build", &mut build)?;
    println!("{} pages: {}", chapters, book.join("html/index.html").display());
    Ok(())
}

/// Copies the pages and their pictures; returns the number of pages.
fn write_source(root: &Path, src: &Path) -> Result<usize, String> {
    if src.exists() {
        fs::remove_dir_all(src).map_err(|e| format!("{}: {e}", src.display()))?;
    }
    let files = files::list(root)?;
    let readme = read(root, "README.md")?;
    let chapters = chapters(root, &readme, &files)?;
    let pages: BTreeSet<&str> = chapters.iter().map(|chapter| chapter.path.as_str()).collect();
    let absent: Vec<&str> = files
        .iter()
        .map(String::as_str)
        .filter(|path| path.starts_with("docs/") && is_page(path) && !pages.contains(path))
        .collect();
    if !absent.is_empty() {
        return Err(format!("not in the table of README.md: {}", absent.join(", ")));
    }
    for path in &pages {
        write(&src.join(path), &linked(&read(root, path)?, path, &pages))?;
    }
    for path in files.iter().filter(|path| path.starts_with("docs/images/")) {
        copy(&root.join(path), &src.join(path))?;
    }
    write(&src.join("SUMMARY.md"), &summary(&chapters))?;
    Ok(chapters.len())
}

/// README.md, and what the rows of its table name, each row as a part. A link to a folder stands for its pages.
fn chapters(root: &Path, readme: &str, files: &BTreeSet<String>) -> Result<Vec<Chapter>, String> {
    let chapter = |depth, title: &str, path: &str| Chapter {
        depth,
        title: title.to_owned(),
        path: path.to_owned(),
    };
    let mut chapters = vec![chapter(0, "Seriatim", "README.md")];
    let rows = readme.lines().skip_while(|line| *line != "## Documentation").skip(1);
    for row in rows.take_while(|line| !line.starts_with("## ")).filter(|row| row.starts_with("| "))
    {
        for (text, path) in links(row).filter(|(_, path)| *path != "README.md") {
            if is_page(path) {
                let title = title(&read(root, path)?).unwrap_or(text).to_owned();
                chapters.push(chapter(0, &title, path));
            } else if path == DECISIONS.trim_end_matches('/') {
                let decisions = files.iter().filter(|path| path.starts_with(DECISIONS));
                for path in decisions {
                    let text = read(root, path)?;
                    chapters.push(chapter(1, title(&text).unwrap_or(path), path));
                }
            }
        }
    }
    Ok(chapters)
}

fn summary(chapters: &[Chapter]) -> String {
    let mut text = "# Summary\n\n".to_owned();
    for Chapter { depth, title, path } in chapters {
        let _ = writeln!(text, "{}- [{title}]({path})", "    ".repeat(*depth));
    }
    text
}

fn is_page(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "md")
}

fn title(page: &str) -> Option<&str> {
    page.lines().find_map(|line| line.strip_prefix("# "))
}

/// The links of a text, as (text, target).
fn links(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices("](").filter_map(|(at, _)| {
        let before = &text[..at];
        let name = &before[before.rfind('[')? + 1..];
        let (target, _) = text[at + 2..].split_once(')')?;
        Some((name, target))
    })
}

/// The page, with links to files outside the book turned to the repository.
fn linked(page: &str, path: &str, pages: &BTreeSet<&str>) -> String {
    let mut out = String::new();
    let mut rest = page;
    while let Some(at) = rest.find("](") {
        let (before, after) = rest.split_at(at + 2);
        out.push_str(before);
        let Some((target, behind)) = after.split_once(')') else {
            rest = after;
            break;
        };
        out.push_str(&moved(target, path, pages).unwrap_or_else(|| target.to_owned()));
        rest = behind;
        out.push(')');
    }
    out + rest
}

/// The address of a file that is no page, in the repository.
fn moved(target: &str, from: &str, pages: &BTreeSet<&str>) -> Option<String> {
    let file = target.split('#').next().filter(|file| !file.is_empty())?;
    if target.contains("://") || target.starts_with("mailto:") || target.contains(' ') {
        return None;
    }
    let path = resolved(Path::new(from).parent()?, file);
    let is_inside = pages.contains(path.as_str()) || path.starts_with("docs/images/");
    (!is_inside).then(|| format!("{REPOSITORY}/{path}"))
}

fn resolved(folder: &Path, file: &str) -> String {
    let mut path = PathBuf::new();
    for part in folder.join(file).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path.display().to_string()
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_within_the_book_or_lead_to_the_repository() {
        let pages = BTreeSet::from(["docs/cli.md", "SECURITY.md"]);
        let page = "[a](cli.md#x) [b](../SECURITY.md) [c](../deploy) [d](https://x.y/z) [e](#here)";
        let expected = format!(
            "[a](cli.md#x) [b](../SECURITY.md) [c]({REPOSITORY}/deploy) [d](https://x.y/z) [e](#here)"
        );
        assert_eq!(linked(page, "docs/cli.md", &pages), expected);
    }

    #[test]
    fn every_page_of_the_documentation_is_a_chapter() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let src = std::env::temp_dir().join(format!("seriatim-book-{}", std::process::id()));
        let pages = write_source(root, &src);
        let summary = fs::read_to_string(src.join("SUMMARY.md")).unwrap_or_default();
        let _ = fs::remove_dir_all(&src);
        assert!(pages.is_ok_and(|pages| pages > 20), "{summary}");
        assert!(summary.contains("](docs/cli.md)"), "{summary}");
    }
}
