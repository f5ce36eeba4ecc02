//! The directory of one server.

use std::env;
use std::fs::{self, DirEntry, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::account::Account;

const PREFIX: &str = "seriatim-testkit-";

/// A temporary directory that is removed on drop, or by a later [`Directory::create`] if its owner was killed before.
///
/// A lock on the file `lock` inside shows whether the owner is alive: the kernel releases it with the process. A
/// process id in a file could belong to another process by then.
#[derive(Debug)]
pub(crate) struct Directory {
    temporary: TempDir,
    _lock: File,
}

impl Directory {
    pub(crate) fn create() -> Result<Self, String> {
        Self::create_in(&env::temp_dir())
    }

    /// With [`Directory::data`] for `account`, or for this process.
    pub(crate) fn with_data(account: Option<Account>) -> Result<Self, String> {
        let directory = Self::create()?;
        create_for(account, &directory.data())?;
        Ok(directory)
    }

    fn create_in(parent: &Path) -> Result<Self, String> {
        sweep(parent);
        let describe = |e| format!("cannot create a directory below {}: {e}", parent.display());
        let temporary = tempfile::Builder::new()
            .prefix(PREFIX)
            // The server may run as another user, who must be able to reach its data.
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(parent)
            .map_err(describe)?;
        let lock = lock(temporary.path()).map_err(describe)?;
        Ok(Self { temporary, _lock: lock })
    }

    /// The directory of the server's own files.
    pub(crate) fn data(&self) -> PathBuf {
        self.temporary.path().join("data")
    }

    pub(crate) fn path(&self) -> &Path {
        self.temporary.path()
    }

    /// The file of the server's standard output and error.
    pub(crate) fn log(&self) -> PathBuf {
        self.temporary.path().join("server.log")
    }
}

/// Creates a directory that only `account`, or this process, can use.
pub(crate) fn create_for(account: Option<Account>, path: &Path) -> Result<(), String> {
    let describe = |e| format!("cannot create {}: {e}", path.display());
    fs::create_dir(path).and_then(|()| keep_for(account, path, 0o700)).map_err(describe)
}

/// Writes a file that only `account`, or this process, can read.
pub(crate) fn write_for(account: Option<Account>, path: &Path, text: &str) -> Result<(), String> {
    let describe = |e| format!("cannot write {}: {e}", path.display());
    fs::write(path, text).and_then(|()| keep_for(account, path, 0o600)).map_err(describe)
}

fn keep_for(account: Option<Account>, path: &Path, mode: u32) -> std::io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    match account {
        Some(Account { uid, gid }) => std::os::unix::fs::chown(path, Some(uid), Some(gid)),
        None => Ok(()),
    }
}

/// Locks the file under another name first, so that `lock` never exists without its owner.
fn lock(directory: &Path) -> std::io::Result<File> {
    let unseen = directory.join("lock.new");
    let file = File::create(&unseen)?;
    file.lock()?;
    fs::rename(unseen, directory.join("lock"))?;
    Ok(file)
}

/// Removes directories of killed processes. A directory that cannot be removed belongs to another user.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if is_abandoned(&entry).unwrap_or(false) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(entry: &DirEntry) -> std::io::Result<bool> {
    let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
        && entry.file_type()?.is_dir()
        && entry.metadata()?.uid() == rustix::process::geteuid().as_raw();
    Ok(ours && File::open(entry.path().join("lock"))?.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::{Directory, PREFIX};
    use std::fs;

    #[test]
    fn an_abandoned_directory_is_swept_and_a_living_one_is_kept() {
        let parent = tempfile::tempdir().unwrap();
        let living = Directory::create_in(parent.path()).unwrap();
        let abandoned = parent.path().join(format!("{PREFIX}abandoned"));
        let unlocked = parent.path().join(format!("{PREFIX}being-created"));
        for directory in [&abandoned, &unlocked] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(abandoned.join("lock"), "").unwrap();

        let next = Directory::create_in(parent.path()).unwrap();

        assert!(living.temporary.path().exists());
        assert!(next.temporary.path().exists());
        assert!(unlocked.exists());
        assert!(!abandoned.exists());
    }
}
