//! Finds inputs that never end, or that kill the process without any message.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// A parser that takes longer for one input hangs.
const HANG_MAX: Duration = Duration::from_secs(50);

/// Keeps the current input in a file, and aborts the process if it takes too long.
pub(super) struct Watchdog {
    path: PathBuf,
    file: Option<File>,
    number: Arc<AtomicU64>,
    _ends: Sender<()>,
}

impl Watchdog {
    pub(super) fn start(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fuzz-{name}-{}", std::process::id()));
        let file = File::create(&path).ok();
        eprintln!(
            "{name}: if this process dies, the input that caused it is in {}",
            path.display()
        );
        let (ends, ended) = mpsc::channel();
        let number = Arc::<AtomicU64>::default();
        let (watched, about) = (number.clone(), format!("{name}: {}", path.display()));
        thread::spawn(move || {
            let mut seen = 0;
            while ended.recv_timeout(HANG_MAX) == Err(RecvTimeoutError::Timeout) {
                let now = watched.load(Ordering::Relaxed);
                if now == seen {
                    eprintln!("{about}: this input does not end");
                    std::process::abort();
                }
                seen = now;
            }
        });
        Self { path, file, number, _ends: ends }
    }

    pub(super) fn looks_at(&mut self, input: &[u8]) {
        self.number.fetch_add(1, Ordering::Relaxed);
        if let Some(file) = &self.file {
            // The run goes on without the file, which only helps to find the cause of a crash.
            let _ = file.write_all_at(input, 0).and_then(|()| file.set_len(input.len() as u64));
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
