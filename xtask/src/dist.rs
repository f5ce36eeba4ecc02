//! `cargo xtask dist`: what a release publishes: an archive, a Debian package, a list of all parts (SBOM), checksums.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::files::{copy, write};
use crate::{cargo, step};

const PACKAGE: &str = "seriatim-server";
/// As CycloneDX writes it.
const SBOM: &str = "seriatim.cdx";
const SBOM_INSTALL: &str =
    "the list of parts needs cargo-cyclonedx: cargo install --locked cargo-cyclonedx";
/// Files of the repository that go along.
const FILES: [&str; 7] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
];
/// Folders of which all files go along: the pages, which name each other.
const PAGES: [&str; 4] = ["docs", "docs/charts", "docs/decisions", "docs/images"];
/// And what is to deploy.
const DEPLOY: &str = "deploy";
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "seriatim.bash"), ("zsh", "_seriatim"), ("fish", "seriatim.fish")];
/// Where the archive's files belong on a Debian system.
const INSTALLED: [(&str, &str); 11] = [
    ("seriatim", "usr/bin/seriatim"),
    ("man/seriatim.1", "usr/share/man/man1/seriatim.1"),
    ("completions/seriatim.bash", "usr/share/bash-completion/completions/seriatim"),
    ("completions/_seriatim", "usr/share/zsh/vendor-completions/_seriatim"),
    ("completions/seriatim.fish", "usr/share/fish/vendor_completions.d/seriatim.fish"),
    ("deploy/seriatim.service", "usr/lib/systemd/system/seriatim.service"),
    ("deploy/seriatim.toml", "etc/seriatim/seriatim.toml"),
    ("README.md", "usr/share/doc/seriatim/README.md"),
    ("CHANGELOG.md", "usr/share/doc/seriatim/CHANGELOG.md"),
    ("LICENSE-MIT", "usr/share/doc/seriatim/copyright"),
    ("LICENSE-APACHE", "usr/share/doc/seriatim/LICENSE-APACHE"),
];

/// Makes everything in `target/releases/VERSION`.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let build =
        ["build", "--profile", "dist", "--locked", "--package", PACKAGE, "--features", "otlp"];
    step::run("cargo build --profile dist", &mut cargo::command(root, &build))?;
    let release = Release::new(root)?;
    release.archive()?;
    release.debian()?;
    release.parts()?;
    release.checksums()?;
    println!("{}", release.folder.display());
    Ok(())
}

struct Release<'a> {
    root: &'a Path,
    /// What is published.
    folder: PathBuf,
    version: String,
    /// As Rust names the machine: `x86_64-unknown-linux-gnu`.
    target: String,
}

impl<'a> Release<'a> {
    fn new(root: &'a Path) -> Result<Self, String> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let about = said(Command::new("rustc").arg("-vV"))?;
        let target = about.lines().find_map(|line| line.strip_prefix("host: "));
        let target = target.ok_or("rustc -vV names no host")?.to_owned();
        let folder = root.join("target/releases").join(&version);
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        Ok(Self { root, folder, version, target })
    }

    fn binary(&self) -> PathBuf {
        self.root.join("target/dist/seriatim")
    }

    fn name(&self) -> String {
        format!("seriatim-{}-{}", self.version, self.target)
    }

    /// The binary with its texts, as `.tar.gz`.
    fn archive(&self) -> Result<(), String> {
        let stage = self.folder.join(self.name());
        copy(&self.binary(), &stage.join("seriatim"))?;
        for file in FILES {
            copy(&self.root.join(file), &stage.join(file))?;
        }
        for folder in PAGES.into_iter().chain([DEPLOY]) {
            copy_files(&self.root.join(folder), &stage.join(folder))?;
        }
        for (shell, name) in COMPLETIONS {
            let text = said(Command::new(self.binary()).args(["completions", shell]))?;
            write(&stage.join("completions").join(name), &text)?;
        }
        let page = said(Command::new(self.binary()).arg("man"))?;
        write(&stage.join("man/seriatim.1"), &page)?;
        let mut tar = Command::new("tar");
        tar.args(["--create", "--gzip", "--sort=name", "--owner=0", "--group=0", "--file"])
            .arg(format!("{}.tar.gz", self.name()))
            .arg(self.name())
            .current_dir(&self.folder);
        step::run("tar", &mut tar)
    }

    /// The same as a Debian package, with a unit that is not started by itself.
    fn debian(&self) -> Result<(), String> {
        let stage = self.folder.join(self.name());
        let package = self.folder.join("debian");
        for (file, place) in INSTALLED {
            copy(&stage.join(file), &package.join(place))?;
        }
        for folder in PAGES {
            copy_files(&stage.join(folder), &package.join("usr/share/doc/seriatim").join(folder))?;
        }
        let unit = package.join("usr/lib/systemd/system/seriatim.service");
        let text = fs::read_to_string(&unit).map_err(|e| format!("{}: {e}", unit.display()))?;
        write(&unit, &text.replace("/usr/local/bin/", "/usr/bin/"))?;
        write(&package.join("DEBIAN/control"), &self.control()?)?;
        write(&package.join("DEBIAN/conffiles"), "/etc/seriatim/seriatim.toml\n")?;
        let mut build = Command::new("dpkg-deb");
        build.args(["--root-owner-group", "--build", "debian", "."]).current_dir(&self.folder);
        step::run("dpkg-deb", &mut build)?;
        fs::remove_dir_all(&package).map_err(|e| format!("{}: {e}", package.display()))
    }

    fn control(&self) -> Result<String, String> {
        let machine = said(Command::new("dpkg").arg("--print-architecture"))?;
        Ok(format!(
            "Package: seriatim\nVersion: {}\nArchitecture: {}\nMaintainer: The Seriatim authors\n\
             Section: database\nPriority: optional\nDepends: libc6 (>= {}), ca-certificates\n\
             Homepage: https://github.com/seriatim/seriatim\n\
             Description: background jobs in order per key, in parallel everywhere else\n \
             A node of a job queue on SQLite, PostgreSQL, MySQL or Redis: an HTTP API, workers in\n \
             any language, a dashboard.\n",
            self.version,
            machine.trim(),
            self.oldest_libc()?,
        ))
    }

    /// The newest version of libc whose functions the binary calls.
    fn oldest_libc(&self) -> Result<String, String> {
        let symbols = said(Command::new("readelf").args(["-V", "-W"]).arg(self.binary()))?;
        let versions = symbols.match_indices("GLIBC_").filter_map(|(at, mark)| {
            let version: String = symbols[at + mark.len()..]
                .chars()
                .take_while(|c| c.is_ascii_digit() || *c == '.')
                .collect();
            let numbers: Option<Vec<u32>> = version.split('.').map(|n| n.parse().ok()).collect();
            Some((numbers?, version))
        });
        versions.max().map(|(_, version)| version).ok_or_else(|| "no libc in it".to_owned())
    }

    /// All crates in the binary, with version and licence.
    fn parts(&self) -> Result<(), String> {
        if !cargo::has(self.root, "cyclonedx") {
            return Err(SBOM_INSTALL.to_owned());
        }
        let manifest = format!("{PACKAGE}/Cargo.toml");
        let args = ["cyclonedx", "--manifest-path", &manifest, "--features", "otlp"];
        let more = ["--format", "json", "--override-filename", SBOM];
        step::run("cargo cyclonedx", cargo::command(self.root, &args).args(more))?;
        // It writes beside the manifest of every crate of the workspace.
        for member in ["guide", "seriatim", "seriatim-verify", "testkit", "xtask"] {
            let _ = fs::remove_file(self.root.join(member).join(format!("{SBOM}.json")));
        }
        let made = self.root.join(PACKAGE).join(format!("{SBOM}.json"));
        copy(&made, &self.folder.join(format!("{}.cdx.json", self.name())))?;
        fs::remove_file(&made).map_err(|e| format!("{}: {e}", made.display()))
    }

    fn checksums(&self) -> Result<(), String> {
        let entries = fs::read_dir(&self.folder).map_err(|e| e.to_string())?;
        let mut names: Vec<_> = entries
            .flatten()
            .filter(|entry| entry.path().is_file())
            .map(|entry| entry.file_name())
            .collect();
        names.sort();
        let sums = said(Command::new("sha256sum").args(names).current_dir(&self.folder))?;
        print!("{sums}");
        write(&self.folder.join("SHA256SUMS"), &sums)
    }
}

/// Copies the files of a folder, not the folders in it.
fn copy_files(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", from.display());
    for entry in fs::read_dir(from).map_err(failed)? {
        let file = entry.map_err(failed)?;
        if file.path().is_file() {
            copy(&file.path(), &to.join(file.file_name()))?;
        }
    }
    Ok(())
}

/// What a command prints.
fn said(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("{name}: cannot start: {e}"))?;
    if !output.status.success() {
        return Err(format!("{name}: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("{name}: {e}"))
}
