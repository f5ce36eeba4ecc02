//! Sleeps until somebody writes to a file, of which Linux tells (inotify), or until an alarm rings.

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{Alarm, Sentry};
#[cfg(target_os = "linux")]
pub(super) use linux::{Alarm, Sentry};

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::mem::MaybeUninit;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::Duration;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use rustix::fd::OwnedFd;
    use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
    use rustix::io::{Errno, read, write};

    /// Wakes the thread of a sentry.
    #[derive(Debug)]
    pub(in super::super) struct Alarm(OwnedFd);

    impl Alarm {
        /// Ends the thread's sleep, or the next one if it does not sleep.
        pub(in super::super) fn ring(&self) {
            // Fails only if it rings already, as often as it can count.
            let _ = write(&self.0, &1u64.to_ne_bytes());
        }
    }

    /// Hears of writes to one file. It does not open the file: closing it would drop the locks of all its connections.
    #[derive(Debug)]
    pub(in super::super) struct Sentry {
        file: PathBuf,
        events: OwnedFd,
        alarm: Arc<Alarm>,
    }

    impl Sentry {
        /// Fails if the file does not exist, or at a limit of the system: most have 128 of these for a user.
        pub(in super::super) fn of(file: &Path) -> io::Result<Self> {
            let file = file.to_owned();
            let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            let alarm = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let sentry = Self { file, events, alarm: Arc::new(Alarm(alarm)) };
            sentry.listen()?;
            Ok(sentry)
        }

        /// Listens for the next write. It hears of one alone: a store that writes without end pays for none.
        pub(in super::super) fn listen(&self) -> io::Result<()> {
            let next = WatchFlags::MODIFY | WatchFlags::ONESHOT;
            Ok(inotify::add_watch(&self.events, &self.file, next).map(drop)?)
        }

        pub(in super::super) fn alarm(&self) -> &Arc<Alarm> {
            &self.alarm
        }

        /// Sleeps until the alarm rings, the time is over or, if it `listens`, there is a write that was not yet
        /// [forgotten](Self::forget). True: there is one.
        pub(in super::super) fn sleep(&self, listens: bool, at_most: Duration) -> io::Result<bool> {
            let alarm = PollFd::new(&self.alarm.0, PollFlags::IN);
            let events = PollFd::new(&self.events, PollFlags::IN);
            let mut all = [alarm, events];
            let awaited = if listens { &mut all[..] } else { &mut all[..1] };
            let at_most = Timespec {
                tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: at_most.subsec_nanos().into(),
            };
            match poll(awaited, Some(&at_most)) {
                Ok(_) => {}
                Err(Errno::INTR) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
            if !all[0].revents().is_empty() {
                // It cannot be empty: only this thread reads it.
                let _ = read(&self.alarm.0, &mut [0; 8]);
            }
            Ok(!all[1].revents().is_empty())
        }

        /// Forgets what it has heard. True: there was a write.
        pub(in super::super) fn forget(&self) -> bool {
            // There are at most two events: a write, and that it listens no longer.
            let mut room = [MaybeUninit::uninit(); 512];
            Reader::new(&self.events, &mut room).next().is_ok()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::io;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    /// There is none.
    #[derive(Debug)]
    pub(in super::super) enum Alarm {}

    impl Alarm {
        pub(in super::super) fn ring(&self) {
            match *self {}
        }
    }

    /// There is none.
    #[derive(Debug)]
    pub(in super::super) enum Sentry {}

    impl Sentry {
        pub(in super::super) fn of(_: &Path) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn listen(&self) -> io::Result<()> {
            match *self {}
        }

        pub(in super::super) fn alarm(&self) -> &Arc<Alarm> {
            match *self {}
        }

        pub(in super::super) fn sleep(&self, _: bool, _: Duration) -> io::Result<bool> {
            match *self {}
        }

        pub(in super::super) fn forget(&self) -> bool {
            match *self {}
        }
    }
}
