//! Determines whether a process is gone, from `/proc` and signals only. If that cannot be read or compared, the
//! process counts as alive, and its lease decides.

use std::sync::OnceLock;

use crate::contract::Origin;

/// The fields of `/proc/PID/stat` that are used here.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Whether it has ended, even if its parent has not reaped it.
    pub has_ended: bool,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// When it started, in ticks since the kernel did.
    pub started: u64,
}

impl ProcessStat {
    /// Reads it; `None` if it cannot be read or understood.
    pub fn of(pid: &str) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, and may contain anything.
        let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let threads: u32 = field(20)?.parse().ok()?;
        // The first thread may end before the others; the process is alive then.
        let has_ended = matches!(field(3)?, "Z" | "X") && threads <= 1;
        Some(Self {
            has_ended,
            group: field(5)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            started: field(22)?.parse().ok()?,
        })
    }
}

impl Origin {
    /// The origin of this process; `None` on systems without `/proc`.
    pub fn of_this_process() -> Option<Self> {
        static OWN: OnceLock<Option<Origin>> = OnceLock::new();
        OWN.get_or_init(read_own).clone()
    }

    /// Whether its process is certainly gone, as this process sees it. False if it is alive, on another machine or in
    /// another container, or if that is unknown.
    pub fn is_gone(&self) -> bool {
        Self::of_this_process().is_some_and(|here| self.is_gone_from(&here))
    }

    /// The same, seen from a process at `here`.
    pub(in crate::engine) fn is_gone_from(&self, here: &Self) -> bool {
        if self.place != here.place || (self.pid, self.started) == (here.pid, here.started) {
            return false;
        }
        match ProcessStat::of(&self.pid.to_string()) {
            Some(stat) => stat.has_ended || stat.started != self.started,
            // Other users' processes may be hidden in `/proc`, but signals reach them.
            None => !exists(self.pid),
        }
    }
}

fn read_own() -> Option<Origin> {
    let stat = ProcessStat::of("self")?;
    let line = |path: &str| Some(std::fs::read_to_string(path).ok()?.trim().to_owned());
    let namespace = |name: &str| {
        let link = std::fs::read_link(format!("/proc/self/ns/{name}")).ok()?;
        Some(link.to_string_lossy().into_owned())
    };
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let parts = [
        line("/proc/sys/kernel/random/boot_id")?,
        namespace("pid")?,
        // Start times differ between time namespaces. Old kernels have none.
        namespace("time").unwrap_or_default(),
        line("/proc/sys/kernel/hostname")?,
        users.split_whitespace().next()?.to_owned(),
    ];
    Some(Origin {
        place: parts.join(" "),
        pid: std::process::id(),
        started: stat.started,
        session: stat.session,
        programs: false,
    })
}

#[cfg(target_os = "linux")]
fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    // Any answer except "no such process" may mean a living process.
    pid.is_none_or(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

#[cfg(not(target_os = "linux"))]
fn exists(_: u32) -> bool {
    true
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_stat_is_read_whatever_the_program_is_called() {
        let numbers = "1 7 8 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 3 0 5150 0 0";
        let stat = ProcessStat::parse(&format!("42 (a) Z (b) S {numbers}")).unwrap();
        let expected = ProcessStat { has_ended: false, group: 7, session: 8, started: 5_150 };
        assert_eq!(stat, expected);
        let zombie = |threads| format!("42 (a) Z {}", numbers.replacen(" 3 ", threads, 1));
        assert!(!ProcessStat::parse(&zombie(" 3 ")).unwrap().has_ended, "its threads run");
        assert!(ProcessStat::parse(&zombie(" 1 ")).unwrap().has_ended);
        assert_eq!(ProcessStat::parse("42 (a"), None);
        assert_eq!(ProcessStat::parse("42 (a) S 1 2"), None);
    }

    #[test]
    fn a_process_is_gone_when_its_id_is_free_or_another_s_and_only_here() {
        let own = Origin::of_this_process().unwrap();
        assert!(!own.is_gone(), "it is this one");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let started = ProcessStat::of(&pid.to_string()).unwrap().started;
        let child_s = Origin { pid, started, ..own.clone() };
        assert!(!child_s.is_gone());
        assert!(
            Origin { started: started + 1, ..child_s.clone() }.is_gone(),
            "the id is another's"
        );
        child.kill().unwrap();
        while !ProcessStat::of(&pid.to_string()).unwrap().has_ended {
            std::thread::yield_now();
        }
        assert!(child_s.is_gone(), "it has ended, not reaped");
        child.wait().unwrap();
        assert!(child_s.is_gone());
        assert!(!Origin { place: "elsewhere".into(), ..child_s }.is_gone());
    }
}
