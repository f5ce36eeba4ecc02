//! Configurations under fuzz. A comment `#!NAME=VALUE` stands for a variable of the environment.

use seriatim_testkit::fuzz::Surface;

use super::parse;
use crate::base::text::check_message;

const NAME: &str = "seriatim.toml";

#[test]
fn configurations_and_variables_are_understood_or_explained() {
    let mut understood = 0;
    Surface::new("config").inputs(4_000).attack(|input| {
        let text = String::from_utf8_lossy(input);
        let variables = text.lines().filter_map(|line| line.strip_prefix("#!")?.split_once('='));
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = parse(&text, variables, NAME).and_then(|config| {
            config.validate(NAME)?;
            config.declared()?;
            config.cron_entries()?;
            Ok(config)
        });
        match config {
            Ok(config) => {
                understood += 1;
                let _ = config.cron_slips().count();
                config.workers.iter().for_each(|worker| drop(worker.shown()));
            }
            Err(error) => check_message(&error.to_string()),
        }
    });
    assert!(understood > 10, "{understood}: the corpus is no longer one of configurations");
}
