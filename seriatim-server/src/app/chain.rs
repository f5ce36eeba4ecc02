//! The file of the audit log: each line carries the hash of the line before, so that a line that was
//! changed, removed or put in between is noticed.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;

/// The hash before the first line of all.
const BEGINNING: [u8; 32] = [0; 32];
/// Bytes at the end of a file in which its last line is looked for first. A command's arguments may be longer.
const LAST_BYTES: u64 = 64 << 10;
/// The field at the end of a line.
const FIELD: &str = ",\"prev\":\"";

/// A file that is appended to. Several processes may share it.
pub(crate) struct Chain {
    file: File,
    /// How long the file was when this process wrote last, and the hash of its last line then.
    length: u64,
    last: blake3::Hash,
}

impl Chain {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file =
            OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)?;
        Ok(Self { file, length: 0, last: blake3::Hash::from_bytes(BEGINNING) })
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
        let length = self.file.metadata()?.len();
        // A file that was emptied was copied before: what comes now follows its last line.
        if length != self.length && length > 0 {
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
        Ok(())
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
