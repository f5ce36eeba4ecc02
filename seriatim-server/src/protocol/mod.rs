//! JSON documents, one type each, from which their schemas are derived: the same for worker programs, the HTTP API
//! and `--json`.

pub(crate) mod document;
pub(crate) mod figures;
pub(crate) mod job_input;
pub(crate) mod lane;
pub(crate) mod limits;
pub(crate) mod made_by;
pub(crate) mod outcome;
pub(crate) mod schema;
pub(crate) mod value;
