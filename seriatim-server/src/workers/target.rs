//! Where a copy on another server goes to, as a payload says it.

use std::path::{Component, Path};

use super::files::Trouble;

/// What rsync's other side may read as a pattern of names.
const PATTERN: [char; 5] = ['*', '?', '[', ']', '\\'];

/// The name of a server and a folder below its own. None if the text does not begin with a known name and a colon.
pub(super) fn on_server(
    target: &Path,
    is_known: impl Fn(&str) -> bool,
) -> Option<Result<(&str, &str), Trouble>> {
    let (name, below) = target.to_str()?.split_once(':').filter(|(name, _)| is_known(name))?;
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let is_odd = |letter: char| letter.is_control() || PATTERN.contains(&letter);
    if Path::new(below).components().all(is_plain) && !below.contains(is_odd) {
        return Some(Ok((name, below)));
    }
    Some(Err(Trouble::Bury(format!(
        "{}: write {name}:FOLDER, without dots and none of * ? [ ] \\",
        target.display()
    ))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_known_server_and_a_plain_folder() {
        let folder = |target| {
            let read = on_server(Path::new(target), |name| name == "archive");
            read.map(|read| read.map(|(_, below)| below.to_owned()).ok())
        };
        assert_eq!(folder("archive:2026/11"), Some(Some("2026/11".into())));
        assert_eq!(folder("archive:"), Some(Some(String::new())));
        for target in [
            "archive:/etc",
            "archive:../x",
            "archive:a/../../x",
            "archive:a\nb",
            "archive:w*",
            "archive:a[1]",
        ] {
            assert_eq!(folder(target), Some(None), "{target}");
        }
        assert_eq!(folder("other:x"), None);
        assert_eq!(folder("/mnt/archive"), None);
    }
}
