//! The HTTP client, with TLS by rustls.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};

/// Time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const USER_AGENT: &str = concat!("seriatim/", env!("CARGO_PKG_VERSION"));

/// A request that is dropped closes its connection. No redirects, cookies or proxies.
pub(crate) type Client =
    hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Fails when `https` is wanted and the system has no certificate authorities.
pub(crate) fn client(is_https: bool) -> Result<Client, String> {
    let mut plain = HttpConnector::new();
    plain.set_connect_timeout(Some(CONNECT_TIMEOUT));
    plain.enforce_http(false);
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls(is_https)?);
    let connector = builder.https_or_http().enable_http1().wrap_connector(plain);
    Ok(hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector))
}

/// The system's authorities, so that a company's own are known too; none where none are needed.
fn tls(is_needed: bool) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let builder = if is_needed {
        let what = "the system has no certificate authorities";
        builder.with_native_roots().map_err(|error| format!("{what}: {error}"))?
    } else {
        builder.with_root_certificates(RootCertStore::empty())
    };
    Ok(builder.with_no_client_auth())
}

/// An error and what it came from, in one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing to a String cannot fail.
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}
