//! `cargo xtask dist`: what a release publishes: an archive, a Debian package, a list of all parts (SBOM), checksums.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::files::{self, copy, write};
use crate::links::{is_page, linked};
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
/// Folders of which all files go along: the pages, and what they name.
const FOLDERS: [&str; 4] = ["clients/", "deploy/", "docs/", "examples/"];
/// Programs use these, which Debian's rules do not allow below `usr/share/doc`.
const CLIENTS: &str = "clients";
const DEBIAN_SHARE: &str = "usr/share/seriatim";
const DEBIAN_DOC: &str = "usr/share/doc/seriatim";
/// So that links between the two lead somewhere.
const DEBIAN_LINKS: [(&str, &str); 3] = [
    ("usr/share/doc/seriatim/clients", "../../seriatim/clients"),
    ("usr/share/seriatim/docs", "../doc/seriatim/docs"),
    ("usr/share/seriatim/examples", "../doc/seriatim/examples"),
];
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "seriatim.bash"), ("zsh", "_seriatim"), ("fish", "seriatim.fish")];
/// Where the archive's files belong on a Debian system.
const INSTALLED: [(&str, &str); 7] = [
    ("seriatim", "usr/bin/seriatim"),
    ("man/seriatim.1", "usr/share/man/man1/seriatim.1"),
    ("completions/seriatim.bash", "usr/share/bash-completion/completions/seriatim"),
    ("completions/_seriatim", "usr/share/zsh/vendor-completions/_seriatim"),
    ("completions/seriatim.fish", "usr/share/fish/vendor_completions.d/seriatim.fish"),
    ("deploy/seriatim.service", "usr/lib/systemd/system/seriatim.service"),
    ("deploy/seriatim.toml", "etc/seriatim/seriatim.toml"),
];
const COPYRIGHT: &str = "usr/share/doc/seriatim/copyright";
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];
/// What dpkg runs. A node that runs goes on with the old program until it is restarted: when, its operator decides.
const SCRIPTS: [(&str, &str); 2] = [
    (
        "postinst",
        "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then systemctl daemon-reload; fi\n",
    ),
    (
        "prerm",
        "#!/bin/sh\nset -e\n\
         if [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then systemctl stop seriatim.service; fi\n",
    ),
];
/// Of Ubuntu 22.04, the oldest system of docs/deploy.md: what is built on a newer one may not run there.
const LIBC_MAX: [u32; 2] = [2, 35];

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
    /// Files of the repository that go along.
    texts: BTreeSet<String>,
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
        let mut texts = files::list(root)?;
        texts.retain(|path| {
            FILES.contains(&path.as_str()) || FOLDERS.iter().any(|folder| path.starts_with(folder))
        });
        Ok(Self { root, folder, texts, version, target })
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
        for path in &self.texts {
            self.text(path, &stage.join(path))?;
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

    /// A file of the repository. Pages name what does not go along by its address.
    fn text(&self, path: &str, place: &Path) -> Result<(), String> {
        let from = self.root.join(path);
        if !is_page(path) {
            return copy(&from, place);
        }
        let page = fs::read_to_string(&from).map_err(|e| format!("{path}: {e}"))?;
        let tag = format!("v{}", self.version);
        write(place, &linked(&page, path, &tag, |file| self.goes_along(file)))
    }

    /// Whether this file goes along, or one of this folder.
    fn goes_along(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let is_below = |text: &String| {
            text.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.texts.iter().any(is_below)
    }

    /// The same as a Debian package, with a unit that is not started by itself.
    fn debian(&self) -> Result<(), String> {
        let stage = self.folder.join(self.name());
        let package = self.folder.join("debian");
        for (file, place) in INSTALLED {
            copy(&stage.join(file), &package.join(place))?;
        }
        for path in &self.texts {
            let is_client = Path::new(path).starts_with(CLIENTS);
            let folder = if is_client { DEBIAN_SHARE } else { DEBIAN_DOC };
            copy(&stage.join(path), &package.join(folder).join(path))?;
        }
        for (link, target) in DEBIAN_LINKS {
            symlink(target, package.join(link)).map_err(|e| format!("{link}: {e}"))?;
        }
        let unit = package.join("usr/lib/systemd/system/seriatim.service");
        let text = fs::read_to_string(&unit).map_err(|e| format!("{}: {e}", unit.display()))?;
        write(&unit, &text.replace("/usr/local/bin/", "/usr/bin/"))?;
        write(&package.join(COPYRIGHT), &copyright(self.root)?)?;
        write(&package.join("DEBIAN/control"), &self.control()?)?;
        write_scripts(&package.join("DEBIAN"))?;
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

    fn oldest_libc(&self) -> Result<String, String> {
        oldest_libc(&said(Command::new("readelf").args(["-V", "-W"]).arg(self.binary()))?)
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
        let text = fs::read_to_string(&made).map_err(|e| format!("{}: {e}", made.display()))?;
        // Names of our crates have the folder in which they were built.
        let text = text.replace(&format!("{}/", self.root.display()), "");
        write(&self.folder.join(format!("{}.cdx.json", self.name())), &text)?;
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

/// The newest version of libc whose functions a binary calls, from what readelf says of it.
fn oldest_libc(symbols: &str) -> Result<String, String> {
    let versions = symbols.match_indices("GLIBC_").filter_map(|(at, mark)| {
        let version: String = symbols[at + mark.len()..]
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == '.')
            .collect();
        let numbers: Option<Vec<u32>> = version.split('.').map(|n| n.parse().ok()).collect();
        Some((numbers?, version))
    });
    let (numbers, version) = versions.max().ok_or("the binary calls no libc")?;
    if numbers[..] > LIBC_MAX[..] {
        let [major, minor] = LIBC_MAX;
        return Err(format!(
            "the binary needs glibc {version}, and docs/deploy.md promises {major}.{minor}: build it on an older system"
        ));
    }
    Ok(version)
}

/// Both licences: the user chooses.
fn copyright(root: &Path) -> Result<String, String> {
    let mut text = "Seriatim is licensed under either of these, at your option.\n".to_owned();
    for name in LICENCES {
        let licence = fs::read_to_string(root.join(name)).map_err(|e| format!("{name}: {e}"))?;
        text = text + "\n" + &licence;
    }
    Ok(text)
}

fn write_scripts(folder: &Path) -> Result<(), String> {
    for (name, text) in SCRIPTS {
        let path = folder.join(name);
        write(&path, text)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))
            .map_err(|e| format!("{}: {e}", path.display()))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_for_a_newer_libc_than_that_of_the_oldest_system_is_refused() {
        let symbols =
            |newest: &str| format!("Name: GLIBC_2.9 Flags: none\nName: GLIBC_{newest} Flags");
        assert_eq!(oldest_libc(&symbols("2.34")), Ok("2.34".to_owned()));
        assert!(oldest_libc(&symbols("2.36")).is_err_and(|error| error.contains("glibc 2.36")));
    }

    #[test]
    fn the_package_has_both_licences_and_scripts_that_a_shell_reads() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let copyright = copyright(root).unwrap();
        assert!(copyright.contains("MIT License") && copyright.contains("Apache License"));
        let folder = std::env::temp_dir().join(format!("seriatim-scripts-{}", std::process::id()));
        write_scripts(&folder).unwrap();
        for (name, _) in SCRIPTS {
            let path = folder.join(name);
            let status = Command::new("sh").arg("-n").arg(&path).status();
            assert!(status.is_ok_and(|status| status.success()), "{name}");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755, "{name}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
