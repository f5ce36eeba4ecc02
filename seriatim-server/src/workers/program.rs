//! Whether a program can be started: looked up as a start would, with the reason in words if it cannot.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rustix::fs::{Access, access};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::told::Told;
use crate::config::Launch;

/// The first line of a script is read so far, as Linux does.
const FIRST_LINE_BYTES_MAX: u64 = 256;
/// Where programs are looked for when `PATH` is not set, as the C library does.
const PATH_UNSET: &str = "/bin:/usr/bin";

/// How often it is looked whether the programs of a worker can be started, between calls too.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The programs of a worker that starts them for each call.
pub(crate) struct Programs {
    pub(crate) queue: Arc<str>,
    pub(crate) task: Option<Arc<str>>,
    pub(crate) launches: Vec<Launch>,
}

/// A program by its name, and where it is looked for.
type Named = (String, Option<OsString>);

/// Reports when programs cannot be started, and when they can again. A start that fails for an invisible reason is
/// reported by its call.
pub(super) async fn watch(workers: Vec<Programs>, told: Told) {
    // Many workers may start the same programs, and each look costs a dozen calls of the system.
    let mut groups = HashMap::<Vec<Named>, Vec<Programs>>::new();
    for worker in workers {
        let named = |launch: &Launch| (launch.name().to_owned(), launch.environment.path());
        groups.entry(worker.launches.iter().map(named).collect()).or_default().push(worker);
    }
    // Each by itself: a file on a drive that hangs holds up no look at the others.
    let looking = groups.into_iter().map(|(programs, workers)| look(programs, workers, &told));
    join_all(looking).await;
}

async fn look(programs: Vec<Named>, workers: Vec<Programs>, told: &Told) {
    let (programs, mut known) = (Arc::<[Named]>::from(programs), None);
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let programs = programs.clone();
        let look = move || {
            programs.iter().find_map(|(name, path)| {
                Some(format!("{name}: {}", why_not(name, path.as_deref())?))
            })
        };
        // It fails if the process is about to end.
        let Ok(why) = spawn_blocking(look).await else { return };
        if why != known {
            workers.iter().for_each(|worker| worker.tell(why.as_deref(), told));
        }
        known = why;
    }
}

impl Programs {
    fn tell(&self, why_not: Option<&str>, told: &Told) {
        let (queue, task) = (&*self.queue, self.task.as_deref());
        match why_not {
            Some(why) => told.cannot_start(queue, task, why),
            None => told.started(queue, task),
        }
    }
}

/// Why `program` cannot be started with this `PATH`; none when nothing speaks against it.
pub(super) fn why_not(program: &str, path: Option<&OsStr>) -> Option<String> {
    match find(program, path) {
        Err(why) => Some(why),
        Ok(file) => why_no_script(&file, path),
    }
}

/// The file that a start of `program` would run.
fn find(program: &str, path: Option<&OsStr>) -> Result<PathBuf, String> {
    if program.is_empty() {
        return Err("its name is empty".to_owned());
    }
    if program.contains('/') {
        let path = PathBuf::from(program);
        return why_not_run(&path).map_or(Ok(path), Err);
    }
    let mut why = None;
    for folder in std::env::split_paths(path.unwrap_or(OsStr::new(PATH_UNSET))) {
        let path = folder.join(program);
        if !path.exists() {
            continue;
        }
        match why_not_run(&path) {
            None => return Ok(path),
            Some(said) => why = why.or(Some(format!("{}: {said}", path.display()))),
        }
    }
    Err(why.unwrap_or_else(|| "it is in no folder of PATH".to_owned()))
}

/// Why a file cannot be run, as far as its permissions tell.
fn why_not_run(path: &Path) -> Option<String> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Some("there is no such file".to_owned())
        }
        Err(error) => Some(error.to_string()),
        Ok(file) if file.is_dir() => Some("it is a directory".to_owned()),
        Ok(_) => access(path, Access::EXEC_OK)
            .is_err()
            .then(|| "it is not executable (chmod +x)".to_owned()),
    }
}

/// Why a script cannot be run: its first line names an interpreter that is not there.
fn why_no_script(file: &Path, path: Option<&OsStr>) -> Option<String> {
    let mut head = Vec::with_capacity(FIRST_LINE_BYTES_MAX as usize);
    // A program may be run and not read.
    File::open(file).ok()?.take(FIRST_LINE_BYTES_MAX).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = OsStr::from_bytes(line).to_string_lossy();
    // Not by any white space: a carriage return at the end belongs to the name.
    let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
    let interpreter = words.next()?;
    let missing = |name: &str, why: String| {
        Some(format!("its first line needs {name:?}, which cannot run: {why}"))
    };
    if let Some(why) = why_not_run(Path::new(interpreter)) {
        return missing(interpreter, why);
    }
    if !interpreter.ends_with("/env") {
        return None;
    }
    let named = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    find(named, path).err().and_then(|why| missing(named, why))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    fn why_not(program: &str) -> Option<String> {
        super::why_not(program, std::env::var_os("PATH").as_deref())
    }

    fn why(text: &str, mode: u32) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        why_not(path.to_str().unwrap())
    }

    #[test]
    fn what_cannot_be_started_is_told_with_its_reason() {
        let says = |why: Option<String>, part: &str| {
            assert!(why.as_deref().is_some_and(|why| why.contains(part)), "{part}: {why:?}");
        };
        says(why_not("/no/such/program"), "no such file");
        says(why_not("no-such-program"), "in no folder of PATH");
        says(why_not("/tmp"), "a directory");
        says(why_not(""), "empty");
        says(why("#!/bin/sh\n", 0o644), "chmod +x");
        says(why("#!/nonexistent -x\n", 0o755), "\"/nonexistent\", which cannot run: there is no");
        says(why("#! /bin/sh\r\n", 0o755), r#""/bin/sh\r""#);
        says(why("#!/usr/bin/env no-such-program\n", 0o755), "\"no-such-program\"");
    }

    #[test]
    fn what_can_be_started_is_not_complained_of() {
        for name in ["sh", "/bin/sh"] {
            assert_eq!(why_not(name), None);
        }
        for text in ["#!/bin/sh -e\n", "#!/usr/bin/env -S A=1 sh -e\n", "#!", "", "\u{7f}ELF"] {
            assert_eq!(why(text, 0o755), None, "{text:?}");
        }
    }
}
