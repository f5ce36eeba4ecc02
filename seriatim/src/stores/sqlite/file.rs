//! Checks that the open file is still the one at its path.

use std::path::Path;
use std::sync::Arc;

use crate::model::{Error, ErrorKind, Result};

/// The path and identity of the file when it was opened. If that file has been removed or replaced, writes go to an
/// unnamed file: they would be acknowledged, invisible to other processes, and lost when this process ends.
#[derive(Clone, Debug)]
pub(super) struct FileCheck(Option<(Arc<Path>, Identity)>);

/// Device and inode number.
type Identity = (u64, u64);

impl FileCheck {
    /// For the open file at this path. `None`: a database without a file, nothing to check.
    pub(super) fn of(path: Option<&str>) -> Self {
        let path = path.filter(|path| !path.is_empty()).map(Path::new);
        Self(path.and_then(|path| Some((path.into(), identity(path)?))))
    }

    /// Fails if the file is no longer there. It may come back, and then nothing is lost.
    pub(super) fn check(&self) -> Result<()> {
        let Some((path, opened)) = &self.0 else { return Ok(()) };
        let what = match identity(path) {
            Some(found) if found == *opened => return Ok(()),
            Some(_) => "another file has taken its place",
            None => "it was removed or moved away",
        };
        let message = format!(
            "{} is not the database file any more that was opened: {what}; nothing was written: put \
             it back, or start this process again to work on what is there",
            path.display()
        );
        Err(Error::new(ErrorKind::Unavailable, message))
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Other systems do not let an open file be removed.
#[cfg(not(unix))]
fn identity(_: &Path) -> Option<Identity> {
    None
}
