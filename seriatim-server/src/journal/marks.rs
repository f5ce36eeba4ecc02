//! What the events of a note are about, in two bytes for each key and each job: who looks for one of them reads these, and then only the
//! notes that may have it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Deserialize;
use seriatim::JobId;

/// The marks of a note. Different keys may have the same mark: one of a note with a hundred marks is among them by chance in one of
/// 650 cases.
#[derive(Default)]
pub(super) struct Marks(BTreeSet<u16>);

/// What an event is about.
#[derive(Clone, Copy)]
pub(super) enum About<'a> {
    Key(&'a str),
    Job(JobId),
}

/// What of an event is marked.
#[derive(Deserialize)]
struct Event<'a> {
    job_id: Option<JobId>,
    #[serde(borrow)]
    key: Option<Cow<'a, str>>,
}

impl About<'_> {
    fn mark(self) -> u16 {
        // Neither is taken for the other.
        let hash = match self {
            Self::Key(key) => blake3::hash(format!("key {key}").as_bytes()),
            Self::Job(job) => blake3::hash(&job.to_bytes()),
        };
        let [one, other, ..] = *hash.as_bytes();
        u16::from_le_bytes([one, other])
    }
}

impl Marks {
    /// Adds what the event of this line is about.
    pub(super) fn add(&mut self, line: &str) {
        let Ok(event) = serde_json::from_str::<Event<'_>>(line) else { return };
        let job = event.job_id.map(About::Job);
        let key = event.key.as_deref().map(About::Key);
        self.0.extend(job.into_iter().chain(key).map(About::mark));
    }

    /// As a note.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|mark| mark.to_le_bytes()).collect()
    }
}

/// Whether a note with these marks may have events about all this.
pub(super) fn may_have(marks: &[u8], about: &[About<'_>]) -> bool {
    let has = |about: &About<'_>| {
        let mark = about.mark().to_le_bytes();
        marks.chunks(2).any(|one| one == mark)
    };
    about.iter().all(has)
}
