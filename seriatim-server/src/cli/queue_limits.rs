//! `seriatim queues limits`: shows and changes how many turns of a queue, or of a group, run and start.

use clap::Args;
use seriatim::store::Store;
use seriatim::{Queue, Rate, Result};

use crate::app::limits::{self, Amended, Whose};
use crate::app::{find, queues, settings};
use crate::cli::output::{Failure, hint, say, say_json};

/// Omitted limits stay. Without any option, shows the limits.
#[derive(Args)]
#[group(id = "change", multiple = true, args = ["running", "rate", "burst", "weight", "none"])]
pub(super) struct Change {
    /// Maximum turns at once, on all nodes together
    #[arg(long, value_name = "TURNS")]
    running: Option<u32>,
    /// How many turns may start per second, minute or hour: 100/s, 30/m, 1000/h
    #[arg(long)]
    rate: Option<Rate>,
    /// How many turns may start at once after a pause. Default: what the rate allows in a tenth of a second
    #[arg(long, value_name = "TURNS")]
    burst: Option<u32>,
    /// Turns of a group for one turn of a group with weight 1
    #[arg(long, requires = "Of")]
    weight: Option<u32>,
    /// No limit; with --group, what each group gets; with --groups, no groups at all
    #[arg(long, conflicts_with_all = ["running", "rate", "burst", "weight"])]
    none: bool,
    #[command(flatten)]
    of: Of,
}

/// Whose limit, if not that of the whole queue.
#[derive(Args)]
#[group(multiple = false, requires = "change")]
struct Of {
    /// The limit of one group, instead of the one for each group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// The limit for each group: jobs may have a group, and groups take turns
    #[arg(long)]
    groups: bool,
}

impl Change {
    pub(super) async fn run(
        &self,
        store: &dyn Store,
        name: &str,
        json: bool,
    ) -> std::result::Result<(), Failure> {
        let queue = match self.is_none_given() {
            true => find::queue(store, name).await?.queue,
            false => limits::change(store, name, |queue| self.apply(queue)).await?,
        };
        if json {
            say_json(&queues::one(store, name).await?);
            return Ok(());
        }
        let of_limits = |line: &&str| line.starts_with("limit =") || line.starts_with("groups =");
        let lines = settings::lines(&queue);
        let lines: Vec<&str> = lines.lines().filter(of_limits).collect();
        say(match lines.is_empty() {
            true => format!("{name} has no limit and no groups"),
            false => format!("{name} has\n{}", lines.join("\n")),
        });
        if !self.is_none_given() {
            hint(
                "a node that declares the queue sets the limits of its configuration when it starts",
            );
        }
        Ok(())
    }

    fn is_none_given(&self) -> bool {
        self.amended().is_none() && !self.none
    }

    fn amended(&self) -> Amended {
        let Self { running, rate, burst, weight, .. } = *self;
        Amended { running, rate, burst, weight }
    }

    fn apply(&self, queue: &mut Queue) -> Result<()> {
        let whose = match (&self.of.group, self.of.groups) {
            (Some(name), _) => Whose::Group(name.clone()),
            (None, true) => Whose::EachGroup,
            (None, false) => Whose::Queue,
        };
        match self.none {
            true => limits::remove(queue, &whose),
            false => {
                self.amended().apply(queue, &whose);
                Ok(())
            }
        }
    }
}
