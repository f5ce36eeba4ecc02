//! The folders that a worker of files may use. What a payload names is opened in there without following a
//! link, and only regular files are.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, PROC_SUPER_MAGIC, flock, fstat, fstatfs,
    openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::files::Trouble;
use crate::config::Roots;

/// The mark of the file system at `/sys`.
const SYS_SUPER_MAGIC: u64 = 0x6265_6572;
const FOLDER: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Of files. Anything but a regular file must not block the caller.
const PLAIN: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A regular file, open for reading.
pub(crate) struct Input {
    pub(crate) file: File,
    /// Where it is, without links and dots.
    pub(crate) path: PathBuf,
}

impl Input {
    /// The same file, for another reader in turn: they share the place in it.
    pub(crate) fn again(&self) -> Result<Self, Trouble> {
        let file = self.file.try_clone().map_err(|error| Trouble::at(&self.path, error))?;
        Ok(Self { file, path: self.path.clone() })
    }
}

/// A folder. It stays the same one, whatever its name means later.
pub(crate) struct Folder {
    folder: OwnedFd,
    /// Where it is, without links and dots.
    pub(crate) path: PathBuf,
}

/// Where something is: within a root, without links and dots.
struct Place {
    root: PathBuf,
    below: PathBuf,
}

impl Roots {
    /// Opens a file that is there.
    pub(crate) fn open(&self, path: &Path) -> Result<Input, Trouble> {
        let place = self.place(path)?;
        let no_file = || Trouble::Bury(format!("{} is not a regular file", path.display()));
        let name = place.below.file_name().ok_or_else(no_file)?;
        let folder = place.folder(place.below.parent()).map_err(|e| Trouble::at(path, e))?;
        if is_of_the_kernel(&folder).map_err(|error| Trouble::at(path, error))? {
            let what = format!("{} is a file of the kernel, not on a disk", path.display());
            return Err(Trouble::Bury(what));
        }
        let file = plain(folder.as_fd(), Path::new(name), OFlags::RDONLY);
        let file = file.map_err(|error| Trouble::at(path, error))?.ok_or_else(no_file)?;
        Ok(Input { file, path: place.path() })
    }

    /// A folder that is there.
    pub(crate) fn folder(&self, path: &Path) -> Result<Folder, Trouble> {
        let place = self.place(path)?;
        let folder = place.folder(Some(&place.below)).map_err(|e| Trouble::at(path, e))?;
        Ok(Folder { folder, path: place.path() })
    }

    /// Where a file is that need not be there yet, in a folder that must.
    pub(crate) fn resolve_new(&self, path: &Path) -> Result<PathBuf, Trouble> {
        let name = path
            .file_name()
            .ok_or_else(|| Trouble::Bury(format!("{} does not name a file", path.display())))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Ok(self.folder(folder.unwrap_or(Path::new(".")))?.path.join(name))
    }

    /// Follows the links of a path. Does not reveal whether anything exists outside the roots.
    fn place(&self, path: &Path) -> Result<Place, Trouble> {
        let elsewhere = || {
            let what = format!("{} is not within the worker's `roots`", path.display());
            Trouble::Bury(what)
        };
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) if self.begins(path) => return Err(Trouble::at(path, error)),
            Err(_) => return Err(elsewhere()),
        };
        self.within(&real).ok_or_else(elsewhere)
    }

    fn within(&self, real: &Path) -> Option<Place> {
        self.0.iter().find_map(|root| {
            let root = root.canonicalize().ok()?;
            let below = real.strip_prefix(&root).ok()?.to_owned();
            Some(Place { root, below })
        })
    }

    /// Whether a path leads into a root, as far as it is there; or into one that is missing itself, as a disk
    /// that is not mounted.
    fn begins(&self, path: &Path) -> bool {
        let plain = |path: &Path| std::path::absolute(path).ok();
        let Some(path) = plain(path) else { return false };
        let there = path.ancestors().find(|part| part.symlink_metadata().is_ok());
        // A link to nothing leads nowhere.
        let real = there.and_then(|part| part.canonicalize().ok());
        if real.is_some_and(|real| self.within(&real).is_some()) {
            return true;
        }
        let has_dots = path.components().any(|part| part == Component::ParentDir);
        let is_missing = |root: &PathBuf| root.symlink_metadata().is_err();
        let mut missing =
            self.0.iter().filter(|root| is_missing(root)).filter_map(|root| plain(root));
        !has_dots && missing.any(|root| path.starts_with(root))
    }
}

impl Place {
    fn path(&self) -> PathBuf {
        // Nothing below it adds a slash otherwise.
        if self.below.as_os_str().is_empty() {
            self.root.clone()
        } else {
            self.root.join(&self.below)
        }
    }

    /// The folder at this path below the root. A link in it was put there since the path was resolved, and
    /// is not followed.
    fn folder(&self, below: Option<&Path>) -> io::Result<OwnedFd> {
        let root = openat(CWD, &self.root, FOLDER, Mode::empty())?;
        let mut parts = below.unwrap_or(Path::new("")).iter();
        Ok(parts.try_fold(root, |folder, part| openat(&folder, part, FOLDER, Mode::empty()))?)
    }
}

impl Folder {
    /// A regular file of this name; none where there is none.
    pub(crate) fn open(&self, name: &Path) -> Result<Option<File>, Trouble> {
        match plain(self.folder.as_fd(), name, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map_err(|error| self.trouble(name, error)),
        }
    }

    /// A file of this name to append to, for one job at a time; made where it is missing.
    pub(crate) fn append(&self, name: &Path) -> Result<File, Trouble> {
        let flags = PLAIN | OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let open = || openat(&self.folder, name, flags, Mode::from_raw_mode(0o666));
        let mut file = open();
        if matches!(file, Err(Errno::ACCESS)) {
            // An attempt had given it the rights of its source, and was cut off before it gave it its name.
            self.remove(name);
            file = open();
        }
        let file = file.map(File::from).map_err(|error| self.trouble(name, error.into()))?;
        match is_regular(&file) {
            Ok(true) => self.locked(file, name),
            Ok(false) => {
                let path = self.path.join(name);
                Err(Trouble::Bury(format!("{} is not a regular file", path.display())))
            }
            Err(error) => Err(self.trouble(name, error)),
        }
    }

    /// Until it is closed: what two jobs append would be published by the one that has just compared its own.
    fn locked(&self, file: File, name: &Path) -> Result<File, Trouble> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                let path = self.path.join(name);
                Err(Trouble::Retry(format!("{} is written by another job", path.display())))
            }
            // Some file systems have no locks.
            _ => Ok(file),
        }
    }

    pub(crate) fn remove(&self, name: &Path) {
        // What cannot be removed is found at the next attempt.
        let _ = unlinkat(&self.folder, name, AtFlags::empty());
    }

    /// Gives a finished file its rights and its name: a partial file is never visible, even after a power cut.
    pub(crate) fn publish(
        &self,
        part: &File,
        rights: Permissions,
        from: &Path,
        to: &Path,
    ) -> Result<(), Trouble> {
        let steps = || {
            part.sync_all()?;
            // Only now, as that may take long or fail: a part that may not be written cannot be resumed.
            part.set_permissions(rights)?;
            part.sync_all()?;
            renameat(&self.folder, from, &self.folder, to)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            File::from(openat(&self.folder, ".", flags, Mode::empty())?).sync_all()
        };
        steps().map_err(|error| self.trouble(to, error))
    }

    fn trouble(&self, name: &Path, error: io::Error) -> Trouble {
        Trouble::at(&self.path.join(name), error)
    }
}

/// Opens a regular file; none where there is something else, which is not even opened.
fn plain(folder: impl AsFd, name: &Path, how: OFlags) -> io::Result<Option<File>> {
    let about = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let file = File::from(openat(&folder, name, PLAIN | how, Mode::empty())?);
    // It may be another one by now.
    Ok(is_regular(&file)?.then_some(file))
}

fn is_regular(file: &File) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::RegularFile)
}

/// Whether it is a folder of `/proc` or `/sys`, wherever these are mounted: their files are regular ones, and
/// tell of processes.
fn is_of_the_kernel(folder: &OwnedFd) -> io::Result<bool> {
    let kind = fstatfs(folder)?.f_type;
    Ok([PROC_SUPER_MAGIC as u64, SYS_SUPER_MAGIC].contains(&(kind as u64)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn said<T>(result: Result<T, Trouble>) -> String {
        match result {
            Ok(_) => "opened".to_owned(),
            Err(Trouble::Retry(error)) => format!("again: {error}"),
            Err(Trouble::Bury(error)) => format!("never: {error}"),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_regular_files_within_the_roots_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("root/inner")).unwrap();
        std::fs::write(at("root/film"), "x").unwrap();
        std::fs::write(at("secret"), "x").unwrap();
        symlink(at("root/film"), at("root/inside")).unwrap();
        symlink(at("secret"), at("root/outside")).unwrap();
        symlink(folder.path(), at("root/inner/up")).unwrap();
        symlink("/dev/zero", at("root/zero")).unwrap();
        symlink(at("missing"), at("root/nowhere")).unwrap();
        let fifo = at("root/fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let _socket = std::os::unix::net::UnixListener::bind(at("root/socket")).unwrap();
        let roots = Roots(vec![at("root")]);
        for (name, word) in [
            ("root/film", "opened"),
            ("root/inside", "opened"),
            ("root/inner/../film", "opened"),
            ("root/outside", "is not within"),
            ("root/inner/up/secret", "is not within"),
            ("root/../secret", "is not within"),
            ("secret", "is not within"),
            ("root/../missing", "is not within"),
            ("missing", "is not within"),
            ("root/missing", "again: "),
            ("root/inner/up/missing", "is not within"),
            ("root/nowhere", "is not within"),
            ("root/zero", "is not within"),
            ("root/fifo", "never: "),
            ("root/socket", "is not a regular file"),
            ("root/inner", "is not a regular file"),
            ("root", "is not a regular file"),
        ] {
            let said = said(roots.open(&at(name)));
            assert!(said.contains(word), "{name}: {said}");
        }
        let away = Roots(vec![at("away")]);
        assert!(said(away.open(&at("away/film"))).starts_with("again: "), "a disk comes back");
        let all = Roots(vec!["/".into()]);
        for name in ["/proc/self/environ", "/proc/1/environ", "/sys/kernel/notes", "/dev/null"] {
            let said = said(all.open(Path::new(name)));
            let is_refused = said.contains("of the kernel") || said.contains("not a regular file");
            assert!(is_refused, "{name}: {said}");
        }
    }

    #[test]
    fn two_jobs_do_not_append_to_one_file() {
        let there = tempfile::tempdir().unwrap();
        let roots = Roots(vec![there.path().to_owned()]);
        let (folder, part) = (roots.folder(there.path()).unwrap(), Path::new("part"));
        let first = folder.append(part).unwrap();
        assert!(said(folder.append(part)).ends_with("is written by another job"));
        drop(first);
        assert_eq!(said(folder.append(part)), "opened");
    }

    #[test]
    fn what_is_put_in_the_place_of_a_folder_or_a_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("root/inner")).unwrap();
        std::fs::write(at("secret"), "x").unwrap();
        let roots = Roots(vec![at("root")]);
        let inner = roots.folder(&at("root/inner")).unwrap();
        let place = roots.place(&at("root/inner")).unwrap();
        std::fs::rename(at("root/inner"), at("root/moved")).unwrap();
        symlink(folder.path(), at("root/inner")).unwrap();
        assert!(place.folder(Some(&place.below)).is_err(), "the link is not followed");
        assert!(inner.open(Path::new("secret")).unwrap().is_none(), "it is the folder of before");
        symlink(at("secret"), at("root/moved/part")).unwrap();
        assert!(inner.append(Path::new("part")).is_err());
        assert!(inner.open(Path::new("part")).unwrap().is_none());
        assert_eq!(std::fs::read_to_string(at("secret")).unwrap(), "x");
    }
}
