//! The standard variables for traces.
//!
//! As the standard requires, an empty variable is unset, and an invalid number, switch or choice causes a
//! warning and gets its default. What has no default to fall back on, so that
//! traces would never arrive, is an error: the endpoint, its headers, and its protocol.

use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use opentelemetry_sdk::trace::Sampler;

const DISABLED: &str = "OTEL_SDK_DISABLED";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const COMPRESSIONS: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];
/// Unsupported: TLS is that of the whole program.
const CERTIFICATES: [&str; 6] = [
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
];
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// What follows the endpoint of all signals.
const TRACES_PATH: &str = "v1/traces";
/// The only supported protocol.
const PROTOCOL: &str = "http/protobuf";
/// How long the sending of one batch may take by default.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where traces go, and which.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) endpoint: Uri,
    pub(super) timeout: Duration,
    pub(super) sampler: Sampler,
    pub(super) service_name: Option<String>,
    /// What could not be read and has its default.
    pub(super) warnings: Vec<String>,
}

/// The variables, and the problems found so far.
struct Reader<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    warnings: Vec<String>,
}

impl Settings {
    /// None when nothing is to be sent. The exporter reads the headers itself, and the SDK the
    /// attributes of the resource: here they are only looked at.
    pub(super) fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let mut reader = Reader { variable, warnings: Vec::new() };
        if reader.is_disabled() || reader.is_not_exported() {
            return Ok(None);
        }
        let Some(endpoint) = reader.endpoint()? else { return Ok(None) };
        reader.check_protocol()?;
        reader.check_headers()?;
        reader.check_compression();
        reader.check_certificates();
        reader.check_resource();
        let (timeout, sampler) = (reader.timeout(), reader.sampler());
        let service_name = reader.get(SERVICE_NAME);
        Ok(Some(Self { endpoint, timeout, sampler, service_name, warnings: reader.warnings }))
    }
}

/// A URL without what stands before `@`, which may be a secret.
pub(super) fn shown(endpoint: &Uri) -> String {
    let scheme = endpoint.scheme_str().unwrap_or_default();
    let place = endpoint.authority().map_or("", |authority| authority.as_str());
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    format!("{scheme}://{place}{}", endpoint.path())
}

impl Reader<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    /// The first of them that is set.
    fn first<'n>(&self, names: &[&'n str]) -> Option<(&'n str, String)> {
        names.iter().find_map(|name| Some((*name, self.get(name)?)))
    }

    fn warn(&mut self, name: &str, value: &str, expected: &str) {
        self.warnings.push(format!("{name}: ignoring unknown value {value:?}; {expected}"));
    }

    fn is_disabled(&mut self) -> bool {
        let Some(value) = self.get(DISABLED) else { return false };
        match value.to_lowercase().as_str() {
            "true" => return true,
            "false" => {}
            _ => self.warn(DISABLED, &value, "write true or false"),
        }
        false
    }

    fn is_not_exported(&mut self) -> bool {
        let Some(value) = self.get(EXPORTER) else { return false };
        match value.to_lowercase().as_str() {
            "none" => return true,
            "otlp" => {}
            _ => self.warn(EXPORTER, &value, "write otlp or none"),
        }
        false
    }

    fn endpoint(&self) -> Result<Option<Uri>, String> {
        let (name, url) = match (self.get(TRACES_ENDPOINT), self.get(ENDPOINT)) {
            (Some(url), _) => (TRACES_ENDPOINT, url),
            (None, Some(url)) => (ENDPOINT, format!("{}/{TRACES_PATH}", url.trim_end_matches('/'))),
            (None, None) => return Ok(None),
        };
        let uri = url.parse::<Uri>().ok();
        let is_whole = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https"));
        match uri.filter(is_whole) {
            Some(uri) => Ok(Some(uri)),
            // It may have a password, which cannot be told from the rest of what is no URL.
            None => Err(format!("{name}: not a URL; write one as in http://localhost:4318")),
        }
    }

    fn check_protocol(&mut self) -> Result<(), String> {
        let Some((name, value)) = self.first(&PROTOCOLS) else { return Ok(()) };
        match value.to_lowercase().as_str() {
            PROTOCOL => {}
            "grpc" | "http/json" => {
                return Err(format!(
                    "{name}: {value:?} is not supported; write {PROTOCOL}, which collectors accept on port 4318"
                ));
            }
            _ => self.warn(name, &value, "write http/protobuf"),
        }
        Ok(())
    }

    /// Values are secrets: errors name only their place.
    fn check_headers(&self) -> Result<(), String> {
        let Some((name, value)) = self.first(&HEADERS) else { return Ok(()) };
        for (place, entry) in value.split_terminator(',').enumerate() {
            let is_header = entry.split_once('=').is_some_and(|(name, value)| {
                let is_name = name.trim().parse::<HeaderName>().is_ok();
                is_name && !value.trim().is_empty() && HeaderValue::from_str(value.trim()).is_ok()
            });
            if !is_header {
                let place = place + 1;
                return Err(format!(
                    "{name}: entry {place} is not a header; write NAME=VALUE,NAME=VALUE"
                ));
            }
        }
        Ok(())
    }

    fn check_compression(&mut self) {
        if let Some((name, value)) = self.first(&COMPRESSIONS)
            && !value.eq_ignore_ascii_case("none")
        {
            self.warn(name, &value, "traces go uncompressed");
        }
    }

    fn check_certificates(&mut self) {
        if let Some((name, value)) = self.first(&CERTIFICATES) {
            self.warn(name, &value, "the system's certificate authorities are trusted");
        }
    }

    fn check_resource(&mut self) {
        let Some(value) = self.get(RESOURCE) else { return };
        let is_wrong =
            |entry: &str| entry.split_once('=').is_none_or(|(name, _)| name.trim().is_empty());
        if let Some(entry) = value.split_terminator(',').find(|entry| is_wrong(entry)) {
            self.warn(RESOURCE, entry, "write NAME=VALUE,NAME=VALUE");
        }
    }

    fn timeout(&mut self) -> Duration {
        let Some((name, value)) = self.first(&TIMEOUTS) else { return TIMEOUT };
        match value.parse() {
            Ok(milliseconds @ 1..) => Duration::from_millis(milliseconds),
            _ => {
                self.warn(name, &value, "write milliseconds, as in 10000");
                TIMEOUT
            }
        }
    }

    fn sampler(&mut self) -> Sampler {
        let by_parent = |root| Sampler::ParentBased(Box::new(root));
        let name = self.get(SAMPLER).unwrap_or_else(|| "parentbased_always_on".to_owned());
        match name.as_str() {
            "always_on" => Sampler::AlwaysOn,
            "always_off" => Sampler::AlwaysOff,
            "traceidratio" => Sampler::TraceIdRatioBased(self.ratio()),
            "parentbased_always_on" => by_parent(Sampler::AlwaysOn),
            "parentbased_always_off" => by_parent(Sampler::AlwaysOff),
            "parentbased_traceidratio" => by_parent(Sampler::TraceIdRatioBased(self.ratio())),
            _ => {
                let known = "write always_on, always_off, traceidratio, or one of them with parentbased_ in front";
                self.warn(SAMPLER, &name, known);
                by_parent(Sampler::AlwaysOn)
            }
        }
    }

    fn ratio(&mut self) -> f64 {
        let Some(value) = self.get(SAMPLER_ARG) else { return 1.0 };
        match value.parse() {
            Ok(ratio @ 0.0..=1.0) => ratio,
            _ => {
                self.warn(SAMPLER_ARG, &value, "write a number from 0 to 1, as in 0.25");
                1.0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(&variable)
    }

    fn with_endpoint(name: &str, value: &str) -> Result<Settings, String> {
        Ok(read(&[(ENDPOINT, "http://c:4318"), (name, value)])?.unwrap())
    }

    #[test]
    fn nothing_goes_where_nobody_says_to() {
        assert!(read(&[]).unwrap().is_none());
        assert!(read(&[(ENDPOINT, ""), (SAMPLER, "nonsense")]).unwrap().is_none());
        for (name, value) in [(DISABLED, "TRUE"), (EXPORTER, "none")] {
            assert!(read(&[(ENDPOINT, "http://c:4318"), (name, value)]).unwrap().is_none());
        }
    }

    #[test]
    fn the_endpoint_of_traces_is_taken_as_it_is_and_that_of_all_signals_gets_a_path() {
        let endpoint = |variables: &[_]| read(variables).unwrap().unwrap().endpoint.to_string();
        assert_eq!(endpoint(&[(ENDPOINT, "http://c:4318/")]), "http://c:4318/v1/traces");
        let both = [(ENDPOINT, "http://c:4318"), (TRACES_ENDPOINT, "https://t/in")];
        assert_eq!(endpoint(&both), "https://t/in");
        let secret = with_endpoint(TRACES_ENDPOINT, "https://me:geheim@t:4318/in?key=geheim");
        assert_eq!(shown(&secret.unwrap().endpoint), "https://t:4318/in");
    }

    #[test]
    fn what_would_never_arrive_is_an_error_that_names_the_variable() {
        for (name, value) in [
            (TRACES_ENDPOINT, "localhost:4318"),
            (TRACES_ENDPOINT, "ftp://c"),
            (PROTOCOLS[1], "grpc"),
            (PROTOCOLS[0], "http/json"),
            (HEADERS[1], "authorization"),
            (HEADERS[0], "a=1,b c=2"),
        ] {
            let error = with_endpoint(name, value).unwrap_err();
            assert!(error.starts_with(name), "{error}");
        }
        for (name, value) in [
            (HEADERS[0], "authorization Bearer geheim"),
            (TRACES_ENDPOINT, "https://me:geheim@the collector"),
        ] {
            let secret = with_endpoint(name, value).unwrap_err();
            assert!(!secret.contains("geheim"), "{secret}");
        }
    }

    #[test]
    fn what_only_tunes_is_warned_of_and_has_its_default() {
        for (name, value) in [
            (DISABLED, "yes"),
            (EXPORTER, "console"),
            (PROTOCOLS[1], "carrier pigeon"),
            (COMPRESSIONS[1], "gzip"),
            (CERTIFICATES[1], "/etc/ca.pem"),
            (TIMEOUTS[1], "10s"),
            (TIMEOUTS[0], "0"),
            (SAMPLER, "xray"),
            (RESOURCE, "region"),
        ] {
            let settings = with_endpoint(name, value).unwrap();
            assert!(settings.warnings[0].starts_with(name), "{:?}", settings.warnings);
            assert_eq!(settings.warnings.len(), 1, "{:?}", settings.warnings);
            assert_eq!(settings.timeout, TIMEOUT);
            assert!(format!("{:?}", settings.sampler).contains("ParentBased"), "{settings:?}");
        }
    }

    #[test]
    fn what_is_said_well_is_done() {
        let good = [
            (HEADERS[1], "authorization=Bearer%20abc,x-team=jobs"),
            (PROTOCOLS[1], "http/protobuf"),
            (RESOURCE, "deployment.environment.name=test,region=eu"),
            (COMPRESSIONS[0], "none"),
        ];
        for (name, value) in good {
            assert!(with_endpoint(name, value).unwrap().warnings.is_empty(), "{name}");
        }
        let timeout = with_endpoint(TIMEOUTS[1], "250").unwrap().timeout;
        assert_eq!(timeout, Duration::from_millis(250));
        let ratio = |arg| {
            let all = [(ENDPOINT, "http://c"), (SAMPLER, "traceidratio"), (SAMPLER_ARG, arg)];
            let settings = read(&all).unwrap().unwrap();
            (format!("{:?}", settings.sampler), settings.warnings.len())
        };
        assert_eq!(ratio("0.25"), ("TraceIdRatioBased(0.25)".to_owned(), 0));
        assert_eq!(ratio("2"), ("TraceIdRatioBased(1.0)".to_owned(), 1));
    }
}
