//! The files of the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Paths from `root`, sorted: all files that git tracks or would track (including new ones, without ignored ones).
/// Without git, as in an unpacked source archive: all files outside hidden and build directories.
pub(crate) fn list(root: &Path) -> Result<BTreeSet<String>, String> {
    if let Some(files) = from_git(root) {
        return Ok(files);
    }
    let mut files = BTreeSet::new();
    walk(root, root, &mut files).map_err(|e| format!("{}: {e}", root.display()))?;
    Ok(files)
}

/// Writes a file, and the folders that it is in.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), String> {
    make_parent(path)?;
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Copies a file, with its permissions, and makes the folders that the copy is in.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    make_parent(to)?;
    fs::copy(from, to).map(drop).map_err(|e| format!("{}: {e}", from.display()))
}

/// Copies the files of a folder, without the folders in it.
pub(crate) fn copy_files(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", from.display());
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.path().is_file() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Makes a folder, without what it had.
pub(crate) fn new_folder(path: &Path) -> Result<(), String> {
    let _ = fs::remove_dir_all(path);
    fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn make_parent(path: &Path) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// Prints a part of a page, and writes it into the page if `write` is set.
pub(crate) fn show(
    root: &Path,
    page: &str,
    mark: &str,
    part: &str,
    write: bool,
) -> Result<(), String> {
    println!("\n{part}");
    if write { replace_part(root, page, mark, part) } else { Ok(()) }
}

/// Replaces what a page has between the lines `<!-- MARK -->` and `<!-- /MARK -->`.
pub(crate) fn replace_part(root: &Path, page: &str, mark: &str, part: &str) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{page}: {e}");
    let text = fs::read_to_string(root.join(page)).map_err(failed)?;
    let text = replaced(&text, mark, part)
        .ok_or_else(|| format!("{page}: has no <!-- {mark} --> followed by <!-- /{mark} -->"))?;
    fs::write(root.join(page), text).map_err(failed)
}

fn replaced(page: &str, mark: &str, part: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {mark} -->"), format!("<!-- /{mark} -->"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{}\n{end}{after}", part.trim_end()))
}

fn from_git(root: &Path) -> Option<BTreeSet<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    let paths = String::from_utf8(output.stdout).ok()?;
    let files = paths.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    output.status.success().then_some(files)
}

fn walk(root: &Path, directory: &Path, files: &mut BTreeSet<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path: PathBuf = entry.path();
        let name = entry.file_name();
        let hidden = name.to_string_lossy().starts_with('.');
        if entry.file_type()?.is_file() {
            files.extend(path.strip_prefix(root).ok().and_then(Path::to_str).map(str::to_owned));
        } else if entry.file_type()?.is_dir() && !hidden && name != "target" {
            walk(root, &path, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::replaced;

    #[test]
    fn a_part_replaces_the_former_one() {
        let page = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n";
        assert_eq!(replaced(page, "x", "new\n").unwrap(), "a\n<!-- x -->\nnew\n<!-- /x -->\nb\n");
        assert_eq!(replaced("no marks", "x", "new"), None);
    }
}
