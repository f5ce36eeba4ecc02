//! The ready-made `replicate` worker: copies a file into several folders, and makes sure of it.

use std::fs::{File, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files::{FileJob, FileWorker, PIECE_BYTES, Progress, StopSign, Trouble, sha256};
use super::roots::{Folder, Input};
use crate::config::{Replicate, Roots};

/// Most targets of one job.
const TARGETS_MAX: usize = 64;
/// Digits of the checksum in the name of a part: another content gets another part.
const PART_DIGITS: usize = 16;
/// What a copy keeps of the rights of its source. It has another owner, as whom nothing is to run.
const RIGHTS: u32 = 0o777;

/// The payload of a job.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    source: PathBuf,
    targets: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Told {
    percent: f64,
    done_bytes: u64,
    total_bytes: u64,
}

impl FileWorker for Replicate {
    type Payload = Order;

    async fn run(&self, job: FileJob<Order>) -> Result<(), Trouble> {
        let stop = StopSign::default();
        let _dropped = stop.on_drop();
        let (order, roots, progress) = (job.payload.clone(), self.roots.clone(), job.progress());
        let sign = stop.clone();
        let mut copying =
            tokio::task::spawn_blocking(move || Copying::new(order, roots, progress, sign)?.run());
        let ended = tokio::select! {
            ended = &mut copying => ended,
            () = job.context.cancelled() => {
                stop.set();
                // Waited for: it must not write on beside the next holder of the key.
                copying.await
            }
        };
        ended.map_err(|error| Trouble::Retry(format!("the copy failed: {error}")))?
    }
}

/// A job at work.
struct Copying {
    source: Input,
    name: PathBuf,
    targets: Vec<PathBuf>,
    roots: Roots,
    bytes: u64,
    progress: Progress,
    done_bytes: u64,
    total_bytes: u64,
    stop: StopSign,
}

impl Copying {
    fn new(
        order: Order,
        roots: Roots,
        progress: Progress,
        stop: StopSign,
    ) -> Result<Self, Trouble> {
        let targets = order.targets;
        if targets.is_empty() || targets.len() > TARGETS_MAX {
            let count = targets.len();
            return Err(Trouble::Bury(format!("targets: {count}; from 1 to {TARGETS_MAX}")));
        }
        let source = roots.open(&order.source)?;
        let name = order.source.file_name().map(PathBuf::from).ok_or_else(|| {
            Trouble::Bury(format!("{} does not name a file", order.source.display()))
        })?;
        let about = source.file.metadata().map_err(|error| Trouble::at(&source.path, error))?;
        let bytes = about.len();
        // Each target is written and read again.
        let total_bytes = bytes * (1 + 2 * targets.len() as u64);
        Ok(Self { source, name, targets, roots, bytes, progress, done_bytes: 0, total_bytes, stop })
    }

    /// A target that fails does not keep the others from their copy.
    fn run(mut self) -> Result<(), Trouble> {
        let (source, path) = self.source()?;
        let checksum = sha256(&source, &path, |bytes| self.passed(bytes))?;
        let mut troubles = Vec::new();
        for (place, target) in std::mem::take(&mut self.targets).iter().enumerate() {
            match self.copy_into(target, &checksum) {
                Ok(()) => {}
                Err(Trouble::Retry(error)) => troubles.push(error),
                Err(other) => return Err(other),
            }
            self.done_bytes = self.bytes * (1 + 2 * (place as u64 + 1));
            self.tell();
        }
        if troubles.is_empty() { Ok(()) } else { Err(Trouble::Retry(troubles.join("; "))) }
    }

    fn copy_into(&mut self, folder: &Path, checksum: &str) -> Result<(), Trouble> {
        // A folder that is missing may be a disk that is not mounted: it is not made.
        let folder = self.roots.folder(folder)?;
        let copy = folder.path.join(&self.name);
        if copy == self.source.path || self.is_equal(&folder, checksum)? {
            return Ok(());
        }
        let digits = &checksum[..PART_DIGITS];
        let name = PathBuf::from(format!(".{}.{digits}.part", self.name.display()));
        let part = self.fill(&folder, &name)?;
        let path = folder.path.join(&name);
        let read = folder.open(&name)?;
        let read = read.ok_or_else(|| Trouble::Retry(format!("{} is gone", path.display())))?;
        if sha256(&read, &path, |bytes| self.passed(bytes))? != checksum {
            // The source has changed meanwhile, or a disk lies.
            folder.remove(&name);
            let what = "differs from its source after the copy: copying again";
            return Err(Trouble::Retry(format!("{} {what}", copy.display())));
        }
        // Only now: a part that may not be written could not be resumed.
        let rights = self.source.file.metadata().map(|about| about.permissions().mode() & RIGHTS);
        let given = rights.and_then(|mode| part.set_permissions(Permissions::from_mode(mode)));
        given.map_err(|error| Trouble::at(&path, error))?;
        folder.publish(&part, &name, &self.name)
    }

    fn is_equal(&self, folder: &Folder, checksum: &str) -> Result<bool, Trouble> {
        let Some(copy) = folder.open(&self.name)? else { return Ok(false) };
        let path = folder.path.join(&self.name);
        let bytes = copy.metadata().map_err(|error| Trouble::at(&path, error))?.len();
        Ok(bytes == self.bytes && sha256(&copy, &path, |_| self.stop.check())? == checksum)
    }

    /// The source, to be read beside its other readers here, and its path.
    fn source(&self) -> Result<(File, PathBuf), Trouble> {
        let file = self.source.file.try_clone();
        let file = file.map_err(|error| Trouble::at(&self.source.path, error))?;
        Ok((file, self.source.path.clone()))
    }

    /// Appends to the part what it lacks.
    fn fill(&mut self, folder: &Folder, part: &Path) -> Result<File, Trouble> {
        let path = folder.path.join(part);
        let at = |error| Trouble::at(&path, error);
        let mut to = folder.append(part)?;
        let mut there = to.metadata().map_err(at)?.len();
        if there > self.bytes {
            to.set_len(0).map_err(at)?;
            there = 0;
        }
        let (mut from, source) = self.source()?;
        let at_source = |error| Trouble::at(&source, error);
        from.seek(SeekFrom::Start(there)).map_err(at_source)?;
        self.passed(there)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = from.read(&mut piece).map_err(at_source)?;
            if count == 0 {
                return Ok(to);
            }
            to.write_all(&piece[..count]).map_err(at)?;
            self.passed(count as u64)?;
        }
    }

    /// So many bytes have been read or written.
    fn passed(&mut self, bytes: u64) -> Result<(), Trouble> {
        self.stop.check()?;
        self.done_bytes += bytes;
        self.tell();
        Ok(())
    }

    fn tell(&self) {
        let done_bytes = self.done_bytes.min(self.total_bytes);
        let percent = done_bytes as f64 * 100.0 / self.total_bytes.max(1) as f64;
        let percent = percent.round();
        self.progress.tell(&Told { percent, done_bytes, total_bytes: self.total_bytes });
    }
}
