//! Notices that a worker's program has changed on disk, by looking once a second.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Most files of a watched folder that are looked at.
const FOLDER_FILES_MAX: usize = 1_000;

/// Distinguishes contents of a file without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

/// Raises `version` whenever the files among `paths` have changed and then stayed the same from
/// one look to the next: a file may still be being written.
pub(crate) async fn watch(paths: Vec<PathBuf>, version: watch::Sender<u64>) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let Some(mut running) = look(&paths).await else { return };
    let mut before = running.clone();
    loop {
        ticks.tick().await;
        let Some(now) = look(&paths).await else { return };
        if now != running && now == before {
            running.clone_from(&now);
            tracing::info!(?paths, "the program of a worker has changed");
            version.send_modify(|version| *version += 1);
        }
        before = now;
    }
}

/// None when the process is about to end.
async fn look(paths: &[PathBuf]) -> Option<Vec<Stamp>> {
    let paths = paths.to_vec();
    // A file may be on a network drive that hangs.
    let look = move || paths.into_iter().flat_map(stamps).collect();
    tokio::task::spawn_blocking(look).await.ok()
}

/// A file's own; those of the files in a folder. One that is missing for a moment, while it is
/// being replaced, shows as a change that does not last.
fn stamps(path: PathBuf) -> Vec<Stamp> {
    let Ok(folder) = std::fs::read_dir(&path) else { return stamp(path).into_iter().collect() };
    let entries = folder.take(FOLDER_FILES_MAX).filter_map(Result::ok);
    let mut stamps: Vec<Stamp> = entries.filter_map(|entry| stamp(entry.path())).collect();
    stamps.sort_by(|a, b| a.path.cmp(&b.path));
    stamps
}

fn stamp(path: PathBuf) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let about = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
    Some(Stamp { path, modified: about.modified().ok(), bytes: about.len(), inode: about.ino() })
}
