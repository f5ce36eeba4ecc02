//! `seriatim doctor`: finds what is stuck, failing, slow or misconfigured, and suggests what to do.

use clap::Args;
use serde::Serialize;

use super::args::Common;
use crate::app::doctor::{Finding, Seen, Severity, judge, look, place};
use crate::base::text::{count, one_line};
use crate::cli::output::{Failure, Result, Terminal, Tone, coloured, say, say_json};

#[derive(Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    common: Common,
}

impl Doctor {
    pub(crate) async fn run(self) -> Result<()> {
        let config = self.common.store.config()?;
        let url = self.common.store.url_with(&config);
        let declared = config.declared()?;
        let seen = self.common.store.using(async |store| Ok(look(&*store).await?)).await?;
        let mut findings = place::check(&url);
        findings.extend(judge(&seen, &declared));
        // Stable: those of the place come first.
        findings.sort_by_key(|finding| finding.severity);
        let serious = findings.iter().filter(|f| f.severity == Severity::Serious).count();
        if self.common.json {
            say_json(&Diagnosis { healthy: serious == 0, findings });
        } else {
            tell(&findings, &seen);
        }
        if serious > 0 { Err(Failure::silent()) } else { Ok(()) }
    }
}

#[derive(Serialize)]
struct Diagnosis {
    healthy: bool,
    findings: Vec<Finding>,
}

fn tell(findings: &[Finding], seen: &Seen) {
    let terminal = Terminal::of_stdout();
    for finding in findings {
        let (mark, tone) = match finding.severity {
            Severity::Serious => ("serious", Tone::Bad),
            Severity::Warning => ("warning", Tone::Warn),
            Severity::Notice => ("notice", Tone::Faint),
        };
        let mark = format!("{mark:<7}");
        let mark = if terminal.colour { coloured(&mark, tone) } else { mark };
        say(format!("{mark}  {}: {}", one_line(&finding.about), one_line(&finding.found)));
        say(format!("         {}", one_line(&finding.advice)));
    }
    let looked = format!(
        "checked {}, {}, {} and {}",
        count(seen.queues.len() as u64, "queue"),
        count(seen.nodes.len() as u64, "node"),
        count(seen.running.len() as u64, "claimed lane"),
        count(seen.troubled.len() as u64, "failing, held or paused lane"),
    );
    match findings.len() as u64 {
        0 => say(format!("no findings ({looked})")),
        found => say(format!("{} ({looked})", count(found, "finding"))),
    }
}
