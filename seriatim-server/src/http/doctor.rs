//! What is wrong, and what to do.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Access, Answer, Result, Route, Shared};
use crate::app::doctor::{Finding, Severity};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/doctor", Access::Read, show)
            .says("What is stuck, failing, slow or misconfigured, and what to do; refreshed at most every 15 s"),
    ]
}

/// The findings, the worst first.
#[derive(Serialize, JsonSchema)]
pub(super) struct Diagnosis {
    /// Whether none is serious
    healthy: bool,
    findings: Vec<Finding>,
}

async fn show(app: Shared) -> Result<Answer<Diagnosis>> {
    let findings = app.checkup().await?.findings.clone();
    let healthy = findings.iter().all(|finding| finding.severity != Severity::Serious);
    Ok(Answer::of(&Diagnosis { healthy, findings }))
}
