//! The commands for people: each on a real file, as JSON and as text.

mod acting;
mod doctor;
mod limits;
mod listing;
mod serving;
mod sharding;
mod terminal;
mod top;

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use seriatim::{Job, Queue};

use crate::hand::Hand;
use crate::site::{Site, text};

/// A store in which something of everything has happened.
struct House {
    site: Site,
    hand: Hand,
}

impl House {
    async fn new() -> Self {
        let site = Site::new("");
        let queues = vec![
            Queue::accumulate("orders").max_retries(2),
            Queue::fifo("mails").max_retries(0),
            Queue::exclusive("reports"),
        ];
        let hand = Hand::new(site.store().await, queues).await;
        Self { site, hand }
    }

    /// What the command prints, as JSON.
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.site.run(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What the command prints for people.
    fn text(&self, arguments: &[&str]) -> String {
        let output = self.site.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        text(&output)
    }

    /// What a command that fails with this code says.
    fn refused(&self, arguments: &[&str], code: i32) -> String {
        let output: Output = self.site.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output));
        text(&output)
    }
}

fn order(number: u32, version: u32) -> Job {
    let payload = serde_json::json!({ "version": version });
    Job::new("orders", &payload).unwrap().key(format!("order-{number}")).score(f64::from(version))
}

fn mail(to: &str) -> Job {
    Job::new("mails", &serde_json::json!({ "to": to })).unwrap().key(to)
}

/// The values of one field of a list.
fn all<'a>(list: &'a Value, field: &str) -> Vec<&'a Value> {
    list.as_array().unwrap().iter().map(|row| &row[field]).collect()
}

/// What the program writes in a pseudo-terminal of this many columns.
fn in_a_terminal(site: &Site, columns: u16, no_colour: bool, arguments: &str) -> String {
    let program =
        format!("stty cols {columns} rows 24; exec {} {arguments}", env!("CARGO_BIN_EXE_seriatim"));
    let mut command = Command::new("script");
    command.args(["-qec", &program, "/dev/null"]).current_dir(site.folder.path());
    command.env_remove("SERIATIM_STORE").env("TERM", "xterm").stdin(Stdio::null());
    match no_colour {
        true => command.env("NO_COLOR", "1"),
        false => command.env_remove("NO_COLOR"),
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", text(&output));
    text(&output)
}
