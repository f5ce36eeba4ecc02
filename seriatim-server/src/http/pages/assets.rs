//! Style sheet, script and icon. Their names have their hash, so that a browser keeps them until they change.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::super::problem::{Problem, Result};

static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(include_str!("../../../assets/app.css"), "css", "text/css; charset=utf-8")
});
static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(include_str!("../../../assets/app.js"), "js", "text/javascript; charset=utf-8")
});
static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new(include_str!("../../../assets/icon.svg"), "svg", "image/svg+xml"));
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

struct Asset {
    name: String,
    text: &'static str,
    media: &'static str,
}

impl Asset {
    fn new(text: &'static str, ending: &str, media: &'static str) -> Self {
        let hash = blake3::hash(text.as_bytes()).to_hex();
        Self { name: format!("app-{}.{ending}", &hash[..16]), text, media }
    }
}

/// The name of the style sheet.
pub(super) fn style() -> &'static str {
    &STYLE.name
}

/// The name of the script.
pub(super) fn script() -> &'static str {
    &SCRIPT.name
}

pub(super) fn icon() -> &'static str {
    &ICON.name
}

pub(super) async fn serve(Path(name): Path<String>) -> Result<Response> {
    let asset = [&*STYLE, &*SCRIPT, &*ICON].into_iter().find(|asset| asset.name == name);
    let asset = asset
        .ok_or_else(|| Problem::missing("this file is of another version: reload the page"))?;
    let media = HeaderValue::from_static(asset.media);
    let head = [(header::CONTENT_TYPE, media), (header::CACHE_CONTROL, FOREVER)];
    Ok((StatusCode::OK, head, asset.text).into_response())
}
