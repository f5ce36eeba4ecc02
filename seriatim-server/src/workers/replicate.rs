//! The ready-made `replicate` worker: copies a file into several folders, and makes sure of it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files::{
    FileJob, FileWorker, PIECE_BYTES, Progress, Roots, StopSign, Trouble, publish, sha256,
};

/// Most targets of one job.
const TARGETS_MAX: usize = 64;
/// Digits of the checksum in the name of a part: another content gets another part.
const PART_DIGITS: usize = 16;

/// Copies files within some folders.
#[derive(Clone, Debug)]
pub(crate) struct Replicate {
    pub(crate) roots: Roots,
}

/// What a payload says.
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
        ended.map_err(|error| Trouble::Retry(format!("the copy broke off: {error}")))?
    }
}

/// A job at work.
struct Copying {
    source: PathBuf,
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
        let source = roots.resolve(&order.source)?;
        let about = source.metadata().map_err(|error| Trouble::at(&source, error))?;
        let name = order.source.file_name().map(PathBuf::from).filter(|_| about.is_file());
        let name =
            name.ok_or_else(|| Trouble::Bury(format!("{} is not a file", source.display())))?;
        let bytes = about.len();
        // Each target is written and read again.
        let total_bytes = bytes * (1 + 2 * targets.len() as u64);
        Ok(Self { source, name, targets, roots, bytes, progress, done_bytes: 0, total_bytes, stop })
    }

    /// A target that fails does not keep the others from their copy.
    fn run(mut self) -> Result<(), Trouble> {
        let source = self.source.clone();
        let checksum = sha256(&source, |bytes| self.passed(bytes))?;
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
        let folder = self.roots.resolve(folder)?;
        let copy = folder.join(&self.name);
        if copy == self.source || self.is_equal(&copy, checksum)? {
            return Ok(());
        }
        let digits = &checksum[..PART_DIGITS];
        let part = folder.join(format!(".{}.{digits}.part", self.name.display()));
        self.fill(&part)?;
        if sha256(&part, |bytes| self.passed(bytes))? != checksum {
            // The source has changed meanwhile, or a disk lies.
            let _ = std::fs::remove_file(&part);
            let what = "differs from its source after the copy: it is copied again";
            return Err(Trouble::Retry(format!("{} {what}", copy.display())));
        }
        // Only now: a part that may not be written could not be resumed.
        let rights = self.source.metadata().map(|about| about.permissions());
        let rights = rights.and_then(|rights| std::fs::set_permissions(&part, rights));
        rights.map_err(|error| Trouble::at(&part, error))?;
        publish(&part, &copy)
    }

    fn is_equal(&self, copy: &Path, checksum: &str) -> Result<bool, Trouble> {
        match copy.metadata() {
            Ok(about) if about.is_file() && about.len() == self.bytes => {
                Ok(sha256(copy, |_| self.stop.check())? == checksum)
            }
            _ => Ok(false),
        }
    }

    /// Appends to the part what it lacks.
    fn fill(&mut self, part: &Path) -> Result<(), Trouble> {
        let at = |error| Trouble::at(part, error);
        let mut to = OpenOptions::new().create(true).append(true).open(part).map_err(at)?;
        let mut there = to.metadata().map_err(at)?.len();
        if there > self.bytes {
            to.set_len(0).map_err(at)?;
            there = 0;
        }
        let source = self.source.clone();
        let at_source = |error| Trouble::at(&source, error);
        let mut from = File::open(&source).map_err(at_source)?;
        from.seek(SeekFrom::Start(there)).map_err(at_source)?;
        self.passed(there)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = from.read(&mut piece).map_err(at_source)?;
            if count == 0 {
                return Ok(());
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
