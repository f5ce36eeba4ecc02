//! The dashboard: one frame as text, and in a terminal.

use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::{House, all, mail, order};
use crate::site::PATIENCE;

#[tokio::test]
async fn s9_one_frame_shows_queues_lanes_and_nodes() {
    let house = House::new().await;
    house.hand.push(order(1, 1)).await;
    house.hand.fail_all("orders", "no\u{1b}[2J stock").await;
    house.hand.push(order(2, 1)).await;
    assert_eq!(house.hand.claim("orders").await.len(), 1);
    house.hand.push(mail("ann")).await;
    house.text(&["queues", "pause", "mails"]);
    let frame = house.text(&["top", "--once"]);
    assert_eq!(frame.lines().count(), 24, "{frame}");
    assert!(frame.lines().all(|line| line.chars().count() <= 80), "{frame}");
    let parts = [
        "3 queues, 3 jobs, 1 running, 0 prefetched",
        "paused",
        "retrying orders",
        "order-1",
        "no\\u{1b}[2J st",
        "running  orders",
        "hand-1",
        "q quit",
    ];
    for part in parts {
        assert!(frame.contains(part), "{part}: {frame}");
    }
    let sample = house.json(&["top", "--once"]);
    assert_eq!(all(&sample["lanes"], "why"), ["retrying", "claimed"]);
    assert_eq!(all(&sample["nodes"], "running"), [1]);
    assert!(house.refused(&["top"], 2).contains("use --once"));
    assert!(house.refused(&["top", "--json"], 2).contains("--json needs --once"));
}

/// A dashboard in a pseudo-terminal of 80 by 24.
struct Dashboard {
    child: std::process::Child,
    keys: ChildStdin,
    screen: ChildStdout,
    seen: String,
}

impl Dashboard {
    fn open(house: &House) -> Self {
        let program = format!(
            "stty cols 80 rows 24; echo $$ > pid; exec {} top",
            env!("CARGO_BIN_EXE_seriatim")
        );
        let mut child = Command::new("script")
            .args(["-qec", &program, "/dev/null"])
            .current_dir(house.site.folder.path())
            .env_remove("SERIATIM_STORE")
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (keys, screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, keys, screen, seen: String::new() }
    }

    /// Reads until the screen has shown this.
    fn wait_for(&mut self, text: &str) {
        let mut bytes = [0; 4_096];
        while !self.seen.contains(text) {
            let read = self.screen.read(&mut bytes).unwrap();
            assert!(read > 0, "it ended without {text:?}: {:?}", self.seen);
            self.seen += &String::from_utf8_lossy(&bytes[..read]);
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for its end, and sees that it left the terminal as it was.
    fn assert_ends_well(mut self) {
        let mut rest = Vec::new();
        self.screen.read_to_end(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        self.seen += &String::from_utf8_lossy(&rest);
        let (entered, left) = ("\u{1b}[?1049h", "\u{1b}[?1049l");
        assert!(self.seen.contains(entered) && self.seen.contains(left), "{:?}", self.seen);
        assert!(
            self.seen.trim_end().ends_with("\u{1b}[?25h"),
            "the cursor is back: {:?}",
            self.seen
        );
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }
}

fn tell_to_stop(house: &House) {
    let pid = std::fs::read_to_string(house.site.path("pid")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

/// Until the store says so; the dashboard has nothing else to do.
async fn wait_until_paused(house: &House, queue: &str) {
    let mut wakeups = house.hand.store.wakeups();
    let started = std::time::Instant::now();
    loop {
        let stats = house.hand.store.stats(None).await.unwrap();
        if stats.iter().any(|stats| &*stats.queue == queue && stats.paused) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{queue} was not paused");
        wakeups.wait(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn keys_act_and_the_terminal_is_given_back() {
    let house = House::new().await;
    let mut dashboard = Dashboard::open(&house);
    dashboard.wait_for("orders");
    // Down to the second queue.
    dashboard.press("jp");
    wait_until_paused(&house, "orders").await;
    dashboard.press("q");
    dashboard.assert_ends_well();

    let mut dashboard = Dashboard::open(&house);
    dashboard.wait_for("orders");
    tell_to_stop(&house);
    dashboard.assert_ends_well();
}
