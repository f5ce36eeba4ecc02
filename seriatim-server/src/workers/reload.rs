//! Notices that a worker's program has changed on disk, by looking once a second.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
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

/// The files of one program, and how its processes learn that it has changed.
pub(crate) struct Watched {
    pub(crate) paths: Paths,
    pub(crate) version: watch::Sender<u64>,
}

/// Where the files of a program are.
#[derive(Clone)]
pub(crate) struct Paths {
    /// Files and folders that are named as its own.
    pub(crate) named: Vec<PathBuf>,
    /// Words that it is started with: of those that name a file, now or later, the file.
    pub(crate) words: Vec<PathBuf>,
}

impl Paths {
    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.named.iter().chain(&self.words)
    }

    fn stamps(&self) -> Vec<Stamp> {
        let words = self.words.iter().cloned().filter_map(stamp);
        self.named.iter().flat_map(|path| stamps(path)).chain(words).collect()
    }

    /// Those that can be shown: a word that is no file may be a secret.
    fn shown(&self, stamps: &[Stamp]) -> Vec<&PathBuf> {
        let is_file = |word: &&PathBuf| stamps.iter().any(|stamp| stamp.path == **word);
        self.named.iter().chain(self.words.iter().filter(is_file)).collect()
    }
}

/// Groups of programs whose files are on the same file systems: one that hangs delays no others.
pub(crate) fn by_file_system(all: Vec<Watched>) -> Vec<Vec<Watched>> {
    let mut groups = BTreeMap::<_, Vec<Watched>>::new();
    for watched in all {
        let devices: BTreeSet<u64> = watched.paths.all().filter_map(|path| device(path)).collect();
        groups.entry(devices).or_default().push(watched);
    }
    groups.into_values().collect()
}

/// Raises a version whenever files of its program have changed and then stayed the same from
/// one look to the next: a file may still be being written.
pub(crate) async fn watch(programs: Vec<Watched>) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let paths: Arc<[_]> = programs.iter().map(|program| program.paths.clone()).collect();
    let Some(first) = look(&paths).await else { return };
    let seen = |stamps: Vec<Stamp>| Seen { running: stamps.clone(), before: stamps };
    let mut all: Vec<(Watched, Seen)> =
        programs.into_iter().zip(first.into_iter().map(seen)).collect();
    loop {
        ticks.tick().await;
        let Some(now) = look(&paths).await else { return };
        for ((program, seen), now) in all.iter_mut().zip(now) {
            if seen.has_changed(now) {
                let paths = program.paths.shown(&seen.running);
                tracing::info!(?paths, "the program of a worker has changed");
                program.version.send_modify(|version| *version += 1);
            }
        }
    }
}

/// What the files of a program were.
struct Seen {
    /// When its processes were last notified.
    running: Vec<Stamp>,
    /// At the last look.
    before: Vec<Stamp>,
}

impl Seen {
    /// Adds a look. Whether it shows a change that is complete.
    fn has_changed(&mut self, now: Vec<Stamp>) -> bool {
        let changed = now != self.running && now == self.before;
        if changed {
            self.running.clone_from(&now);
        }
        self.before = now;
        changed
    }
}

/// The files of each program. None when the process is about to end.
async fn look(programs: &Arc<[Paths]>) -> Option<Vec<Vec<Stamp>>> {
    let programs = programs.clone();
    // A file may be on a network drive that hangs.
    let look = move || programs.iter().map(Paths::stamps).collect();
    tokio::task::spawn_blocking(look).await.ok()
}

/// A file's own; those of the files in a folder. One that is missing for a moment, while it is
/// being replaced, shows as a change that does not last.
fn stamps(path: &Path) -> Vec<Stamp> {
    let Ok(folder) = std::fs::read_dir(path) else {
        return stamp(path.to_owned()).into_iter().collect();
    };
    let entries = folder.take(FOLDER_FILES_MAX).filter_map(Result::ok);
    let mut stamps: Vec<Stamp> = entries.filter_map(|entry| stamp(entry.path())).collect();
    stamps.sort_by(|a, b| a.path.cmp(&b.path));
    stamps
}

fn stamp(path: PathBuf) -> Option<Stamp> {
    let about = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
    Some(Stamp { path, modified: about.modified().ok(), bytes: about.len(), inode: about.ino() })
}

/// What is not there yet counts where its nearest folder is.
fn device(path: &Path) -> Option<u64> {
    path.ancestors().find_map(|part| part.metadata().ok()).map(|about| about.dev())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(paths: &[&Path]) -> Watched {
        let named = paths.iter().map(|path| (*path).to_owned()).collect();
        let paths = Paths { named, words: Vec::new() };
        Watched { paths, version: watch::Sender::new(0) }
    }

    #[test]
    fn programs_are_looked_at_together_if_their_files_are_on_the_same_file_systems() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path(), Path::new("/proc/version"));
        let later = here.join("folder/program");
        let all =
            [&[here][..], &[there], &[here, here], &[here, there], &[there, here], &[&*later]];
        let groups = by_file_system(all.into_iter().map(watched).collect());
        let mut sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 2, 3]);
    }

    #[test]
    fn a_change_counts_once_it_has_stayed_for_a_look_and_then_once() {
        let stamp = |bytes| Stamp { path: "a".into(), modified: None, bytes, inode: 1 };
        let mut seen = Seen { running: vec![stamp(1)], before: vec![stamp(1)] };
        let changes = [1, 2, 3, 3, 3, 1, 3].map(|bytes| seen.has_changed(vec![stamp(bytes)]));
        assert_eq!(changes, [false, false, false, true, false, false, false]);
    }

    #[test]
    fn a_word_is_watched_from_when_it_names_a_file_and_is_not_shown_before() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["program", "secret", "output"].map(|name| folder.path().join(name));
        let paths = Paths { named: Vec::new(), words: names.to_vec() };
        assert!(paths.stamps().is_empty());
        std::fs::write(&names[0], "new").unwrap();
        std::fs::create_dir(&names[2]).unwrap();
        std::fs::write(names[2].join("result"), "x").unwrap();
        let stamps = paths.stamps();
        assert_eq!(stamps.len(), 1);
        assert_eq!(paths.shown(&stamps), [&names[0]]);
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_programs_the_one_that_changes_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<PathBuf> = (0..3).map(|i| folder.path().join(format!("{i}"))).collect();
        files.iter().for_each(|file| std::fs::write(file, "old").unwrap());
        let programs: Vec<Watched> = files.iter().map(|file| watched(&[file])).collect();
        let mut versions: Vec<_> = programs.iter().map(|one| one.version.subscribe()).collect();
        let watching = tokio::spawn(watch(programs));
        tokio::time::sleep(LOOK_EVERY * 2).await;
        std::fs::write(&files[1], "newer").unwrap();
        let changed = tokio::time::timeout(LOOK_EVERY * 60, versions[1].changed());
        changed.await.expect("it is told of").unwrap();
        assert!(!versions[0].has_changed().unwrap() && !versions[2].has_changed().unwrap());
        watching.abort();
    }
}
