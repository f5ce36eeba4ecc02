//! The options of jobs as databases keep them: JSON. Those of a push are mostly equal, so equal ones that follow each
//! other are read once and shared, and written once.

use std::sync::Arc;

use super::json::json;
use crate::model::{JobOptions, Result};

/// Reads options.
#[derive(Default)]
pub(super) struct ReadOptions(Option<(String, Arc<JobOptions>)>);

impl ReadOptions {
    pub(super) fn options(&mut self, text: &str) -> serde_json::Result<Arc<JobOptions>> {
        if let Some((_, last)) = self.0.as_ref().filter(|(known, _)| known == text) {
            return Ok(last.clone());
        }
        let options: Arc<JobOptions> = serde_json::from_str(text)?;
        self.0 = Some((text.to_owned(), options.clone()));
        Ok(options)
    }
}

/// Writes options.
#[derive(Default)]
pub(super) struct WriteOptions(Option<(JobOptions, Option<String>)>);

impl WriteOptions {
    /// `None` if they say nothing.
    pub(super) fn json(&mut self, options: &JobOptions) -> Result<Option<String>> {
        if let Some((_, last)) = self.0.as_ref().filter(|(known, _)| known == options) {
            return Ok(last.clone());
        }
        let carries = *options != JobOptions::default();
        let text = if carries { Some(json(options)?) } else { None };
        self.0 = Some((options.clone(), text.clone()));
        Ok(text)
    }
}
