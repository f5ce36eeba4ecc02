//! The ready-made `replicate` worker: copies a file into several folders, here and on other servers, and into buckets, and
//! makes sure of it.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use seriatim::Context;

use super::bucket::{Bucket, Object};
use super::files::{FileJob, FileWorker, PIECE_BYTES, Progress, StopSign, Trouble, hidden, sha256};
use super::roots::{Folder, Input};
use super::rsync::Remote;
use super::target::on_server;
use super::upload::{Sums, Upload};
use crate::config::{Replicate, Roots, Servers};

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

/// The worker.
pub(crate) struct Replicator {
    roots: Roots,
    servers: Servers,
    buckets: BTreeMap<String, Bucket>,
}

/// Where a copy on another server goes to.
enum Place<'a> {
    Folder(Remote<'a>),
    Bucket(Object<'a>),
}

impl Replicator {
    /// Fails if the keys of a bucket are missing.
    pub(crate) fn new(settings: Replicate) -> Result<Self, String> {
        let Replicate { roots, servers } = settings;
        let opened = servers.buckets.iter().map(|(name, settings)| {
            let bucket = Bucket::open(settings);
            let bucket = bucket.map_err(|why| format!("`servers`: {name}: {why}"))?;
            Ok::<_, String>((name.clone(), bucket))
        });
        let buckets = opened.collect::<Result<_, String>>()?;
        Ok(Self { roots, servers, buckets })
    }

    /// None if the target is a folder on this machine.
    fn elsewhere(&self, target: &Path, file: &Path) -> Option<Result<Place<'_>, Trouble>> {
        let (folders, buckets) = (&self.servers.folders, &self.buckets);
        let is_known = |name: &str| folders.contains_key(name) || buckets.contains_key(name);
        let (name, below) = match on_server(target, is_known)? {
            Ok(named) => named,
            Err(wrong) => return Some(Err(wrong)),
        };
        if let Some(folder) = folders.get(name) {
            return Some(Ok(Place::Folder(Remote::new(&self.servers, folder, below))));
        }
        let bucket = buckets.get(name)?;
        let no_text = || {
            let what = "is not UTF-8, as names in buckets are";
            Trouble::Bury(format!("{} {what}", file.display()))
        };
        let object = file.to_str().ok_or_else(no_text);
        Some(object.and_then(|file| bucket.object(below, file)).map(Place::Bucket))
    }
}

impl FileWorker for Replicator {
    type Payload = Order;

    /// A target that fails does not keep the others from their copy.
    async fn run(&self, job: FileJob<Order>) -> Result<(), Trouble> {
        let (order, context) = (&job.payload, &job.context);
        if order.targets.is_empty() || order.targets.len() > TARGETS_MAX {
            let count = order.targets.len();
            return Err(Trouble::Bury(format!("targets: {count}; from 1 to {TARGETS_MAX}")));
        }
        let source = self.roots.open(&order.source)?;
        let name = order.source.file_name().map(PathBuf::from).ok_or_else(|| {
            Trouble::Bury(format!("{} does not name a file", order.source.display()))
        })?;
        let (mut here, mut servers, mut objects) = (Vec::new(), Vec::new(), Vec::new());
        let mut failures = Failures::default();
        for target in &order.targets {
            match self.elsewhere(target, &name) {
                Some(Ok(Place::Folder(remote))) => servers.push(remote),
                Some(Ok(Place::Bucket(object))) => objects.push(object),
                Some(Err(wrong)) => failures.add(Err(wrong))?,
                None => here.push(target.clone()),
            }
        }
        let hashed = u64::from(!here.is_empty()) + u64::from(!objects.is_empty());
        let mut meter = Meter::new(&source, order.targets.len(), hashed, job.progress())?;
        if !here.is_empty() {
            let (source, roots) = (source.again()?, self.roots.clone());
            let (name, stop) = (name.clone(), StopSign::default());
            let copying = Copying { source, name, roots, meter, stop, failures };
            (meter, failures) = copying.run_on_a_thread(here, context).await?;
        }
        for remote in servers {
            let from = meter.done_bytes;
            let told = |percent| meter.is_at(from, percent);
            let sent = remote.send((&source.file, &source.path), &name, context, told).await;
            failures.add(sent)?;
            meter.is_at(from, 100.0);
        }
        if !objects.is_empty() {
            upload(&source, &objects, &job, &mut meter, &mut failures).await?;
        }
        failures.in_the_end()
    }
}

/// Copies a file into buckets.
async fn upload(
    source: &Input,
    objects: &[Object<'_>],
    job: &FileJob<Order>,
    meter: &mut Meter,
    failures: &mut Failures,
) -> Result<(), Trouble> {
    let source = (&source.file, &*source.path);
    let sums = Sums::of(source.0, source.1, |bytes| {
        meter.done_bytes += bytes;
        meter.tell();
        if job.context.is_cancelled() { Err(Trouble::Stopped) } else { Ok(()) }
    })?;
    let mut steps = job.steps().await?;
    for (place, object) in objects.iter().enumerate() {
        let from = meter.done_bytes;
        let told = |percent| meter.is_at(from, percent);
        let step = format!("bucket {} of {}", place + 1, job.id);
        let upload = Upload::new(object, source, &sums);
        failures.add(upload.run(&mut steps, &step, &job.context, told).await)?;
        meter.is_at(from, 100.0);
    }
    Ok(())
}

/// What went wrong with targets.
#[derive(Default)]
struct Failures {
    errors: Vec<String>,
    /// One of them may work later.
    may_work: bool,
}

impl Failures {
    /// Keeps what is about one target. An error is about all of them.
    fn add(&mut self, ended: Result<(), Trouble>) -> Result<(), Trouble> {
        match ended {
            Ok(()) => {}
            Err(Trouble::Bury(error)) => self.errors.push(error),
            Err(Trouble::Retry(error)) => {
                self.errors.push(error);
                self.may_work = true;
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn in_the_end(self) -> Result<(), Trouble> {
        let errors = self.errors.join("; ");
        match self.may_work {
            _ if errors.is_empty() => Ok(()),
            true => Err(Trouble::Retry(errors)),
            false => Err(Trouble::Bury(errors)),
        }
    }
}

/// How far a job is.
struct Meter {
    /// Of the source.
    bytes: u64,
    done_bytes: u64,
    total_bytes: u64,
    progress: Progress,
}

impl Meter {
    /// `hashed` is how often the source is read for its checksums.
    fn new(
        source: &Input,
        targets: usize,
        hashed: u64,
        progress: Progress,
    ) -> Result<Self, Trouble> {
        let about = source.file.metadata().map_err(|error| Trouble::at(&source.path, error))?;
        let bytes = about.len();
        // Each target is written and read again.
        let total_bytes = bytes * (hashed + 2 * targets as u64);
        Ok(Self { bytes, done_bytes: 0, total_bytes, progress })
    }

    /// A target that began at this many bytes is done to this percentage.
    fn is_at(&mut self, began: u64, percent: f64) {
        self.done_bytes = began + (self.bytes as f64 * 2.0 * percent / 100.0) as u64;
        self.tell();
    }

    fn tell(&self) {
        let done_bytes = self.done_bytes.min(self.total_bytes);
        let percent = done_bytes as f64 * 100.0 / self.total_bytes.max(1) as f64;
        let percent = percent.round();
        self.progress.tell(&Told { percent, done_bytes, total_bytes: self.total_bytes });
    }
}

/// The copies on this machine.
struct Copying {
    source: Input,
    name: PathBuf,
    roots: Roots,
    meter: Meter,
    stop: StopSign,
    failures: Failures,
}

impl Copying {
    async fn run_on_a_thread(
        self,
        targets: Vec<PathBuf>,
        context: &Context,
    ) -> Result<(Meter, Failures), Trouble> {
        let sign = self.stop.clone();
        let _dropped = sign.on_drop();
        let mut copying = tokio::task::spawn_blocking(move || self.run(&targets));
        let ended = tokio::select! {
            ended = &mut copying => ended,
            () = context.cancelled() => {
                sign.set();
                // Waited for: it must not write on beside the next holder of the key.
                copying.await
            }
        };
        ended.map_err(|error| Trouble::Retry(format!("the copy failed: {error}")))?
    }

    fn run(mut self, targets: &[PathBuf]) -> Result<(Meter, Failures), Trouble> {
        let Input { file, path } = self.source.again()?;
        let checksum = sha256(&file, &path, |bytes| self.passed(bytes))?;
        for (place, target) in targets.iter().enumerate() {
            let copied = self.copy_into(target, &checksum);
            self.failures.add(copied)?;
            self.meter.done_bytes = self.meter.bytes * (1 + 2 * (place as u64 + 1));
            self.meter.tell();
        }
        Ok((self.meter, self.failures))
    }

    fn copy_into(&mut self, folder: &Path, checksum: &str) -> Result<(), Trouble> {
        // A folder that is missing may be a disk that is not mounted: it is not made.
        let folder = self.roots.folder(folder)?;
        let copy = folder.path.join(&self.name);
        if copy == self.source.path || self.is_equal(&folder, checksum)? {
            return Ok(());
        }
        let digits = &checksum[..PART_DIGITS];
        let name = hidden(&self.name, &format!(".{digits}.part"));
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
        let about = self.source.file.metadata();
        let about = about.map_err(|error| Trouble::at(&self.source.path, error))?;
        let rights = Permissions::from_mode(about.permissions().mode() & RIGHTS);
        folder.publish(&part, rights, &name, &self.name)
    }

    fn is_equal(&self, folder: &Folder, checksum: &str) -> Result<bool, Trouble> {
        let Some(copy) = folder.open(&self.name)? else { return Ok(false) };
        let path = folder.path.join(&self.name);
        let bytes = copy.metadata().map_err(|error| Trouble::at(&path, error))?.len();
        Ok(bytes == self.meter.bytes && sha256(&copy, &path, |_| self.stop.check())? == checksum)
    }

    /// Appends to the part what it lacks.
    fn fill(&mut self, folder: &Folder, part: &Path) -> Result<File, Trouble> {
        let path = folder.path.join(part);
        let at = |error| Trouble::at(&path, error);
        let mut to = folder.append(part)?;
        let mut there = to.metadata().map_err(at)?.len();
        if there > self.meter.bytes {
            to.set_len(0).map_err(at)?;
            there = 0;
        }
        let Input { file: mut from, path: source } = self.source.again()?;
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

    /// Records that this many bytes were read or written.
    fn passed(&mut self, bytes: u64) -> Result<(), Trouble> {
        self.stop.check()?;
        self.meter.done_bytes += bytes;
        self.meter.tell();
        Ok(())
    }
}
