//! Reads requests: path, query, body. Invalid input is a 400 that names the field.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};

use super::limits::{BODY_BYTES_MAX, BULK_BODY_BYTES_MAX, Body, off_thread};
use super::{Caller, Problem, Result, Shared};
use crate::config;

pub(super) const JSON: &str = "application/json";
pub(super) const NDJSON: &str = "application/x-ndjson";
/// How errors of the JSON reader begin about texts that are no JSON.
const NO_JSON: [&str; 12] = [
    "EOF ",
    "control ",
    "expected ",
    "invalid escape",
    "invalid number",
    "invalid unicode",
    "key must be ",
    "lone ",
    "number out ",
    "recursion ",
    "trailing ",
    "unexpected ",
];
/// Longer errors quote what was sent: they are not reworded.
const EXPLAINED_BYTES_MAX: usize = 2_000;

/// A part of the path, or a tuple of several.
pub(super) struct Part<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Shared> for Part<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &Shared) -> Result<Self> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        read.map(|Path(part)| Self(part))
            .map_err(|rejection| Problem::invalid("path", rejection.body_text()))
    }
}

pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Shared> for Query<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self> {
        read_query(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

fn read_query<T: DeserializeOwned>(text: &str) -> Result<T> {
    let reader = serde_urlencoded::Deserializer::new(form_urlencoded::parse(text.as_bytes()));
    serde_path_to_error::deserialize(reader).map_err(|error| of_path(&error))
}

/// A body of JSON.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Shared> for Json<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &Shared) -> Result<Self> {
        read_json(request, state, BODY_BYTES_MAX).await.map(|(value, _)| Self(value))
    }
}

/// A body of JSON whose media type may be left out, as Dataloader's clients do.
pub(super) struct UntypedJson<T>(pub(super) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Shared> for UntypedJson<T> {
    type Rejection = Problem;
    async fn from_request(mut request: Request, state: &Shared) -> Result<Self> {
        let headers = request.headers_mut();
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(JSON));
        read_json(request, state, BODY_BYTES_MAX).await.map(|(value, _)| Self(value))
    }
}

/// A body of JSON that may be larger, and its share of the budget.
pub(super) struct BulkJson<T>(pub(super) T, pub(super) Body);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Shared> for BulkJson<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &Shared) -> Result<Self> {
        let (value, body) = read_json(request, state, BULK_BODY_BYTES_MAX).await?;
        Ok(Self(value, body))
    }
}

async fn read_json<T: DeserializeOwned + Send + 'static>(
    request: Request,
    state: &Shared,
    bytes_max: usize,
) -> Result<(T, Body)> {
    expect(request.headers(), &[JSON])?;
    let (mut parts, body) = request.into_parts();
    let Ok(caller) = Caller::from_request_parts(&mut parts, state).await;
    let read = state.budgets.read(&caller, body, bytes_max).await?;
    let bytes = read.bytes.clone();
    let value = off_thread(bytes.len(), move || parse(&bytes)).await??;
    Ok((value, read))
}

/// Which of these media types the body has.
pub(super) fn expect(headers: &HeaderMap, wanted: &[&'static str]) -> Result<&'static str> {
    let said = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = said.split(';').next().unwrap_or_default().trim();
    wanted.iter().find(|known| known.eq_ignore_ascii_case(media_type)).copied().ok_or_else(|| {
        let detail = format!("send the body with Content-Type: {}", wanted.join(" or "));
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
    })
}

/// A JSON object. What is derived for a structure would take a list of its fields too.
#[derive(Debug, Default)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

impl<T: JsonSchema> JsonSchema for Object<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for Fields<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}

/// A list of at most `MAX` elements; more are not even read, because `[{},{},…]` would take a hundred times the memory
/// of its text.
#[derive(Debug, Default)]
pub(super) struct AtMost<T, const MAX: usize>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for AtMost<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut list = Vec::new();
        let take = |value| {
            list.push(value);
            Ok(())
        };
        from.deserialize_seq(Elements { max: MAX, take, of: PhantomData::<T> })?;
        Ok(Self(list))
    }
}

impl<T: JsonSchema, const MAX: usize> JsonSchema for AtMost<T, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("AtMost_{MAX}_{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({ "type": "array", "items": items, "maxItems": MAX })
    }
}

/// Reads a list one element after the other, at most `max`; `take` returns what is wrong with one.
pub(super) struct Elements<T, F> {
    pub(super) max: usize,
    pub(super) take: F,
    pub(super) of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> DeserializeSeed<'de>
    for Elements<T, F>
{
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> Visitor<'de> for Elements<T, F> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        for _ in 0..self.max {
            let Some(element) = list.next_element()? else { return Ok(()) };
            (self.take)(element).map_err(A::Error::custom)?;
        }
        match list.next_element::<IgnoredAny>()? {
            None => Ok(()),
            Some(_) => Err(A::Error::custom(format!("has more than {} elements", self.max))),
        }
    }
}

/// Reads one JSON object.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    parse_any::<Object<T>>(bytes).map(|Object(value)| value)
}

/// Reads one JSON document.
pub(super) fn parse_any<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    parse_with(bytes, PhantomData)
}

/// Reads one JSON document in this way.
pub(super) fn parse_with<'de, S: DeserializeSeed<'de>>(
    bytes: &'de [u8],
    seed: S,
) -> Result<S::Value> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut reader, &mut track);
    let value = match seed.deserialize(tracked) {
        Ok(value) => value,
        Err(error) => return Err(of_path(&serde_path_to_error::Error::new(track.path(), error))),
    };
    reader.end().map_err(|error| Problem::invalid("", error.to_string()))?;
    Ok(value)
}

/// The field is where reading stopped, or the missing or unknown one that the message names.
fn of_path<E: std::fmt::Display>(error: &serde_path_to_error::Error<E>) -> Problem {
    let (path, detail) = (error.path().to_string(), error.inner().to_string());
    let path = Some(path.as_str()).filter(|path| *path != "." && *path != "?").unwrap_or_default();
    let named =
        ["missing field `", "unknown field `", "duplicate field `"].iter().find_map(|start| {
            detail.strip_prefix(start)?.split_once('`').map(|(name, _)| name.to_owned())
        });
    let field = match named {
        Some(name) if path.is_empty() => name,
        Some(name) if path.ends_with(&name) => path.to_owned(),
        Some(name) => format!("{path}.{name}"),
        None => path.to_owned(),
    };
    // A field says where it is; within its value a place helps to find what is no JSON.
    let is_json = !field.is_empty() && !NO_JSON.iter().any(|start| detail.starts_with(start));
    let place = detail.rfind(" at line ").filter(|_| is_json);
    let told = in_words(&detail[..place.unwrap_or(detail.len())]);
    Problem::invalid(field, told)
}

/// The errors of readers, in plain words.
fn in_words(detail: &str) -> Cow<'_, str> {
    let told = match detail {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "not a whole number"
        }
        "number too large to fit in target type" => "the number is too large",
        "number too small to fit in target type" => "the number is too small",
        "invalid float literal" | "cannot parse float from empty string" => "not a number",
        "provided string was not `true` or `false`" => "neither true nor false",
        long if long.len() > EXPLAINED_BYTES_MAX => long,
        other => return in_words_of_json(other).into(),
    };
    told.into()
}

/// As the configuration explains it, whose tables are objects here.
fn in_words_of_json(detail: &str) -> String {
    let told = match detail.rsplit_once(", expected ") {
        Some((given, wanted)) if wanted == "a map" || wanted.starts_with("struct ") => {
            config::in_words(&format!("{given}, expected an object"))
        }
        _ => config::in_words(detail),
    };
    match detail.starts_with("invalid type: map") {
        true => told.replacen("a table", "an object", 1),
        false => told,
    }
}

/// A field of a form may be empty.
pub(super) fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[allow(dead_code)]
        inner: Vec<Object<Inner>>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[allow(dead_code)]
        number: u8,
    }

    #[test]
    fn the_field_that_is_wrong_is_named() {
        let cases = [
            (r#"{"inner":[{"number":1},{"number":"x"}]}"#, Some("inner[1].number")),
            (r#"{"inner":[{}]}"#, Some("inner[0].number")),
            (r#"{"inner":[{"number":1,"nubmer":2}]}"#, Some("inner[0].nubmer")),
            (r#"{"inner":[[1]]}"#, Some("inner[0]")),
            ("{}", Some("inner")),
            ("[[]]", None),
            ("{", None),
            (r#"{"inner":[]} x"#, None),
        ];
        for (text, field) in cases {
            let problem = parse::<Outer>(text.as_bytes()).unwrap_err();
            assert_eq!(problem.field(), field, "{text}: {problem:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_field_is_told_without_the_words_of_the_reader() {
        let cases = [
            (r#"{"inner":[{"number":-1}]}"#, "found the number -1; write a whole number"),
            (r#"{"inner":{}}"#, "found an object; write a list"),
            (r#"{"inner":[{"nubmer":1}]}"#, "unknown key `nubmer` (did you mean `number`?)"),
            ("{}", "`inner` is missing"),
            (r#"{"inner":[{"number":1x}]}"#, "at line 1 column 22"),
        ];
        for (text, expected) in cases {
            let detail = parse::<Outer>(text.as_bytes()).unwrap_err().into_detail();
            assert!(detail.contains(expected), "{text}: {detail}");
            assert_eq!(detail.contains(" at line "), expected.starts_with("at line"), "{detail}");
        }
    }

    #[test]
    fn a_word_in_a_query_that_cannot_be_read_is_told_with_what_it_should_be() {
        #[derive(Debug, serde::Deserialize)]
        #[allow(dead_code)]
        struct Wish {
            limit: Option<u8>,
            live: Option<bool>,
            score: Option<f64>,
        }
        let cases = [
            ("limit=x", "limit", "not a whole number"),
            ("limit=", "limit", "not a whole number"),
            ("limit=-1", "limit", "not a whole number"),
            ("limit=300", "limit", "the number is too large"),
            ("live=yes", "live", "neither true nor false"),
            ("score=high", "score", "not a number"),
            ("score=", "score", "not a number"),
        ];
        for (query, field, detail) in cases {
            let problem = read_query::<Wish>(query).unwrap_err();
            assert_eq!(problem.field(), Some(field), "{query}");
            assert_eq!(problem.into_detail(), detail, "{query}");
        }
    }
}
