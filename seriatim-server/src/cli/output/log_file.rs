//! A log in a file of limited size: when it is full, it becomes `FILE.1`, and the older ones move up by one.
//!
//! Not a crate's: those that rotate by time limit no bytes, and what they delete is whatever else in the folder has a
//! similar name.

use std::fs::{File, OpenOptions, rename};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::base::lock::lock;

/// Lines name keys and people: as the database and the audit log, they are for its owner alone.
const MODE: u32 = 0o600;

pub(super) struct LogFile {
    path: PathBuf,
    bytes_max: u64,
    /// Full files that are kept.
    keep: u32,
    open: Mutex<Open>,
}

struct Open {
    file: File,
    bytes: u64,
}

impl LogFile {
    pub(super) fn open(path: &Path, bytes_max: u64, keep: u32) -> io::Result<Self> {
        let open = Mutex::new(Open::append(path)?);
        Ok(Self { path: path.to_owned(), bytes_max, keep, open })
    }

    pub(super) fn write(&self, line: &[u8]) -> io::Result<()> {
        let mut open = lock(&self.open);
        let length = line.len() as u64;
        if open.bytes > 0 && open.bytes + length > self.bytes_max {
            self.move_up()?;
            *open = Open::append(&self.path)?;
        }
        open.file.write_all(line)?;
        open.bytes += length;
        Ok(())
    }

    /// The last of the kept files is overwritten, unless there is room before it: a move whose new file could then not be
    /// opened left some, and must not push out the older ones when it is tried again at the next line.
    fn move_up(&self) -> io::Result<()> {
        let is_free = |number: &u32| self.name(*number).symlink_metadata().is_err();
        let room = (0..self.keep).find(is_free).unwrap_or(self.keep);
        (0..room).rev().try_for_each(|number| rename(self.name(number), self.name(number + 1)))
    }

    fn name(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        name.into()
    }
}

impl Open {
    fn append(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(MODE).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn e6_a_full_log_moves_up_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seriatim.log");
        fs::write(folder.path().join("seriatim-audit.log"), "another").unwrap();
        let log = LogFile::open(&path, 10, 2).unwrap();
        for line in ["one\n", "two\n", "three\n", "a line that is longer\n", "five\n"] {
            log.write(line.as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).ok();
        assert_eq!(read("seriatim.log").unwrap(), "five\n");
        assert_eq!(read("seriatim.log.1").unwrap(), "a line that is longer\n");
        assert_eq!(read("seriatim.log.2").unwrap(), "three\n");
        assert_eq!(
            (read("seriatim.log.3"), read("seriatim-audit.log")),
            (None, Some("another".into()))
        );
        let mode =
            |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(["seriatim.log", "seriatim.log.1"].map(|name| mode(name) & 0o777), [0o600; 2]);
        // It goes on where the last process ended.
        let log = LogFile::open(&path, 10, 2).unwrap();
        log.write(b"six\n").unwrap();
        log.write(b"seven\n").unwrap();
        assert_eq!(read("seriatim.log.1").unwrap(), "five\nsix\n");
    }

    #[test]
    fn e6_a_log_that_cannot_be_opened_anew_loses_none_of_its_older_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seriatim.log");
        let log = LogFile::open(&path, 10, 3).unwrap();
        for line in ["line one\n", "line two\n", "line three\n"] {
            log.write(line.as_bytes()).unwrap();
        }
        // As where too many files are open: at each line it moves up, and no more.
        for _ in 0..9 {
            log.move_up().unwrap();
        }
        log.write(b"line four\n").unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let names = ["seriatim.log", "seriatim.log.1", "seriatim.log.2", "seriatim.log.3"];
        assert_eq!(names.map(read), ["line four\n", "line three\n", "line two\n", "line one\n"]);
    }
}
