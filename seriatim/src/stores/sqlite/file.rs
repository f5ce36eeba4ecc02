//! Whether the open file is still the one that others find under its name.

use std::path::Path;
use std::sync::Arc;

use crate::model::error::{Error, ErrorKind, Result};

/// Where the file lay when it was opened. What is written to one that was removed or replaced since goes
/// to a file without a name: it would be acknowledged, seen by no other process, and end with this one.
#[derive(Clone, Debug)]
pub(super) struct FileCheck(Option<(Arc<Path>, Identity)>);

/// The device and the number of the file there.
type Identity = (u64, u64);

impl FileCheck {
    /// For the open file at this path; for a database without one (`None`) there is nothing to check.
    pub(super) fn of(path: Option<&str>) -> Self {
        let path = path.filter(|path| !path.is_empty()).map(Path::new);
        Self(path.and_then(|path| Some((path.into(), identity(path)?))))
    }

    /// Fails when it is there no more. It may come back, and then nothing is lost.
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

/// Elsewhere an open file cannot be removed.
#[cfg(not(unix))]
fn identity(_: &Path) -> Option<Identity> {
    None
}
