//! Finds the programs of the servers.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Debian keeps PostgreSQL's programs outside `PATH`, in one directory for each major version.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// A program that is not installed, and the Debian package that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingProgram {
    /// The program's file name.
    pub program: &'static str,
    /// The Debian package that installs it.
    pub package: &'static str,
}

impl fmt::Display for MissingProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, package } = self;
        write!(
            f,
            "`{program}` is not installed. On Debian and Ubuntu it is in the package `{package}`: \
             apt-get install --no-install-recommends {package}"
        )
    }
}

impl std::error::Error for MissingProgram {}

impl From<MissingProgram> for String {
    fn from(missing: MissingProgram) -> Self {
        missing.to_string()
    }
}

/// The path of a program, from `PATH` or from the newest PostgreSQL below `/usr/lib/postgresql`.
///
/// `package` is the Debian package to name if the program is missing.
pub fn find_program(
    program: &'static str,
    package: &'static str,
) -> Result<PathBuf, MissingProgram> {
    postgres_directories(Path::new(POSTGRES_VERSIONS))
        .into_iter()
        .chain(path_directories())
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
        .ok_or(MissingProgram { program, package })
}

/// The directories of `PATH`, plus those of servers, which root's `PATH` may lack.
fn path_directories() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    env::split_paths(&path).chain(system).collect()
}

/// Newest version first.
fn postgres_directories(versions: &Path) -> Vec<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(versions)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, directory)| directory).collect()
}

#[cfg(test)]
mod tests {
    use super::{find_program, postgres_directories};

    #[test]
    fn the_newest_postgresql_is_taken_by_number_not_by_letters() {
        let root = tempfile::tempdir().unwrap();
        for name in ["9", "15", "16", "common"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        let found = postgres_directories(root.path());
        let expected = ["16", "15", "9"].map(|v| root.path().join(v).join("bin"));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_missing_program_is_reported_with_the_package_and_the_command() {
        let error = find_program("no-such-program", "the-package").unwrap_err().to_string();
        assert!(error.contains("`no-such-program` is not installed"), "{error}");
        assert!(error.contains("apt-get install --no-install-recommends the-package"), "{error}");
    }
}
