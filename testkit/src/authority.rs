//! Certificates for tests of TLS.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::find_program;
use crate::process::run;

/// A certificate authority, and the certificate and key that it issued for a server at 127.0.0.1, in PEM. Its files
/// are deleted on drop.
pub struct Authority {
    folder: TempDir,
}

impl Authority {
    /// Makes both with `openssl`, valid for two days.
    pub fn new() -> Result<Self, String> {
        let authority = Self { folder: tempfile::tempdir().map_err(|e| e.to_string())? };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
        let root = format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=authority");
        authority.openssl(&root)?;
        authority.openssl(&format!(
            "req -x509 {key} -keyout server.key -out server.pem -subj /CN=server -CA ca.pem -CAkey \
             ca.key -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
        ))?;
        Ok(authority)
    }

    fn openssl(&self, arguments: &str) -> Result<(), String> {
        let mut command = Command::new(find_program("openssl", "openssl")?);
        run(command.args(arguments.split_whitespace()).current_dir(&self.folder)).map(drop)
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The file with the authority's certificate, which clients trust.
    pub fn roots(&self) -> String {
        self.file("ca.pem")
    }

    /// The files of the server's certificate and private key.
    pub fn server_files(&self) -> (String, String) {
        (self.file("server.pem"), self.file("server.key"))
    }

    /// The contents of these files.
    pub fn server(&self) -> Result<(String, String), String> {
        let (certificate, key) = self.server_files();
        let read = |path: String| fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"));
        Ok((read(certificate)?, read(key)?))
    }
}
