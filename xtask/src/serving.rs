//! Processes of `seriatim serve`, for measurements.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use seriatim_testkit::{Mysql, MysqlOptions, Postgres, PostgresOptions, Redis};

use crate::{cargo, files, step};

/// For a server to start.
const START: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
/// Of a database server: a hundred processes start at once.
const CONNECTIONS_MAX: u16 = 1_000;

/// The program that the measurements run.
pub(crate) fn program(root: &Path) -> PathBuf {
    root.join("target/release/seriatim")
}

/// Builds it.
pub(crate) fn build(root: &Path) -> Result<(), String> {
    let args = ["build", "--release", "--package", "seriatim-server"];
    step::run("build", &mut cargo::command(root, &args))
}

/// Killed on drop.
#[derive(Default)]
pub(crate) struct Serving(pub(crate) Vec<Child>);

impl Drop for Serving {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Serving {
    /// Starts one more, of the release build.
    pub(crate) fn start(
        &mut self,
        root: &Path,
        config: &Path,
        args: &[&str],
    ) -> Result<(), String> {
        let mut command = Command::new(program(root));
        command.arg("serve").args(args).arg("--config").arg(config);
        command.env("SERIATIM_LOG", "error").stdin(Stdio::null()).stdout(Stdio::null());
        self.0.push(command.spawn().map_err(|e| format!("seriatim serve: {e}"))?);
        Ok(())
    }
}

/// With the URL of a private server of this kind, or of a new file.
pub(crate) fn with_store<T>(
    root: &Path,
    store: &str,
    run: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, String> {
    match store {
        "sqlite" => {
            let folder = root.join("target/serving");
            files::new_folder(&folder)?;
            let result = run(&format!("sqlite:{}/store.db", folder.display()));
            let _ = fs::remove_dir_all(&folder);
            result
        }
        "postgres" => {
            let options =
                PostgresOptions { connections_max: CONNECTIONS_MAX, ..Default::default() };
            run(&Postgres::start_with(options)?.url())
        }
        "mysql" => {
            let options = MysqlOptions { connections_max: CONNECTIONS_MAX, ..Default::default() };
            run(&Mysql::start_with(options)?.url())
        }
        _ => run(&Redis::start()?.url()),
    }
}

pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf, String> {
    let path = folder.join(name);
    files::write(&path, text)?;
    Ok(path)
}

/// Until it is ready to work.
pub(crate) fn wait_for(port: u16) -> Result<(), String> {
    let until = Instant::now() + START;
    while let Err(why) = ask(port, "/ready", None) {
        if Instant::now() > until {
            return Err(format!("not ready after {START:?}: {why}"));
        }
        sleep(LOOK);
    }
    Ok(())
}

/// The body of the answer; an error unless its status is one of 200 to 399.
pub(crate) fn ask(port: u16, what: &str, body: Option<&str>) -> Result<String, String> {
    ask_with(port, "", what, body)
}

/// The same with more headers, each as a line with its end.
pub(crate) fn ask_with(
    port: u16,
    headers: &str,
    what: &str,
    body: Option<&str>,
) -> Result<String, String> {
    let failed = |e: std::io::Error| format!("{what}: {e}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    // Of a long answer version 1.1 would send parts with their lengths between them.
    let method = if body.is_some() { "POST" } else { "GET" };
    let body = body.unwrap_or_default();
    write!(
        stream,
        "{method} {what} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nConnection: close\r\n\
         {headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    match (answer.split(' ').nth(1), answer.split_once("\r\n\r\n")) {
        (Some(status), Some((_, body))) if status.starts_with(['2', '3']) => Ok(body.to_owned()),
        _ => Err(format!("{what} was answered: {answer}")),
    }
}
