//! What the ready-made workers of files share: one job after the other, checksums, and names that appear
//! all at once.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;
use seriatim::{
    Batch, Context, Failure, JobId, Outcome, Outcomes, Payload, Steps, engine::Unstartable,
    store::LaneId,
};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::stopped::given_up;
use crate::base::text::hex;

/// Bytes of one read. A job stops after at most one such piece.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// Of a name in a folder, on Linux.
const NAME_BYTES_MAX: usize = 255;

const STOPPED: &str = "stopped on request";
const READ_ONLY: &str = "; under systemd, list the folder in `ReadWritePaths=` of the unit";

/// Why a job of files does not end well.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It may work later.
    Retry(String),
    /// It never will.
    Bury(String),
    /// No job of this worker works: a program is missing.
    Unstartable(String),
    /// A stop was requested.
    Stopped,
}

impl Trouble {
    /// An error with the file that it is about.
    pub(crate) fn at(path: &Path, error: io::Error) -> Self {
        let hint = match error.kind() {
            // The unit that we ship lets nodes write to one folder only.
            io::ErrorKind::ReadOnlyFilesystem => READ_ONLY,
            _ => "",
        };
        let why = format!("{}: {error}{hint}", path.display());
        match error.kind() {
            // A name that is too long does not get shorter.
            io::ErrorKind::InvalidFilename => Self::Bury(why),
            _ => Self::Retry(why),
        }
    }
}

/// One job, its payload read.
pub(crate) struct FileJob<P> {
    pub(crate) id: JobId,
    pub(crate) payload: P,
    pub(crate) context: Context,
    lane: LaneId,
}

impl<P> FileJob<P> {
    /// Reports the progress of the job.
    pub(crate) fn tell(&self, progress: &impl Serialize) {
        Progress { lane: self.lane, context: self.context.clone() }.tell(progress);
    }

    /// The steps of its turn.
    pub(crate) async fn steps(&self) -> Result<Steps, Trouble> {
        let steps = self.context.steps_of(self.lane).await;
        steps.map_err(|error| Trouble::Retry(error.to_string()))
    }

    /// The same, for a thread of its own.
    pub(crate) fn progress(&self) -> Progress {
        Progress { lane: self.lane, context: self.context.clone() }
    }
}

/// Reports the progress of a job.
#[derive(Clone)]
pub(crate) struct Progress {
    lane: LaneId,
    context: Context,
}

impl Progress {
    pub(crate) fn tell(&self, progress: &impl Serialize) {
        if let Err(error) = self.context.progress_of(self.lane, progress) {
            tracing::debug!(lane = %self.lane, %error, "cannot report progress");
        }
    }
}

/// Works on one job.
pub(crate) trait FileWorker {
    /// The payload of a job.
    type Payload: DeserializeOwned + Send;

    fn run(&self, job: FileJob<Self::Payload>) -> impl Future<Output = Result<(), Trouble>> + Send;
}

/// Runs a call: all its jobs, one after the other.
pub(crate) async fn run<W: FileWorker + Send + Sync + 'static>(
    worker: Arc<W>,
    batch: Batch<Payload>,
    context: Context,
) -> Result<Outcomes, Failure> {
    let mut outcomes = Outcomes::new();
    for (number, lane) in batch.lanes().iter().enumerate() {
        for (place, (job, payload)) in lane.jobs().enumerate() {
            let ended = match payload.decode() {
                Err(error) => Err(Trouble::Bury(error.to_string())),
                Ok(payload) => {
                    let context = context.clone();
                    let job = FileJob { id: job.id, payload, context, lane: lane.id() };
                    on_a_thread(worker.clone(), job).await
                }
            };
            let outcome = match ended {
                Ok(()) => continue,
                Err(Trouble::Retry(error)) => {
                    Outcome::Retry { error: error.into(), retry_in: None }
                }
                Err(Trouble::Bury(error)) => Outcome::Bury { error: error.into() },
                // Nothing has ended that could be kept.
                Err(Trouble::Unstartable(why)) if (number, place) == (0, 0) => {
                    return Err(Unstartable(why).into());
                }
                // Asked to end: the engine knows why. It does not if the job ended early because the node drains.
                Err(Trouble::Stopped) if (number, place) == (0, 0) && context.is_cancelled() => {
                    return Err(STOPPED.into());
                }
                Err(trouble @ (Trouble::Unstartable(_) | Trouble::Stopped)) => {
                    let outcome = match trouble {
                        // The next call begins with it and says why.
                        Trouble::Unstartable(_) => Outcome::Release,
                        _ => given_up(&context, STOPPED),
                    };
                    outcomes.set_after(lane.id(), place, outcome.clone());
                    for lane in &batch.lanes()[number + 1..] {
                        outcomes.set(lane.id(), outcome.clone());
                    }
                    return Ok(outcomes);
                }
            };
            outcomes.set_after(lane.id(), place, outcome);
            break;
        }
    }
    Ok(outcomes)
}

/// Runs a job on a thread of its own: its files may be on a drive that hangs, and each call of the system about them waits.
/// Not one of the pool, of which the job may need another. Dropping this ends the job.
async fn on_a_thread<W: FileWorker + Send + Sync + 'static>(
    worker: Arc<W>,
    job: FileJob<W::Payload>,
) -> Result<(), Trouble> {
    let (tell, told) = oneshot::channel();
    let (_waiter, gone) = oneshot::channel::<()>();
    let runtime = Handle::current();
    let work = async move {
        tokio::select! {
            ended = worker.run(job) => drop(tell.send(ended)),
            _ = gone => {}
        }
    };
    let thread = std::thread::Builder::new().name("files".to_owned());
    let started = thread.spawn(move || runtime.block_on(work));
    started.map_err(|error| Trouble::Retry(format!("cannot start a thread: {error}")))?;
    told.await.unwrap_or_else(|_| Err(Trouble::Retry("the work on it panicked".to_owned())))
}

/// Stops work on another thread when its waiter is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopSign(Arc<AtomicBool>);

impl StopSign {
    pub(crate) fn check(&self) -> Result<(), Trouble> {
        if self.0.load(Ordering::Relaxed) { Err(Trouble::Stopped) } else { Ok(()) }
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Sets the sign when dropped.
    pub(crate) fn on_drop(&self) -> impl Drop + use<> {
        struct Setter(StopSign);
        impl Drop for Setter {
            fn drop(&mut self) {
                self.0.set();
            }
        }
        Setter(self.clone())
    }
}

/// The SHA-256 of a whole file; `read` gets the number of bytes of each read.
pub(crate) fn sha256(
    mut file: &File,
    path: &Path,
    mut read: impl FnMut(u64) -> Result<(), Trouble>,
) -> Result<String, Trouble> {
    file.rewind().map_err(|error| Trouble::at(path, error))?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = file.read(&mut piece).map_err(|error| Trouble::at(path, error))?;
        if count == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&piece[..count]);
        read(count as u64)?;
    }
}

/// The name of something hidden beside a file: the beginning of the file's, if the whole would be too long, and what
/// tells it apart.
pub(crate) fn hidden(name: &Path, end: &str) -> PathBuf {
    let name = name.to_string_lossy();
    let room = NAME_BYTES_MAX.saturating_sub(1 + end.len());
    format!(".{}{end}", &name[..name.floor_char_boundary(room)]).into()
}

/// Gives a finished file its name: a partial file is never visible, even after a power cut.
pub(crate) fn publish(part: &Path, to: &Path) -> Result<(), Trouble> {
    let steps = || {
        File::open(part)?.sync_all()?;
        std::fs::rename(part, to)?;
        to.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    steps().map_err(|error| Trouble::at(to, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_only_folder_names_the_setting_of_systemd_that_opens_it() {
        let error = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
        let Trouble::Retry(why) = Trouble::at(Path::new("/mnt/a"), error) else {
            panic!("its operator can open it");
        };
        assert!(why.starts_with("/mnt/a: ") && why.contains("ReadWritePaths="), "{why}");
    }
}
