//! `cargo xtask book`: README.md and the pages that its table names, as a book with search, by mdBook.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::files::{self, copy, write};
use crate::links::{is_page, linked, links};
use crate::step;

const INSTALL: &str = "the book needs mdBook: cargo install --locked mdbook";
const DECISIONS: &str = "docs/decisions/";
/// Pages show what is in these folders.
const PICTURES: [&str; 2] = ["docs/charts/", "docs/images/"];
const SETTINGS: &str = r#"[book]
title = "Seriatim"
language = "en"
[output.html]
git-repository-url = "https://github.com/seriatim/seriatim"
default-theme = "light"
preferred-dark-theme = "navy"
no-section-label = true
[output.html.search]
limit-results = 20
"#;

/// An entry of the table of contents: a page, or without a path the title of those below it.
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
    let pages = chapters.iter().map(|chapter| chapter.path.as_str());
    let pages: BTreeSet<&str> = pages.filter(|path| !path.is_empty()).collect();
    let absent: Vec<&str> = files
        .iter()
        .map(String::as_str)
        .filter(|path| path.starts_with("docs/") && is_page(path) && !pages.contains(path))
        .collect();
    if !absent.is_empty() {
        return Err(format!("not in the table of README.md: {}", absent.join(", ")));
    }
    for path in &pages {
        let is_inside = |file: &str| pages.contains(file) || is_picture(file);
        let page = linked(&read(root, path)?, path, "main", is_inside);
        // mdBook makes `index.html` of README.md, but not of a link with an anchor.
        write(&src.join(path), &page.replace("../README.md#", "../index.md#"))?;
    }
    for path in files.iter().filter(|path| is_picture(path)) {
        copy(&root.join(path), &src.join(path))?;
    }
    write(&src.join("SUMMARY.md"), &summary(&chapters))?;
    Ok(pages.len())
}

fn is_picture(path: &str) -> bool {
    PICTURES.iter().any(|folder| path.starts_with(folder))
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
                chapters.push(chapter(0, "Decisions", ""));
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

fn title(page: &str) -> Option<&str> {
    page.lines().find_map(|line| line.strip_prefix("# "))
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_the_documentation_is_a_chapter_with_its_pictures() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let src = std::env::temp_dir().join(format!("seriatim-book-{}", std::process::id()));
        let pages = write_source(root, &src);
        let read = |path: &str| fs::read_to_string(src.join(path)).unwrap_or_default();
        let (summary, performance) = (read("SUMMARY.md"), read("docs/performance.md"));
        let pictures: Vec<&str> = links(&performance)
            .map(|(_, target)| target)
            .filter(|target| Path::new(target).extension().is_some_and(|end| end == "svg"))
            .collect();
        let lost: Vec<&&str> =
            pictures.iter().filter(|path| !src.join("docs").join(path).exists()).collect();
        assert!(pictures.len() > 3 && lost.is_empty(), "pictures of a page: {lost:?}");
        let _ = fs::remove_dir_all(&src);
        assert!(pages.is_ok_and(|pages| pages > 20), "{summary}");
        assert!(summary.contains("](docs/cli.md)"), "{summary}");
    }
}
