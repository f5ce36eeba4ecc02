//! The file of the audit log: each line carries the hash of the line before, so that a line that was
//! changed, removed or put in between is noticed.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;

/// The hash before the first line of all.
const BEGINNING: [u8; 32] = [0; 32];
/// Bytes at the end of a file in which its last line is looked for first. A command's arguments may be longer.
const LAST_BYTES: u64 = 64 << 10;
/// The field at the end of a line.
const FIELD: &str = ",\"prev\":\"";

/// What the file beside has behind the name.
const BESIDE: &str = ".last";
/// Bytes of the file beside: the digits of a hash, and the end of the line.
const BESIDE_BYTES: u64 = 65;

/// A file that is appended to. Several processes may share it.
pub(crate) struct Chain {
    file: File,
    /// A file with the hash of the last line. After a rotation, the process that finds the log empty goes on from there.
    beside: PathBuf,
    /// How long the file was when this process wrote last, and the hash of its last line then.
    length: u64,
    last: blake3::Hash,
    /// Whether this process could not write the file beside, so that `last` is newer than what that held then.
    is_behind: bool,
    held: Option<blake3::Hash>,
}

impl Chain {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file =
            OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(BESIDE);
        let last = blake3::Hash::from_bytes(BEGINNING);
        Ok(Self { file, beside: beside.into(), length: 0, last, is_behind: false, held: None })
    }

    /// Appends JSON objects as lines, each with the hash of the line before.
    pub(crate) fn append(&mut self, documents: &[impl AsRef<str>]) -> io::Result<()> {
        // Others that share the file wait; so do they not write between the reading and the writing.
        flock(&self.file, FlockOperation::LockExclusive)?;
        let done = self.locked_append(documents);
        flock(&self.file, FlockOperation::Unlock)?;
        done
    }

    fn locked_append(&mut self, documents: &[impl AsRef<str>]) -> io::Result<()> {
        let found = self.file.metadata()?;
        let length = found.len();
        if length == 0 {
            // The log was rotated: the next line follows its last one, which another process may have written.
            let kept = self.kept();
            if !self.is_behind || kept != self.held {
                self.last = kept.unwrap_or(self.last);
            }
        } else if length != self.length {
            self.last = self.read_last(length)?;
        }
        let (mut lines, mut last) = (String::new(), self.last);
        for document in documents {
            let (document, begins): (&str, usize) = (document.as_ref(), lines.len());
            lines += document.strip_suffix('}').unwrap_or(document);
            lines += &format!("{FIELD}{}\"}}", last.to_hex());
            last = blake3::hash(&lines.as_bytes()[begins..]);
            lines.push('\n');
        }
        self.file.write_all(lines.as_bytes())?;
        (self.last, self.length) = (last, length + lines.len() as u64);
        if found.is_file() {
            // The lines are written: whatever happens to the file beside, they count. Behind by a line, as after a kill
            // here, it does no harm: it is read only if there are no lines.
            let kept = self.keep(&found);
            if let (Err(error), false) = (&kept, self.is_behind) {
                let file = self.beside.display();
                tracing::warn!(%file, %error, "the hash of the audit log's last line cannot be written: after a rotation, `seriatim audit verify` may report a gap");
            }
            self.is_behind = kept.is_err();
            self.held = if self.is_behind { self.kept() } else { None };
        }
        Ok(())
    }

    /// The hash in the file beside; none if it cannot be read.
    fn kept(&self) -> Option<blake3::Hash> {
        let file = self.open_beside(OpenOptions::new().read(true)).ok()?;
        let mut text = Vec::new();
        file.take(BESIDE_BYTES).read_to_end(&mut text).ok()?;
        blake3::Hash::from_hex(text.trim_ascii()).ok()
    }

    /// Writes the hash of the last line into the file beside. All who may write the log may write it too.
    fn keep(&self, log: &Metadata) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = self.open_beside(&mut options)?;
        if file.metadata()?.len() == 0 {
            let _ = fchown(&file, Some(log.uid()), Some(log.gid()));
            let _ = file.set_permissions(log.permissions());
        }
        // All at once and always as long: a kill leaves the one hash or the other.
        file.write_all_at(format!("{}\n", self.last.to_hex()).as_bytes(), 0)
    }

    fn open_beside(&self, options: &mut OpenOptions) -> io::Result<File> {
        // Others may write in the folder: they must not choose what root opens, or keep it waiting.
        let options = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(&self.beside)?;
        let about = file.metadata()?;
        if !about.is_file() || about.nlink() != 1 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(file)
    }

    /// The hash of the last line. One that was torn when its writer was killed is ended first.
    fn read_last(&mut self, length: u64) -> io::Result<blake3::Hash> {
        let (mut end, mut bytes) = (Vec::new(), LAST_BYTES);
        loop {
            end.clear();
            self.file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
            self.file.read_to_end(&mut end)?;
            let is_torn = end.last() != Some(&b'\n');
            let line = end.strip_suffix(b"\n").unwrap_or(&end);
            let begins = line.iter().rposition(|byte| *byte == b'\n').map(|place| place + 1);
            if begins.is_none() && bytes < length {
                bytes *= 4;
                continue;
            }
            if is_torn {
                self.file.write_all(b"\n")?;
            }
            return Ok(blake3::hash(line.get(begins.unwrap_or(0)..).unwrap_or_default()));
        }
    }
}

/// What a file holds, as far as it could be checked.
pub(crate) struct Verified {
    pub(crate) lines: u64,
    /// The hash that the first line names.
    pub(crate) first: Option<String>,
    /// The hash of the last line.
    pub(crate) last: Option<String>,
    /// What is wrong, and in which line, from 1.
    pub(crate) broken: Option<(u64, String)>,
}

#[derive(Deserialize)]
struct Linked {
    prev: String,
}

/// Follows the chain to its end, or to where it breaks. It must begin behind `before`, if that is known.
pub(crate) fn verify(file: impl BufRead, before: Option<String>) -> io::Result<Verified> {
    let mut seen = Verified { lines: 0, first: None, last: before, broken: None };
    for line in file.split(b'\n') {
        let line = line?;
        seen.lines += 1;
        let broken = |what: &str| Some((seen.lines, what.to_owned()));
        let Ok(Linked { prev }) = serde_json::from_slice(&line) else {
            seen.broken = broken("is not a line of an audit log");
            return Ok(seen);
        };
        if seen.last.as_ref().is_some_and(|last| *last != prev) {
            seen.broken = broken(
                "does not follow the line before it: one of the two was changed, or lines between them were removed",
            );
            return Ok(seen);
        }
        seen.first.get_or_insert(prev);
        seen.last = Some(blake3::hash(&line).to_hex().to_string());
    }
    Ok(seen)
}

#[cfg(test)]
#[path = "chain_fuzz.rs"]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(path: &Path) -> Vec<String> {
        std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
    }

    fn breaks_at(lines: &[String]) -> Option<u64> {
        verify(lines.join("\n").as_bytes(), None).unwrap().broken.map(|(line, _)| line)
    }

    #[test]
    fn a_line_that_is_changed_removed_or_added_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        // Two processes share the file.
        let mut chains = [Chain::open(&path).unwrap(), Chain::open(&path).unwrap()];
        for i in 0..6 {
            chains[i % 2].append(&[format!("{{\"n\":{i}}}")]).unwrap();
        }
        let lines = written(&path);
        assert_eq!((lines.len(), breaks_at(&lines)), (6, None));
        let mut changed = lines.clone();
        changed[2] = changed[2].replace("\"n\":2", "\"n\":7");
        assert_eq!(breaks_at(&changed), Some(4));
        let mut removed = lines.clone();
        removed.remove(3);
        assert_eq!(breaks_at(&removed), Some(4));
        let mut added = lines.clone();
        added.insert(3, lines[2].clone());
        assert_eq!(breaks_at(&added), Some(4));
        let mut torn = lines;
        torn[5].truncate(20);
        assert_eq!(breaks_at(&torn), Some(6));
    }

    #[test]
    fn lines_that_are_written_together_follow_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let mut chain = Chain::open(&path).unwrap();
        chain.append(&["{\"n\":0}", "{\"n\":1}", "{\"n\":2}"]).unwrap();
        chain.append(&["{\"n\":3}"]).unwrap();
        Chain::open(&path).unwrap().append(&["{\"n\":4}"]).unwrap();
        let lines = written(&path);
        assert_eq!((lines.len(), breaks_at(&lines)), (5, None));
    }

    #[test]
    fn a_process_that_has_written_nothing_yet_goes_on_behind_a_rotation_too() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("audit"), folder.path().join("audit.1"));
        let append =
            |n: u32| Chain::open(&path).unwrap().append(&[format!("{{\"n\":{n}}}")]).unwrap();
        let read = |path: &Path| std::fs::read(path).unwrap();
        let mut early = Chain::open(&path).unwrap();
        early.append(&["{\"n\":0}"]).unwrap();
        append(1);
        let mut parts = vec![read(&path)];
        // As `copytruncate` does, for one that has written nothing, and for one that has not written the last line.
        std::fs::write(&path, "").unwrap();
        append(2);
        parts.push(read(&path));
        std::fs::write(&path, "").unwrap();
        early.append(&["{\"n\":3}"]).unwrap();
        parts.push(read(&path));
        // As `create` does.
        std::fs::rename(&path, &moved).unwrap();
        append(4);
        parts.push(read(&path));
        let mut last = None;
        for part in &parts {
            let seen = verify(&part[..], last).unwrap();
            assert!(seen.broken.is_none(), "{:?}", seen.broken);
            last = seen.last;
        }
    }

    #[test]
    fn a_hash_beside_that_is_behind_or_broken_or_not_to_be_written_breaks_no_chain() {
        let folder = tempfile::tempdir().unwrap();
        let (path, beside) = (folder.path().join("audit"), folder.path().join("audit.last"));
        let append = || Chain::open(&path).unwrap().append(&["{\"n\":0}"]).unwrap();
        append();
        // Whoever wrote the second line was killed before the hash.
        let behind = std::fs::read(&beside).unwrap();
        append();
        std::fs::write(&beside, behind).unwrap();
        append();
        std::fs::write(&beside, "no hash").unwrap();
        append();
        std::fs::remove_file(&beside).unwrap();
        std::fs::create_dir(&beside).unwrap();
        append();
        let lines = written(&path);
        assert_eq!((lines.len(), breaks_at(&lines)), (5, None));
    }

    #[test]
    fn what_is_no_plain_file_beside_the_log_is_not_followed_or_written_and_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let (path, beside) = (folder.path().join("audit"), folder.path().join("audit.last"));
        let target = folder.path().join("target");
        // Once it is to be written, and once to be read.
        let append_twice = || {
            for _ in 0..2 {
                std::fs::write(&path, "").unwrap();
                Chain::open(&path).unwrap().append(&["{\"n\":0}"]).unwrap();
                assert_eq!(written(&path).len(), 1);
            }
            std::fs::remove_file(&beside).unwrap();
        };
        std::os::unix::fs::symlink(&target, &beside).unwrap();
        append_twice();
        assert!(!target.exists(), "a link is not followed");
        let made = std::process::Command::new("mkfifo").arg(&beside).status().unwrap();
        assert!(made.success());
        append_twice();
        std::fs::write(&target, "").unwrap();
        std::fs::hard_link(&target, &beside).unwrap();
        append_twice();
        assert_eq!(std::fs::read(&target).unwrap(), b"", "it has another name");
    }

    #[test]
    fn a_process_that_cannot_write_the_hash_beside_trusts_its_own_until_another_writes_there() {
        let folder = tempfile::tempdir().unwrap();
        let (path, beside) = (folder.path().join("audit"), folder.path().join("audit.last"));
        let read = || std::fs::read(&path).unwrap();
        let mut chain = Chain::open(&path).unwrap();
        chain.append(&["{\"n\":0}"]).unwrap();
        let old = std::fs::read(&beside).unwrap();
        chain.append(&["{\"n\":1}"]).unwrap();
        // As if it could not write the second hash. No file is closed to root, whom tests may run as.
        std::fs::write(&beside, old).unwrap();
        (chain.is_behind, chain.held) = (true, chain.kept());
        let first = verify(&read()[..], None).unwrap();
        std::fs::write(&path, "").unwrap();
        chain.append(&["{\"n\":2}"]).unwrap();
        assert!(!chain.is_behind, "now it could");
        let second = verify(&read()[..], first.last).unwrap();
        assert!(second.broken.is_none(), "{:?}", second.broken);
        (chain.is_behind, chain.held) = (true, chain.kept());
        Chain::open(&path).unwrap().append(&["{\"n\":3}"]).unwrap();
        let third = verify(&read()[..], None).unwrap();
        std::fs::write(&path, "").unwrap();
        chain.append(&["{\"n\":4}"]).unwrap();
        let fourth = verify(&read()[..], third.last).unwrap();
        assert!(fourth.broken.is_none(), "{:?}", fourth.broken);
    }

    #[test]
    fn who_may_read_the_log_may_read_the_hash_beside() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        Chain::open(&path).unwrap().append(&["{\"n\":0}"]).unwrap();
        let mode = std::fs::metadata(folder.path().join("audit.last")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn a_process_goes_on_behind_a_line_of_any_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        for length in [10, 3 * LAST_BYTES as usize, LAST_BYTES as usize, 10] {
            let document = format!("{{\"n\":\"{}\"}}", "-".repeat(length));
            Chain::open(&path).unwrap().append(&[document]).unwrap();
        }
        assert_eq!(breaks_at(&written(&path)), None);
    }

    #[test]
    fn the_chain_goes_on_behind_a_restart_a_rotation_and_a_torn_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        Chain::open(&path).unwrap().append(&["{\"n\":0}"]).unwrap();
        let mut chain = Chain::open(&path).unwrap();
        chain.append(&["{\"n\":1}"]).unwrap();
        let first = std::fs::read(&path).unwrap();
        let last = verify(&first[..], None).unwrap().last;
        std::fs::write(&path, "").unwrap();
        chain.append(&["{\"n\":2}"]).unwrap();
        let second = verify(&std::fs::read(&path).unwrap()[..], last).unwrap();
        assert!(second.broken.is_none() && second.lines == 1);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"n\":3,").unwrap();
        chain.append(&["{\"n\":4}"]).unwrap();
        let lines = written(&path);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(breaks_at(&lines), Some(2), "the torn line is told");
        assert!(lines[2].contains(&blake3::hash(lines[1].as_bytes()).to_hex().to_string()));
    }
}
