//! A bucket of the S3 protocol: the requests that a copy needs.

use std::fmt::Write as _;
use std::iter::empty;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ETAG, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use rusty_s3::actions::{
    AbortMultipartUpload, CompleteMultipartUpload, CreateMultipartUpload, HeadObject, ListParts,
    PutObject, UploadPart,
};
use rusty_s3::{Credentials, S3Action, UrlStyle};
use seriatim::text::cut_middle;
use tokio::time::timeout;
use url::Url;

use super::files::Trouble;
use crate::base::outgoing::{self, with_causes};
use crate::config::{BucketSettings, KeyConfig};

/// Time limit of a request, besides the time for its bytes.
const PATIENCE: Duration = Duration::from_secs(60);
/// A connection that is slower counts as broken.
const BYTES_PER_S_MIN: u64 = 64 << 10;
/// The server puts all parts together before it answers.
const COMPLETE_PATIENCE: Duration = Duration::from_secs(600);
/// How long a signature is good for the beginning of its request.
const SIGNED_FOR: Duration = Duration::from_secs(900);
/// Most bytes of an answer: a page of the list of parts has 1,000 of them.
const ANSWER_BYTES_MAX: usize = 2 << 20;
/// What an error of the server shows of each of its texts, in bytes.
const TOLD_BYTES_MAX: usize = 500;
/// Longest name of an object, in bytes.
const KEY_BYTES_MAX: usize = 1_024;

/// The server compares what it got with this before it keeps it.
const CHECKSUM: &str = "x-amz-checksum-sha256";
/// Where a copy has the SHA-256 of its whole, in hexadecimal digits as elsewhere.
const KEPT: &str = "x-amz-meta-sha256";

/// A SHA-256.
pub(super) type Sum = [u8; 32];

/// A bucket, or a folder in it, with the keys for it.
pub(super) struct Bucket {
    client: outgoing::Client,
    signer: rusty_s3::Bucket,
    credentials: Credentials,
    folder: String,
}

/// A file in a bucket, which need not be there.
pub(super) struct Object<'a> {
    bucket: &'a Bucket,
    key: String,
}

/// What the server has of a file.
#[derive(Debug, PartialEq)]
pub(super) struct Kept {
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// A part that the server has of an upload.
pub(super) struct Part {
    pub(super) bytes: u64,
    pub(super) etag: String,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Bucket {
    /// Fails if a key is missing, or if the system has no certificate authorities and needs them.
    pub(super) fn open(settings: &BucketSettings) -> Result<Self, String> {
        let BucketSettings { server, bucket, folder, region, access_key, secret_key } = settings;
        let key =
            |name: &str, key: &KeyConfig| key.text().map_err(|why| format!("`{name}`: {why}"));
        let (access, secret) = (key("access_key", access_key)?, key("secret_key", secret_key)?);
        let url = Url::parse(server).map_err(|error| format!("`s3`: {error}"))?;
        let bucket = rusty_s3::Bucket::new(url, UrlStyle::Path, bucket.clone(), region.clone());
        Ok(Self {
            client: outgoing::client(server.starts_with("https"))?,
            signer: bucket.map_err(|error| format!("`s3`: {error}"))?,
            credentials: Credentials::new(access, secret),
            folder: folder.clone(),
        })
    }

    /// The object of a file's name in a folder.
    pub(super) fn object(&self, folder: &str, name: &str) -> Result<Object<'_>, Trouble> {
        let folders = self.folder.split('/').chain(folder.split('/')).filter(|it| !it.is_empty());
        let key = folders.chain([name]).collect::<Vec<_>>().join("/");
        if key.len() > KEY_BYTES_MAX {
            let bytes = key.len();
            let what = format!("the name in the bucket has {bytes} bytes; at most {KEY_BYTES_MAX}");
            return Err(Trouble::Bury(format!("{what}: {key}")));
        }
        Ok(Object { bucket: self, key })
    }

    async fn ask<'a, A: S3Action<'a>>(
        &'a self,
        mut action: A,
        headers: &[(&'static str, String)],
        body: Bytes,
        patience: Duration,
    ) -> Result<Answer, String> {
        for (name, value) in headers {
            action.headers_mut().insert(*name, value.clone());
        }
        let signed = action.sign(SIGNED_FOR);
        let bytes = body.len() as u64;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = match A::METHOD {
            rusty_s3::Method::Head => Method::HEAD,
            rusty_s3::Method::Get => Method::GET,
            rusty_s3::Method::Post => Method::POST,
            rusty_s3::Method::Put => Method::PUT,
            rusty_s3::Method::Delete => Method::DELETE,
        };
        *request.uri_mut() = Uri::try_from(signed.as_str()).map_err(|error| error.to_string())?;
        let own = request.headers_mut();
        own.insert(USER_AGENT, HeaderValue::from_static(outgoing::USER_AGENT));
        for (name, value) in headers {
            let value = HeaderValue::try_from(value).map_err(|error| error.to_string())?;
            own.insert(HeaderName::from_static(name), value);
        }
        let asked = async {
            let answer = self.client.request(request).await.map_err(|error| with_causes(&error))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| with_causes(&*error))?.to_bytes();
            let text = String::from_utf8_lossy(&body).into_owned();
            Ok::<_, String>(Answer { status: head.status, headers: head.headers, text })
        };
        let limit = patience + Duration::from_secs(bytes / BYTES_PER_S_MIN);
        timeout(limit, asked).await.unwrap_or_else(|_| {
            Err(format!("no answer within {}", seriatim::duration::format(limit)))
        })
    }
}

impl Object<'_> {
    /// What is there now. Also none if the server refuses to answer, as S3 does for a missing object without the right to
    /// list: if a right is missing, the write fails and says so.
    pub(super) async fn kept(&self) -> Result<Option<Kept>, Trouble> {
        let answer = self.ask(self.head(), &[], Bytes::new(), PATIENCE).await?;
        if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::FORBIDDEN) {
            return Ok(None);
        }
        let answer = self.accepted(answer)?;
        let bytes = answer.header("content-length").and_then(|text| text.parse().ok());
        let sha256 = answer.header(KEPT);
        let kept = bytes.zip(sha256);
        Ok(kept.map(|(bytes, sha256)| Kept { bytes, sha256: sha256.to_owned() }))
    }

    /// Writes the whole.
    pub(super) async fn put(&self, body: Bytes, whole: &str, sum: &Sum) -> Result<(), Trouble> {
        let (bucket, credentials) = self.signer();
        let action = PutObject::new(bucket, credentials, &self.key);
        let headers = [(CHECKSUM, STANDARD.encode(sum)), (KEPT, whole.to_owned())];
        let answer = self.ask(action, &headers, body, PATIENCE).await?;
        self.compared(&self.accepted(answer)?, sum)
    }

    /// Begins an upload in parts, and returns its id.
    pub(super) async fn begin(&self, whole: &str) -> Result<String, Trouble> {
        let (bucket, credentials) = self.signer();
        let action = CreateMultipartUpload::new(bucket, credentials, &self.key);
        let headers = [("x-amz-checksum-algorithm", "SHA256".to_owned()), (KEPT, whole.to_owned())];
        let answer = self.ask(action, &headers, Bytes::new(), PATIENCE).await?;
        let answer = self.accepted(answer)?;
        let read = CreateMultipartUpload::parse_response(&answer.text);
        let read = read.map_err(|error| self.trouble(&unreadable(&error)))?;
        Ok(read.upload_id().to_owned())
    }

    /// Sends a part, counted from 1, and returns the name that the server gives it.
    pub(super) async fn send(
        &self,
        upload: &str,
        number: u16,
        body: Bytes,
        sum: &Sum,
    ) -> Result<String, Trouble> {
        let (bucket, credentials) = self.signer();
        let action = UploadPart::new(bucket, credentials, &self.key, number, upload);
        let headers = [(CHECKSUM, STANDARD.encode(sum))];
        let answer = self.accepted(self.ask(action, &headers, body, PATIENCE).await?)?;
        self.compared(&answer, sum)?;
        let etag = answer.header(ETAG.as_str());
        etag.map(str::to_owned).ok_or_else(|| self.trouble("the answer has no ETag"))
    }

    /// The parts of an upload by number; none if it has ended.
    pub(super) async fn parts(&self, upload: &str) -> Result<Option<Vec<(u16, Part)>>, Trouble> {
        let (bucket, credentials) = self.signer();
        let (mut parts, mut after) = (Vec::new(), None);
        loop {
            let mut action = ListParts::new(bucket, credentials, &self.key, upload);
            if let Some(number) = after {
                action.set_part_number_marker(number);
            }
            let answer = self.ask(action, &[], Bytes::new(), PATIENCE).await?;
            if answer.status == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            let answer = self.accepted(answer)?;
            let page = ListParts::parse_response(&answer.text)
                .map_err(|error| self.trouble(&unreadable(&error)))?;
            let listed = page.parts.into_iter();
            parts.extend(listed.map(|it| (it.number, Part { bytes: it.size, etag: it.etag })));
            // A server that stays where it is would be asked for ever.
            match page.next_part_number_marker.filter(|next| after.is_none_or(|at| at < *next)) {
                Some(next) => after = Some(next),
                None => return Ok(Some(parts)),
            }
        }
    }

    /// Makes the object of its parts. The server compares their checksums with those that it has computed.
    pub(super) async fn complete(
        &self,
        upload: &str,
        parts: &[(String, Sum)],
    ) -> Result<(), Trouble> {
        let (bucket, credentials) = self.signer();
        let action =
            CompleteMultipartUpload::new(bucket, credentials, &self.key, upload, empty::<&str>());
        let answer = self.ask(action, &[], listed(parts).into(), COMPLETE_PATIENCE).await?;
        // It may have said 200 before it knew.
        let code = text_of(&answer.text, "Code");
        if answer.status.is_success() && code.is_none() {
            return Ok(());
        }
        if answer.status == StatusCode::BAD_REQUEST || code == Some("InvalidPart") {
            // A part is not what it should be. The next attempt sends all of them.
            self.abort(upload).await?;
        }
        Err(self.refused(&answer))
    }

    /// Gives an upload up: the server forgets its parts.
    pub(super) async fn abort(&self, upload: &str) -> Result<(), Trouble> {
        let (bucket, credentials) = self.signer();
        let action = AbortMultipartUpload::new(bucket, credentials, &self.key, upload);
        let answer = self.ask(action, &[], Bytes::new(), PATIENCE).await?;
        if answer.status == StatusCode::NOT_FOUND {
            Ok(())
        } else {
            self.accepted(answer).map(drop)
        }
    }

    /// An error that may pass, with the object that it is about; never with the signed address.
    pub(super) fn trouble(&self, why: &str) -> Trouble {
        let (base, key) = (self.bucket.signer.base_url(), &self.key);
        Trouble::Retry(format!("{base}{key}: {why}"))
    }

    fn signer(&self) -> (&rusty_s3::Bucket, Option<&Credentials>) {
        (&self.bucket.signer, Some(&self.bucket.credentials))
    }

    fn head(&self) -> HeadObject<'_> {
        let (bucket, credentials) = self.signer();
        HeadObject::new(bucket, credentials, &self.key)
    }

    async fn ask<'a, A: S3Action<'a>>(
        &'a self,
        action: A,
        headers: &[(&'static str, String)],
        body: Bytes,
        patience: Duration,
    ) -> Result<Answer, Trouble> {
        let answer = self.bucket.ask(action, headers, body, patience).await;
        answer.map_err(|why| self.trouble(&why))
    }

    fn accepted(&self, answer: Answer) -> Result<Answer, Trouble> {
        if answer.status.is_success() { Ok(answer) } else { Err(self.refused(&answer)) }
    }

    /// An error of the server. It may pass: rights and buckets are mended, and the job does not know who will.
    fn refused(&self, answer: &Answer) -> Trouble {
        self.trouble(&format!("the server answered {}{}", answer.status, told(&answer.text)))
    }

    /// Refuses an answer that does not say that the server compared the checksum.
    fn compared(&self, answer: &Answer, sum: &Sum) -> Result<(), Trouble> {
        match answer.header(CHECKSUM).is_some_and(|text| text == STANDARD.encode(sum)) {
            true => Ok(()),
            false => Err(self.trouble(&format!(
                "the server does not compare SHA-256 checksums ({CHECKSUM}), so copies on it cannot be verified"
            ))),
        }
    }
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// The parts of an upload, as its end names them. The library's own list has no checksums, which S3 wants to see again.
fn listed(parts: &[(String, Sum)]) -> String {
    let mut text =
        String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (number, (etag, sum)) in (1..).zip(parts) {
        let (etag, sum) = (etag.replace('&', "&amp;").replace('<', "&lt;"), STANDARD.encode(sum));
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag><ChecksumSHA256>{sum}</ChecksumSHA256></Part>"
        );
    }
    text + "</CompleteMultipartUpload>"
}

/// What an error says, cut: the errors of all targets of a job are kept together.
fn told(xml: &str) -> String {
    let texts = ["Code", "Message"].into_iter().filter_map(|name| text_of(xml, name));
    texts.fold(String::new(), |told, text| told + ": " + &cut_middle(text, TOLD_BYTES_MAX))
}

/// What an error says in an element. It is only shown.
fn text_of<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once('<')?.0)
}

fn unreadable(error: &impl std::fmt::Display) -> String {
    format!("cannot read the answer: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_server_is_told_in_short() {
        let xml = format!("<Error><Code>Odd</Code><Message>{}</Message>", "no ".repeat(100_000));
        let told = told(&xml);
        assert!(told.starts_with(": Odd: no no") && told.len() < 600, "{told}");
        assert_eq!(super::told("<html>"), "");
    }
}
