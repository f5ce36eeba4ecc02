//! Who did what, when, from where: one line for each request that changes something.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode};
use serde::{Deserialize, Serialize};
use seriatim::Timestamp;

use super::around::REQUEST_ID;
use super::auth::{Role, Who};
use super::limits::AUDIT_BODY_BYTES_MAX;
use super::server::Peer;
use crate::output::time::absolute;

/// Longest header that is taken over, in bytes.
const HEADER_BYTES_MAX: usize = 256;

/// Which requests are written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Audited {
    /// What people do: to queues, lanes, jobs, nodes; also what was refused for want of a role.
    #[default]
    Actions,
    /// Pushes, claims, heartbeats and settles too: a line for each request.
    All,
}

/// Where the lines go.
#[derive(Default)]
pub(crate) struct Audit {
    what: Audited,
    /// Without a file they are lines of the log.
    file: Option<Mutex<File>>,
}

/// One line.
#[derive(Serialize)]
pub(super) struct Entry {
    at: String,
    who: String,
    role: Option<Role>,
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forwarded_for: Option<String>,
    method: String,
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    request_id: Option<String>,
    status: u16,
}

impl Audit {
    /// Appends to a file; without one the lines are the log's.
    pub(crate) fn open(what: Audited, path: Option<&Path>) -> io::Result<Self> {
        let append = |path| OpenOptions::new().create(true).append(true).open(path);
        Ok(Self { what, file: path.map(append).transpose()?.map(Mutex::new) })
    }

    pub(super) fn wants(&self, method: &Method, is_traffic: bool) -> bool {
        !method.is_safe() && (self.what == Audited::All || !is_traffic)
    }

    pub(super) fn write(&self, entry: Entry, status: StatusCode) {
        let entry = Entry { status: status.as_u16(), ..entry };
        // Texts and numbers only: nothing of it can fail to be written.
        let line = serde_json::to_string(&entry).unwrap_or_default();
        let Some(file) = &self.file else {
            tracing::info!(target: "seriatim::audit", "{line}");
            return;
        };
        // One write for each line, so that several processes may share the file.
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all((line.clone() + "\n").as_bytes()) {
            tracing::error!(%error, "the audit log cannot be written: {line}");
        }
    }
}

impl Entry {
    pub(super) fn of(request: &Request, who: &Who) -> Self {
        let (name, role) = match who {
            Who::Anybody => ("anybody".to_owned(), None),
            Who::Token { name, role } => (name.clone(), Some(*role)),
        };
        let peer = request.extensions().get::<Peer>();
        let target = request.uri().path_and_query().map(ToString::to_string);
        Self {
            at: absolute(Timestamp::of_this_machine()),
            who: name,
            role,
            from: peer.map(|Peer(address)| address.ip().to_string()),
            forwarded_for: text(request.headers(), "x-forwarded-for"),
            method: request.method().to_string(),
            target: target.unwrap_or_default(),
            body: None,
            request_id: text(request.headers(), REQUEST_ID.as_str()),
            status: 0,
        }
    }

    /// Adds what the request carries.
    pub(super) fn told(&mut self, body: &[u8]) {
        let shown = &body[..body.len().min(AUDIT_BODY_BYTES_MAX)];
        let text = String::from_utf8_lossy(shown).into_owned();
        self.body = Some(text).filter(|text| !text.is_empty());
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    Some(text.chars().take(HEADER_BYTES_MAX).collect())
}
