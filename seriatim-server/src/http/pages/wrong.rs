//! What is wrong with a form: it is said beside its field, and the other fields stay as they were.

use axum::http::StatusCode;
use axum::response::Response;

use super::super::problem::{Problem, Result};

/// The field that cannot be read, and why; or none.
#[derive(Debug, Default)]
pub(super) struct Wrong(Option<(StatusCode, String, String)>);

impl Wrong {
    /// What was found, or nothing if one of these fields is wrong. Another problem is answered as such.
    pub(super) fn of<T: Default>(
        found: Result<T, impl Into<Problem>>,
        fields: &[&str],
    ) -> Result<(T, Self)> {
        let problem = match found.map_err(Into::into) {
            Ok(found) => return Ok((found, Self::default())),
            Err(problem) => problem,
        };
        match problem.field().filter(|field| fields.contains(field)).map(str::to_owned) {
            Some(field) => {
                let said = (problem.status(), field, problem.into_detail());
                Ok((T::default(), Self(Some(said))))
            }
            None => Err(problem),
        }
    }

    pub(super) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// What is wrong with this field; empty if nothing is.
    pub(super) fn with(&self, field: &str) -> &str {
        let said = self.0.as_ref().filter(|(_, known, _)| known == field);
        said.map_or("", |(.., why)| why)
    }

    /// The page, with the status of an answer to such a form.
    pub(super) fn shown(&self, mut page: Response) -> Response {
        if let Some((status, ..)) = self.0 {
            *page.status_mut() = status;
        }
        page
    }
}
