//! Builds of workers: a job that asks for one is bound to the consumer group of that build, which its nodes are in.

use crate::model::error::{Error, Result};

/// The start of the names of these groups.
const MARK: &str = "build:";

/// The consumer group of the nodes that run this build.
///
/// ```
/// use seriatim::store::{build_of, group_of_build};
/// assert_eq!(group_of_build("2026.11"), "build:2026.11");
/// assert_eq!(build_of("build:2026.11"), Some("2026.11"));
/// assert_eq!(build_of("eu"), None);
/// ```
pub fn group_of_build(build: &str) -> String {
    format!("{MARK}{build}")
}

/// The build whose nodes are in this consumer group, if it is one of these groups.
pub fn build_of(group: &str) -> Option<&str> {
    group.strip_prefix(MARK)
}

/// The consumer group of a job for which both may be given.
pub fn bound_group(group: Option<String>, build: Option<String>) -> Result<Option<String>> {
    match (group, build) {
        (Some(_), Some(_)) => {
            Err(Error::invalid("build", "contradicts consumer_group: a job asks for one of them"))
        }
        (group, None) => Ok(group),
        (None, Some(build)) if build.is_empty() => Err(Error::invalid("build", "is empty")),
        (None, Some(build)) => Ok(Some(group_of_build(&build))),
    }
}
