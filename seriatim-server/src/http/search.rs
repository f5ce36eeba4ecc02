//! Search over all queues.

use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::limits::SOUGHT_BYTES_MAX;

use super::{Access, Answer, Caller, Problem, Query, Result, Route, Shared};
use crate::app::search;
use crate::app::search_terms::Terms;
use crate::protocol::document::Search;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/search", Access::Read, find)
            .says("Keys, and jobs by task, error or payload, in all queues")
            .keeps_scope(),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Wanted {
    /// A key or its beginning; a task; or terms that must all match: `queue:orders task:ship error:time out payload:order-7`
    q: String,
    /// Also find jobs of this task if a key was found, and in queues with more than 10,000 jobs
    #[serde(default)]
    all: bool,
    /// Continue after this queue: the `next` of the previous search
    #[serde(default)]
    after: String,
}

async fn find(
    app: Shared,
    caller: Caller,
    Query(Wanted { q, all, after }): Query<Wanted>,
) -> Result<Answer<Search>> {
    let text = q.trim();
    if text.is_empty() || text.len() > SOUGHT_BYTES_MAX {
        let why = format!("has {} bytes: 1 to {SOUGHT_BYTES_MAX}", text.len());
        return Err(Problem::invalid("q", why));
    }
    let store = &*app.store;
    let may_see = |queue: &str| caller.scope.has_queue(queue);
    let terms = Terms::read(text);
    let asked = search::asked(store, terms.as_ref(), &after, may_see).await?;
    let found = search::of_text(store, &asked, (text, terms.as_ref()), all).await?;
    Ok(Answer::of(&found.document(&asked)))
}
