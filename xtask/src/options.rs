//! What measurements over stores are told: `[--jobs N] [--store NAME]... [--write]`.

use crate::Failure;
use crate::args::Args;

pub(crate) const STORES: [&str; 4] = ["sqlite", "postgres", "mysql", "redis"];

pub(crate) struct Options {
    pub(crate) jobs: u64,
    /// All unless some are named.
    pub(crate) stores: Vec<&'static str>,
    /// Into the page of the documentation.
    pub(crate) write: bool,
}

impl Options {
    pub(crate) fn parse(args: &[&str], jobs: u64, usage: &'static str) -> Result<Self, Failure> {
        let mut args = Args::new(args, usage);
        let jobs = args.value("--jobs", jobs)?;
        let stores = args.chosen("--store", &STORES, |store| store)?;
        let write = args.has("--write");
        args.end(jobs > 0)?;
        Ok(Self { jobs, stores, write })
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn all_stores_are_measured_unless_some_are_named() {
        let stores =
            |args: &[&str]| Options::parse(args, 1, "").ok().map(|options| options.stores.len());
        assert_eq!(stores(&[]), Some(4));
        assert_eq!(stores(&["--store", "mysql", "--jobs", "5", "--write"]), Some(1));
        for wrong in [&["--store", "oracle"][..], &["--jobs"], &["--jobs", "0"]] {
            assert_eq!(stores(wrong), None, "{wrong:?}");
        }
    }
}
