//! The Debian packages that the tests need.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use seriatim_testkit::{MissingProgram, find_program};

use crate::step;

/// Program and package. The compiler builds SQLite from its source.
const NEEDED: [(&str, &str); 14] = [
    ("cc", "gcc"),
    ("chromium", "chromium"),
    ("chromedriver", "chromium-driver"),
    ("curl", "curl"),
    ("openssl", "openssl"),
    ("pgbouncer", "pgbouncer"),
    ("postgres", "postgresql"),
    ("mariadbd", "mariadb-server"),
    ("redis-server", "redis-server"),
    ("python3", "python3"),
    ("node", "nodejs"),
    ("rsync", "rsync"),
    ("ruby", "ruby"),
    ("sqlite3", "sqlite3"),
];

/// What Ruby can require, and its package.
const NEEDED_OF_RUBY: [(&str, &str); 4] = [
    ("pg", "ruby-pg"),
    ("sidekiq", "ruby-sidekiq"),
    ("active_job", "ruby-activejob"),
    ("sidekiq-cron", "ruby-sidekiq-cron"),
];

/// What the system's Python can import, and its package. Another Python may come before it in `PATH`.
const NEEDED_OF_PYTHON: [(&str, &str); 1] = [("pymysql", "python3-pymysql")];

/// Installs missing packages if that is possible without asking: as root, on Debian. Otherwise the error says what to
/// install and how.
pub(crate) fn ensure() -> Result<(), String> {
    ensure_with(&[])
}

/// The same, and these programs of these packages too.
pub(crate) fn ensure_with(more: &[(&'static str, &'static str)]) -> Result<(), String> {
    let missing = missing(more);
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() || find_program("apt-get", "apt").is_err() {
        return Err(advice(&missing));
    }
    install(&missing)?;
    let still_missing = self::missing(more);
    if still_missing.is_empty() { Ok(()) } else { Err(advice(&still_missing)) }
}

fn missing(more: &[(&'static str, &'static str)]) -> Vec<MissingProgram> {
    let programs = NEEDED
        .into_iter()
        .chain(more.iter().copied())
        .filter(|(program, _)| *program != "cc" || env::var_os("CC").is_none())
        .filter_map(|(program, package)| find_program(program, package).err());
    let of_ruby =
        NEEDED_OF_RUBY.into_iter().filter(|(name, _)| !runs("ruby", &["-r", name, "-e", ""]));
    let of_python = NEEDED_OF_PYTHON
        .into_iter()
        .filter(|(name, _)| !runs("/usr/bin/python3", &["-c", &format!("import {name}")]));
    let libraries = of_ruby.chain(of_python);
    let libraries = libraries.map(|(program, package)| MissingProgram { program, package });
    programs.chain(libraries).collect()
}

/// Whether a program is there and succeeds.
pub(crate) fn runs(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn advice(missing: &[MissingProgram]) -> String {
    let programs: Vec<String> = missing.iter().map(|m| format!("`{}`", m.program)).collect();
    let packages: Vec<&str> = missing.iter().map(|m| m.package).collect();
    format!(
        "The tests need {}, and nothing was run.\n\
         On Debian and Ubuntu: sudo apt-get install --no-install-recommends {}\n\
         Elsewhere: install a C compiler, PostgreSQL, MariaDB, Redis, Chromium with its driver, rsync, the shell of SQLite, Python with PyMySQL, Node, and Ruby with pg, Sidekiq 6.4, sidekiq-cron and ActiveJob so that these are in PATH.",
        programs.join(", "),
        packages.join(" ")
    )
}

fn is_root() -> bool {
    // A process owns its directory in /proc.
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn install(missing: &[MissingProgram]) -> Result<(), String> {
    let _no_services = NoServices::declare(Path::new("/usr/sbin/policy-rc.d"));
    step::run("apt-get update", &mut apt(&["update", "-qq"]))?;
    let mut install = apt(&["install", "-qq", "-y", "--no-install-recommends"]);
    install.args(missing.iter().map(|m| m.package));
    step::run("apt-get install", &mut install)
}

fn apt(args: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command
        .args(["-o", "DPkg::Lock::Timeout=300"])
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null());
    command
}

/// While this lives, packages do not start the services that they install: our servers are private, and the machine
/// should not get a database on a standard port.
struct NoServices {
    /// `None` if the machine has its own policy, which is left as it is.
    policy: Option<PathBuf>,
}

impl NoServices {
    fn declare(policy: &Path) -> Self {
        let declared = !policy.exists() && write_policy(policy).is_ok();
        Self { policy: declared.then(|| policy.to_path_buf()) }
    }
}

fn write_policy(policy: &Path) -> std::io::Result<()> {
    // 101 is Debian's "action forbidden by policy".
    fs::write(policy, "#!/bin/sh\nexit 101\n")?;
    fs::set_permissions(policy, Permissions::from_mode(0o755))
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if let Some(policy) = &self.policy
            && let Err(error) = fs::remove_file(policy)
        {
            eprintln!("remove {} yourself: {error}", policy.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NoServices;
    use std::fs;

    #[test]
    fn a_policy_of_the_machine_is_left_alone_and_ours_is_removed() {
        let directory = std::env::temp_dir().join(format!("policy-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let policy = directory.join("policy-rc.d");

        drop(NoServices::declare(&policy));
        assert!(!policy.exists());

        fs::write(&policy, "theirs").unwrap();
        drop(NoServices::declare(&policy));
        assert_eq!(fs::read_to_string(&policy).unwrap(), "theirs");
        fs::remove_dir_all(directory).unwrap();
    }
}
