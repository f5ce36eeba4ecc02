//! The links of a page.

use std::path::{Component, Path, PathBuf};

/// What does not go along with a page is read there.
const REPOSITORY: &str = "https://github.com/seriatim/seriatim/tree";

/// Whether the file is one of Markdown.
pub(crate) fn is_page(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "md")
}

/// The links of a text, as (text, target).
pub(crate) fn links(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices("](").filter_map(|(at, _)| {
        let before = &text[..at];
        let name = &before[before.rfind('[')? + 1..];
        let (target, _) = text[at + 2..].split_once(')')?;
        Some((name, target))
    })
}

/// The page at `path`, with links to what does not go along turned to this branch or tag of the repository.
pub(crate) fn linked(
    page: &str,
    path: &str,
    tag: &str,
    goes_along: impl Fn(&str) -> bool,
) -> String {
    let mut out = String::new();
    let mut rest = page;
    while let Some(at) = rest.find("](") {
        let (before, after) = rest.split_at(at + 2);
        out.push_str(before);
        let Some((target, behind)) = after.split_once(')') else {
            rest = after;
            break;
        };
        match file_of(target, path).filter(|file| !goes_along(file)) {
            Some(file) => out.push_str(&format!("{REPOSITORY}/{tag}/{file}{}", fragment(target))),
            None => out.push_str(target),
        }
        rest = behind;
        out.push(')');
    }
    out + rest
}

/// The file or folder of the repository to which a link of the page `from` leads, if it leads to one.
fn file_of(target: &str, from: &str) -> Option<String> {
    let file = target.split('#').next().filter(|file| !file.is_empty())?;
    if target.contains("://") || target.starts_with("mailto:") || target.contains(' ') {
        return None;
    }
    Some(resolved(Path::new(from).parent()?, file))
}

/// `#` and what follows it.
fn fragment(target: &str) -> &str {
    target.find('#').map_or("", |at| &target[at..])
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;

    use super::*;
    use crate::files;

    #[test]
    fn links_lead_to_what_goes_along_or_to_the_repository() {
        let along = |path: &str| ["docs/cli.md", "SECURITY.md"].contains(&path);
        let page =
            "[a](cli.md#x) [b](../SECURITY.md) [c](../src/a.rs#L1) [d](https://x.y/z) [e](#here)";
        let expected = format!(
            "[a](cli.md#x) [b](../SECURITY.md) [c]({REPOSITORY}/v1/src/a.rs#L1) [d](https://x.y/z) [e](#here)"
        );
        assert_eq!(linked(page, "docs/cli.md", "v1", along), expected);
    }

    #[test]
    fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let files = files::list(root).unwrap_or_default();
        let pages = files.iter().filter(|path| is_page(path));
        let read = |path: &String| fs::read_to_string(root.join(path)).unwrap_or_default();
        let pages: BTreeMap<String, String> =
            pages.map(|path| (path.clone(), prose(&read(path)))).collect();
        let headings: BTreeMap<&str, BTreeSet<String>> =
            pages.iter().map(|(path, text)| (path.as_str(), anchors(text))).collect();
        let leads = |page: &str, target: &str| {
            let own = target.starts_with('#').then(|| page.to_owned());
            let Some(file) = own.or_else(|| file_of(target, page)) else { return true };
            let anchor = fragment(target).trim_start_matches('#');
            match headings.get(file.as_str()) {
                Some(anchors) => anchor.is_empty() || anchors.contains(anchor),
                None => root.join(file).exists(),
            }
        };
        let lost: Vec<String> = pages
            .iter()
            .flat_map(|(path, text)| links(text).map(move |(_, target)| (path, target)))
            .filter(|(path, target)| !leads(path, target))
            .map(|(path, target)| format!("{path}: {target}"))
            .collect();
        assert!(pages.len() > 80 && lost.is_empty(), "{lost:#?}");
    }

    /// The page without its blocks of code.
    fn prose(page: &str) -> String {
        let parts = page.split("\n```").step_by(2);
        parts.collect::<Vec<_>>().join("\n")
    }

    /// The anchors of the headings, as GitHub makes them.
    fn anchors(page: &str) -> BTreeSet<String> {
        let headings = page.lines().filter(|line| line.starts_with('#'));
        let slug = |heading: &str| {
            let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            text.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
        };
        headings.map(slug).collect()
    }
}
