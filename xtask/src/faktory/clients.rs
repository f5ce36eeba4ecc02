//! The clients: where they come from, and how their programs in `bench/faktory` are run.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{cargo, files, step};

pub(super) struct Client {
    /// For `--only`, and the folder.
    pub(super) slug: &'static str,
    /// With the registry that has it.
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    program: Program,
}

enum Program {
    Node,
    /// The package and the script.
    Python(&'static str, &'static str),
    Rust,
    /// The repository of a gem, which Debian does not package. Its licence is LGPL: it is fetched, not stored here.
    Ruby(&'static str),
}

pub(super) const CLIENTS: [Client; 5] = [
    Client { slug: "node", name: "npm `faktory-worker`", version: "4.7.1", program: Program::Node },
    Client {
        slug: "python",
        name: "PyPI `faktory`",
        version: "1.0.0",
        program: Program::Python("faktory==1.0.0", "faktory_client.py"),
    },
    Client {
        slug: "pyfaktory",
        name: "PyPI `pyfaktory`",
        version: "0.2.13",
        program: Program::Python("pyfaktory==0.2.13", "pyfaktory_client.py"),
    },
    Client { slug: "rust", name: "crate `faktory`", version: "0.13.1", program: Program::Rust },
    Client {
        slug: "ruby",
        name: "gem `faktory_worker_ruby`",
        version: "2.2.0",
        program: Program::Ruby("https://github.com/contribsys/faktory_worker_ruby"),
    },
];

impl Client {
    pub(super) fn folder(&self, root: &Path) -> PathBuf {
        root.join("target/faktory").join(self.slug)
    }

    /// Fetches it into its folder, unless it is there.
    pub(super) fn install(&self, root: &Path) -> Result<(), String> {
        let (from, to) = (root.join("bench/faktory"), self.folder(root));
        files::copy_files(&from, &to)?;
        let mut command = match self.program {
            Program::Node => {
                let mut npm = Command::new("npm");
                npm.args(["install", "--silent", "--no-audit", "--no-fund"]).current_dir(&to);
                npm
            }
            Program::Python(..) if to.join("lib").exists() => return Ok(()),
            Program::Python(package, _) => {
                let mut pip = Command::new("python3");
                let install = ["-m", "pip", "install", "--quiet", "--target", "lib", package];
                pip.args(install).current_dir(&to);
                pip
            }
            Program::Rust => {
                let mut build =
                    cargo::command(&from.join("rust"), &["build", "--release", "--locked"]);
                build.env("CARGO_TARGET_DIR", to.join("target"));
                build
            }
            Program::Ruby(_) if to.join("gem").exists() => return Ok(()),
            Program::Ruby(source) => {
                let mut git = Command::new("git");
                let branch = format!("v{}", self.version);
                git.args(["clone", "--quiet", "--depth", "1", "--branch", &branch, source, "gem"]);
                git.current_dir(&to);
                git
            }
        };
        step::run(&format!("fetch {}", self.name), &mut command)
    }

    /// Its program, as `push JOBS KEYS`.
    pub(super) fn pushes(&self, root: &Path, jobs: u64, keys: u64) -> Command {
        self.command(root, &["push", &jobs.to_string(), &keys.to_string()])
    }

    /// Its program, as `work SLOTS`.
    pub(super) fn works(&self, root: &Path, slots: usize) -> Command {
        let slots = slots.to_string();
        match self.program {
            Program::Ruby(_) => {
                let mut ruby = Command::new("ruby");
                ruby.args(["-I", "gem/lib", "gem/bin/faktory-worker", "--require", "./client.rb"]);
                ruby.args(["--concurrency", &slots, "--queue", "ordered", "--queue", "default"]);
                ruby.current_dir(self.folder(root));
                ruby
            }
            _ => self.command(root, &["work", &slots]),
        }
    }

    fn command(&self, root: &Path, args: &[&str]) -> Command {
        let folder = self.folder(root);
        let mut command = match self.program {
            Program::Node => {
                let mut node = Command::new("node");
                node.arg("client.mjs");
                node
            }
            Program::Python(_, script) => {
                let mut python = Command::new("python3");
                python.arg(script).env("PYTHONPATH", folder.join("lib"));
                python
            }
            Program::Ruby(_) => {
                let mut ruby = Command::new("ruby");
                ruby.args(["-I", "gem/lib", "client.rb"]);
                ruby
            }
            Program::Rust => Command::new(folder.join("target/release/faktory-client")),
        };
        command.args(args).current_dir(folder);
        command
    }
}
