//! What measurements over stores are told: `[--jobs N] [--store NAME]... [--write]`.

use crate::Failure;

pub(crate) const STORES: [&str; 4] = ["sqlite", "postgres", "mysql", "redis"];

pub(crate) struct Options {
    pub(crate) jobs: u64,
    /// All unless some are named.
    pub(crate) stores: Vec<&'static str>,
    /// Into the page of the documentation.
    pub(crate) write: bool,
}

impl Options {
    pub(crate) fn parse(args: &[&str], jobs: u64, usage: &str) -> Result<Self, Failure> {
        let usage = || Failure::Usage(usage.into());
        let mut options = Self { jobs, stores: Vec::new(), write: false };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().copied().ok_or_else(usage);
            match *arg {
                "--jobs" => options.jobs = value()?.parse().map_err(|_| usage())?,
                "--store" => {
                    let name = value()?;
                    let store = STORES.into_iter().find(|known| *known == name);
                    options.stores.push(store.ok_or_else(usage)?);
                }
                "--write" => options.write = true,
                _ => return Err(usage()),
            }
        }
        if options.jobs == 0 {
            return Err(usage());
        }
        if options.stores.is_empty() {
            options.stores = STORES.to_vec();
        }
        Ok(options)
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
