//! Copies of a file on other servers, by the program rsync: it goes on where it broke off, and compares checksums.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use seriatim::Context;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::files::Trouble;
use super::{launch, on_file};
use crate::config::Servers;

/// The file that rsync gets as its stdin.
const SOURCE: &str = "/proc/self/fd/0";
/// Where the other side keeps what it has of a file, beside the copy.
const PARTS: &str = "--partial-dir=.seriatim-part";
/// After this many seconds of silence a connection counts as broken.
const TIMEOUT: &str = "--timeout=60";
const HINT: &str = ": install it, or set `rsync`";
/// How the names of folders begin in which files are named.
const FOLDERS: &str = "seriatim-rsync-";
/// Until then a new folder is locked by who made it.
const LOCKED_WITHIN: Duration = Duration::from_secs(60);

/// A folder of a server that the worker knows.
pub(super) struct Remote<'a> {
    servers: &'a Servers,
    /// As rsync takes it, without a slash at its end.
    folder: String,
}

impl<'a> Remote<'a> {
    pub(super) fn new(servers: &'a Servers, base: &str, below: &str) -> Self {
        let folder = format!("{}/{below}", base.trim_end_matches('/'));
        Self { servers, folder: folder.trim_end_matches('/').to_owned() }
    }

    /// Copies the file there; `told` hears the percentage.
    pub(super) async fn send(
        &self,
        (file, path): (&File, &Path),
        name: &Path,
        context: &Context,
        told: impl FnMut(f64),
    ) -> Result<(), Trouble> {
        let Servers { program, environment, .. } = self.servers;
        let named = Named::new(name).map_err(|error| Trouble::at(name, error))?;
        let source = named.path(name);
        let (rsync, options) =
            program.split_first().map_or(("rsync", &[][..]), |(first, rest)| (first, rest));
        let mut command = launch::command(rsync, environment);
        command.args(options);
        // By checksum: an equal copy is left alone, whatever its time.
        command.args(["--checksum", "--copy-links", "--perms", "--chmod=u-s,g-s,o-t", "--fsync"]);
        command.args([PARTS, TIMEOUT, "--protect-args", "--info=progress2", "--no-human-readable"]);
        // The dot: a folder that is missing is not made.
        command.arg("--").arg(&source).arg(format!("{}/.", self.folder));
        let hear = async move |stdout| percentages(stdout, told).await;
        let sent = on_file::run(command, (file, path), context, HINT, hear).await;
        sent.map_err(|trouble| match trouble {
            Trouble::Retry(error) => {
                let error = error.replace(&*source.to_string_lossy(), &path.display().to_string());
                Trouble::Retry(format!("{}: {error}", self.folder))
            }
            other => other,
        })
    }
}

/// A link of the file's name to it, in a folder of its own, for as long as it is sent. To a server a name would be a pattern,
/// and a folder of that name would take the file.
struct Named {
    folder: PathBuf,
    /// It is locked: no other process takes it for one that was left behind.
    _lock: File,
}

impl Named {
    fn new(name: &Path) -> io::Result<Self> {
        static SWEPT: Once = Once::new();
        let temporary = std::env::temp_dir();
        SWEPT.call_once(|| sweep(&temporary));
        let folder = temporary.join(format!("{FOLDERS}{:032x}", fastrand::u128(..)));
        DirBuilder::new().mode(0o700).create(&folder)?;
        let lock = File::open(&folder)?;
        // Where there are no locks, no folder is taken for one that was left behind.
        let _ = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        let named = Self { folder, _lock: lock };
        symlink(SOURCE, named.path(name))?;
        Ok(named)
    }

    fn path(&self, name: &Path) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Removes the folders that processes left behind which were killed.
fn sweep(temporary: &Path) {
    let Ok(entries) = std::fs::read_dir(temporary) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(FOLDERS);
        if is_ours && is_left(&entry.path()).unwrap_or(false) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a folder is of this user, and no process holds it.
fn is_left(folder: &Path) -> io::Result<bool> {
    let about = folder.symlink_metadata()?;
    let is_old = about.modified()?.elapsed().is_ok_and(|age| age > LOCKED_WITHIN);
    if !is_old || !about.is_dir() || about.uid() != rustix::process::getuid().as_raw() {
        return Ok(false);
    }
    Ok(flock(&File::open(folder)?, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// Reads `… 45% …`, which rsync writes again and again on one line.
async fn percentages(from: impl AsyncRead + Unpin, mut told: impl FnMut(f64)) {
    let mut reader = BufReader::new(from);
    let mut before = 0.0;
    while let Ok(chunk) = reader.fill_buf().await {
        if chunk.is_empty() {
            return;
        }
        let percent = last_percentage(&String::from_utf8_lossy(chunk));
        let read = chunk.len();
        reader.consume(read);
        // A chunk may end within a number: what seems to go back is none.
        if let Some(percent) = percent.filter(|percent| *percent > before) {
            before = percent;
            told(percent);
        }
    }
}

fn last_percentage(text: &str) -> Option<f64> {
    let before = &text[..text.rfind('%')?];
    let start = before.rfind(|letter: char| !letter.is_ascii_digit()).map_or(0, |at| at + 1);
    before[start..].parse().ok().filter(|percent| *percent <= 100.0)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn folders_of_processes_that_were_killed_are_removed_and_no_others() {
        let temporary = tempfile::tempdir().unwrap();
        let names = ["seriatim-rsync-left", "seriatim-rsync-held", "seriatim-rsync-new", "other"];
        let made = names.map(|name| temporary.path().join(name));
        for folder in &made {
            std::fs::create_dir(folder).unwrap();
            symlink(SOURCE, folder.join("film.mp4")).unwrap();
        }
        let old = SystemTime::now() - LOCKED_WITHIN * 2;
        for folder in [&made[0], &made[1], &made[3]] {
            File::open(folder).unwrap().set_modified(old).unwrap();
        }
        let held = File::open(&made[1]).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        sweep(temporary.path());
        assert_eq!(made.map(|folder| folder.exists()), [false, true, true, true]);
    }

    #[test]
    fn the_last_percentage_of_what_was_read_counts() {
        let text = "\r   1000000  20%   95.37MB/s    0:00:00 \r  2500000  50%  1MB/s";
        assert_eq!(last_percentage(text), Some(50.0));
        assert_eq!(last_percentage("nothing"), None);
        assert_eq!(last_percentage("7000%"), None);
    }
}
