//! What programs read and write in JSON: the same for worker programs, the HTTP API and `--json`.

pub(crate) mod document;
pub(crate) mod job_input;
pub(crate) mod lane;
