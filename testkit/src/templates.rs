//! Data directories of new servers, made once for a run of many tests: making one takes seconds, copying it a moment.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::account::Account;
use crate::directory::{Directory, create_for};
use crate::process::run;

/// The variable with the directory of the templates. If unset, each server creates its own data.
const VARIABLE: &str = "SERIATIM_TEST_TEMPLATES";

/// A directory for the templates of one run, removed on drop.
#[derive(Debug)]
pub struct Templates {
    directory: Directory,
}

impl Templates {
    /// Creates an empty one.
    pub fn create() -> Result<Self, String> {
        Ok(Self { directory: Directory::create()? })
    }

    /// The variable that passes it to tests, and its value.
    pub fn variable(&self) -> (&'static str, String) {
        (VARIABLE, self.directory.path().display().to_string())
    }
}

/// Fills the empty directory `data` with what `create` puts into a directory of `account`: itself, or for the first of all
/// tests.
pub(crate) fn fill(
    name: &str,
    account: Option<Account>,
    data: &Path,
    create: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<(), String> {
    let Some(templates) = env::var_os(VARIABLE).map(PathBuf::from) else { return create(data) };
    let (template, new) = (templates.join(name), templates.join(format!("{name}.new")));
    let describe = |e| format!("cannot make a template in {}: {e}", templates.display());
    let lock = File::create(templates.join(format!("{name}.lock"))).map_err(describe)?;
    lock.lock().map_err(describe)?;
    if !template.exists() {
        // Whoever was killed while making it has left a part.
        if new.exists() {
            fs::remove_dir_all(&new).map_err(describe)?;
        }
        create_for(account, &new)?;
        create(&new)?;
        fs::rename(&new, &template).map_err(describe)?;
    }
    drop(lock);
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(template.join(".")).arg(data);
    run(&mut copy).map(drop)
}
