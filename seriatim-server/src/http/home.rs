//! The start page, with links. It shows nothing that needs a token.

use std::fmt::Write;

use axum::extract::OriginalUri;
use axum::response::Response;

use super::auth::Access;
use super::page::{escaped, served};
use super::route::Route;

/// Where the page leads to, and what is there.
const LINKS: [(&str, &str); 6] = [
    ("docs", "the HTTP API, as a page"),
    ("openapi.json", "the HTTP API, for programs"),
    ("health", "whether the process is alive"),
    ("ready", "whether it takes requests"),
    ("info", "version and environment"),
    ("metrics", "numbers for Prometheus"),
];

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/", Access::Open, home)
            .says("A start page with links")
            .media("text/html")
            .outlives_drain(),
    ]
}

/// Its links are relative, so that they hold below any prefix: without a slash at the end of its own
/// address they begin with the last part of it.
async fn home(OriginalUri(uri): OriginalUri) -> Response {
    let base = match uri.path().rsplit_once('/') {
        Some((_, "")) | None => String::new(),
        Some((_, last)) => format!("{}/", escaped(last)),
    };
    let mut links = String::new();
    for (path, says) in LINKS {
        let _ = write!(links, "<li><a href=\"{base}{path}\">{path}</a>: {says}</li>");
    }
    let version = env!("CARGO_PKG_VERSION");
    served(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Seriatim {version}</title>\
         <link rel=\"stylesheet\" href=\"{base}docs.css\"></head><body>\
         <h1>Seriatim {version}</h1>\
         <p>Background jobs: in order where order matters, in parallel everywhere else.</p>\
         <ul>{links}</ul>\
         <p>The API is below <code>{base}api/v1</code>. Where tokens are configured, it and the \
         metrics need one. <code>seriatim top</code> shows queues live in a \
         terminal.</p></body></html>\n"
    ))
}
