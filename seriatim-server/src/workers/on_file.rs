//! Programs that work on one file, which they get as their stdin: by its name it could be another file by then.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Stdio;

use seriatim::Context;
use tokio::io::AsyncRead;
use tokio::process::{ChildStdout, Command};

use super::files::Trouble;
use super::group::Group;
use super::lines::{LOG_LINE_BYTES_MAX, Lines, Tail};

/// Runs a program to its end. `hint` is added to the error if the program is missing; `hear` reads its output.
pub(super) async fn run(
    command: Command,
    (file, path): (&File, &Path),
    context: &Context,
    hint: &str,
    hear: impl AsyncFnOnce(ChildStdout),
) -> Result<(), Trouble> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let stdin = file.try_clone().map_err(|error| Trouble::at(path, error))?;
    let started = Group::spawn(command, Stdio::from(stdin)).await;
    let (group, mut child) = started.map_err(|error| {
        let hint = if error.kind() == ErrorKind::NotFound { hint } else { "" };
        Trouble::Unstartable(format!("{name}: {error}{hint}"))
    })?;
    let mut words = Tail::default();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let heard = async {
        if let Some(stdout) = stdout {
            hear(stdout).await;
        }
    };
    let reading = async {
        tokio::join!(heard, each_line(stderr, |line| words.add(line)));
    };
    let ended = group.ended_and_read(&mut child, context.cancelled(), reading).await;
    if context.is_cancelled() {
        return Err(Trouble::Stopped);
    }
    match ended.map(|ended| ended.status) {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            let words = words.text().map(|words| format!(":\n{words}")).unwrap_or_default();
            Err(Trouble::Retry(format!("{name} ended with {status}{words}")))
        }
        Err(error) => Err(Trouble::Retry(format!("{name}: its exit status is unknown: {error}"))),
    }
}

pub(super) async fn each_line(from: Option<impl AsyncRead + Unpin>, mut hear: impl FnMut(&str)) {
    let Some(from) = from else { return };
    let mut lines = Lines::new(from, LOG_LINE_BYTES_MAX);
    while let Some(line) = lines.next().await {
        hear(&line.text);
    }
}
