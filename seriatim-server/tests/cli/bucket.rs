//! A server of the S3 protocol with one bucket in memory. It checks signatures by code of its own, and is as strict about
//! checksums as S3 is.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::receiver::{Received, answer, read};

pub(crate) const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
pub(crate) const SECRET_KEY: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const REGION: &str = "eu-central-1";
const PATH: &str = "/my-films/";
/// S3 takes smaller parts only at the end.
const PART_BYTES_MIN: usize = 5 << 20;
const CHECKSUM: &str = "x-amz-checksum-sha256";
const KEPT: &str = "x-amz-meta-sha256";

/// Listens until the test ends.
pub(crate) struct Bucket {
    url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, Upload>,
    begun: usize,
    asked: Vec<String>,
}

#[derive(Clone, Default)]
pub(crate) struct Object {
    pub(crate) content: Vec<u8>,
    /// Its `x-amz-meta-sha256`.
    pub(crate) sha256: String,
}

struct Upload {
    key: String,
    sha256: String,
    parts: BTreeMap<usize, Vec<u8>>,
}

/// The error of a request: the status, and the code.
type Refusal = (&'static str, &'static str);

impl Bucket {
    /// `instead` hears of each request that is signed, such as `put`, `head` and `part 2`, and may answer it.
    pub(crate) fn start(instead: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}{PATH}2026", listener.local_addr().unwrap());
        let (state, instead) = (Arc::<Mutex<State>>::default(), Arc::new(instead));
        let kept = state.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (state, instead) = (kept.clone(), instead.clone());
                std::thread::spawn(move || {
                    let Some(request) = read(&stream) else { return };
                    let answer = answered(&request, &state, &*instead);
                    // The client may be gone.
                    let _ = write!(stream, "HTTP/1.1 {answer}");
                });
            }
        });
        Self { url, state }
    }

    /// The worker that copies into it, by the name `films`. Its keys are in files of the folder.
    pub(crate) fn worker(&self) -> String {
        format!(
            "builtin = \"replicate\"\nroots = [\".\"]\n[workers.servers.films]\ns3 = \"{}\"\nregion = \"{REGION}\"\n\
             access_key = {{ file = \"access.key\" }}\nsecret_key = {{ file = \"secret.key\" }}",
            self.url
        )
    }

    pub(crate) fn object(&self, key: &str) -> Option<Object> {
        self.state.lock().unwrap().objects.get(key).cloned()
    }

    /// What it was asked for.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.clone()
    }

    /// How many uploads it has parts of.
    pub(crate) fn uploads(&self) -> usize {
        self.state.lock().unwrap().uploads.len()
    }

    /// Replaces a part that it has of an upload, as no server should.
    pub(crate) fn spoil(&self, part: usize) {
        let mut state = self.state.lock().unwrap();
        let part = state.uploads.values_mut().find_map(|upload| upload.parts.get_mut(&part));
        part.unwrap()[0] ^= 1;
    }
}

/// An answer in the words of S3.
pub(crate) fn refused(status: &str, code: &str) -> String {
    let xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";
    answer(
        status,
        "",
        &format!("{xml}\n<Error><Code>{code}</Code><Message>It is refused.</Message></Error>"),
    )
}

fn answered(
    request: &Received,
    state: &Mutex<State>,
    instead: &(dyn Fn(&str) -> Option<String> + Sync),
) -> String {
    let question = Question::read(request);
    if let Err(code) = question.is_signed(request, SECRET_KEY) {
        return refused("403 Forbidden", code);
    }
    let what = question.what();
    state.lock().unwrap().asked.push(what.clone());
    if let Some(answer) = instead(&what) {
        return answer;
    }
    let answered = state.lock().unwrap().answer(&question, request);
    answered.unwrap_or_else(|(status, code)| refused(status, code))
}

struct Question<'a> {
    method: &'a str,
    path: &'a str,
    /// As in the address.
    query: Vec<(&'a str, &'a str)>,
    key: String,
}

impl<'a> Question<'a> {
    fn read(request: &'a Received) -> Self {
        let mut words = request.line.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let key = decoded(path.strip_prefix(PATH).unwrap_or_default());
        Self { method, path, query: pairs.collect(), key }
    }

    fn parameter(&self, name: &str) -> Option<String> {
        let found = self.query.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| decoded(value))
    }

    fn part(&self) -> Option<usize> {
        self.parameter("partNumber")?.parse().ok()
    }

    fn upload(&self) -> String {
        self.parameter("uploadId").unwrap_or_default()
    }

    fn what(&self) -> String {
        let is_in_parts = self.parameter("uploadId").is_some();
        let what = match (self.method, is_in_parts) {
            ("HEAD", _) => "head",
            ("GET", true) => "list",
            ("POST", true) => "complete",
            ("POST", false) => "begin",
            ("DELETE", true) => "abort",
            ("PUT", true) => return format!("part {}", self.part().unwrap()),
            ("PUT", false) => "put",
            other => panic!("{other:?}"),
        };
        what.to_owned()
    }

    /// Compares the signature in the address, by "Authenticating Requests: Using Query Parameters" of S3's manual.
    fn is_signed(&self, request: &Received, secret: &str) -> Result<(), &'static str> {
        let parameter = |name| self.parameter(name).unwrap_or_default();
        let (credential, date) = (parameter("X-Amz-Credential"), parameter("X-Amz-Date"));
        let Some((access, scope)) = credential.split_once('/') else { return Err("AccessDenied") };
        if access != ACCESS_KEY {
            return Err("InvalidAccessKeyId");
        }
        let named = parameter("X-Amz-SignedHeaders");
        let named: Vec<&str> = named.split(';').collect();
        let is_theirs = |name: &str| name.starts_with("x-amz-");
        if request.headers.iter().any(|(name, _)| is_theirs(name) && !named.contains(&&**name)) {
            return Err("AccessDenied");
        }
        let mut query = self.query.clone();
        query.retain(|(name, _)| *name != "X-Amz-Signature");
        query.sort_unstable();
        let query = query.iter().map(|(name, value)| format!("{name}={value}"));
        let headers = named.iter().map(|name| format!("{name}:{}\n", request.header(name)));
        let canonical = [
            self.method,
            self.path,
            &query.collect::<Vec<_>>().join("&"),
            &headers.collect::<String>(),
            &named.join(";"),
            "UNSIGNED-PAYLOAD",
        ]
        .join("\n");
        let digest = hex(&Sha256::digest(canonical));
        let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}");
        let key = scope
            .split('/')
            .fold(format!("AWS4{secret}").into_bytes(), |key, part| code(&key, part));
        match hex(&code(&key, &to_sign)) == parameter("X-Amz-Signature") {
            true => Ok(()),
            false => Err("SignatureDoesNotMatch"),
        }
    }
}

impl State {
    fn answer(&mut self, question: &Question<'_>, request: &Received) -> Result<String, Refusal> {
        let no_upload = ("404 Not Found", "NoSuchUpload");
        let (key, id) = (question.key.clone(), question.upload());
        let sum = STANDARD.encode(Sha256::digest(&request.bytes));
        let kept = request.header(KEPT).to_owned();
        let named = request.header(CHECKSUM);
        let is_wrong = !named.is_empty() && named != sum;
        let echo = if named.is_empty() { String::new() } else { format!("{CHECKSUM}: {sum}\r\n") };
        match &*question.what() {
            "head" => Ok(match self.objects.get(&key) {
                None => answer("404 Not Found", "", ""),
                Some(object) => format!(
                    "200 OK\r\ncontent-length: {}\r\nconnection: close\r\n{KEPT}: {}\r\n\r\n",
                    object.content.len(),
                    object.sha256
                ),
            }),
            _ if is_wrong => Err(("400 Bad Request", "BadDigest")),
            "put" => {
                let content = request.bytes.clone();
                self.objects.insert(key, Object { content, sha256: kept });
                Ok(answer("200 OK", &echo, ""))
            }
            "begin" => {
                assert_eq!(request.header("x-amz-checksum-algorithm"), "SHA256");
                self.begun += 1;
                let id = format!("upload+{}/=", self.begun);
                self.uploads
                    .insert(id.clone(), Upload { key, sha256: kept, parts: BTreeMap::new() });
                let inner = format!("<UploadId>{id}</UploadId>");
                Ok(document("InitiateMultipartUploadResult", &inner))
            }
            "list" => {
                let upload = self.uploads.get(&id).ok_or(no_upload)?;
                Ok(upload.list(question.parameter("part-number-marker")))
            }
            "complete" => {
                let upload = self.uploads.get(&id).ok_or(no_upload)?;
                let content = upload.completed(&request.body)?;
                let object = Object { content, sha256: upload.sha256.clone() };
                assert_eq!(upload.key, key);
                self.objects.insert(key, object);
                self.uploads.remove(&id);
                Ok(document("CompleteMultipartUploadResult", "<ETag>&quot;x-3&quot;</ETag>"))
            }
            "abort" => {
                self.uploads.remove(&id).ok_or(no_upload)?;
                Ok(answer("204 No Content", "", ""))
            }
            _ => {
                if named.is_empty() {
                    return Err(("400 Bad Request", "InvalidRequest"));
                }
                let upload = self.uploads.get_mut(&id).ok_or(no_upload)?;
                let number = question.part().unwrap();
                upload.parts.insert(number, request.bytes.clone());
                let headers = format!("{echo}etag: {}\r\n", etag(number));
                Ok(answer("200 OK", &headers, ""))
            }
        }
    }
}

impl Upload {
    /// Two parts a page, so that there are pages.
    fn list(&self, after: Option<String>) -> String {
        let after = after.map_or(0, |text| text.parse().unwrap());
        let page: Vec<_> = self.parts.range(after + 1..).take(2).collect();
        let last = page.last().map_or(after, |(number, _)| **number);
        let is_cut = self.parts.range(last + 1..).next().is_some();
        let parts = page.into_iter().map(|(number, content)| {
            format!(
                "<Part><PartNumber>{number}</PartNumber><LastModified>2026-11-29T12:00:00.000Z</LastModified>\
                 <ETag>{}</ETag><Size>{}</Size></Part>",
                etag(*number).replace('"', "&quot;"),
                content.len()
            )
        });
        let head = format!(
            "<Bucket>my-films</Bucket><PartNumberMarker>{after}</PartNumberMarker>\
             <NextPartNumberMarker>{last}</NextPartNumberMarker><MaxParts>2</MaxParts><IsTruncated>{is_cut}</IsTruncated>"
        );
        document("ListPartsResult", &(head + &parts.collect::<String>()))
    }

    /// All parts together, if they are those that the request lists.
    fn completed(&self, request: &str) -> Result<Vec<u8>, Refusal> {
        let mut content = Vec::new();
        let count = request.matches("<Part>").count();
        for number in 1..=count {
            let part = self.parts.get(&number).ok_or(("400 Bad Request", "InvalidPart"))?;
            let sum = STANDARD.encode(Sha256::digest(part));
            let wanted = format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag><ChecksumSHA256>{sum}</ChecksumSHA256></Part>",
                etag(number)
            );
            if !request.contains("<ChecksumSHA256>") {
                return Err(("400 Bad Request", "InvalidRequest"));
            }
            if !request.contains(&wanted) {
                return Err(("400 Bad Request", "InvalidPart"));
            }
            if number < count && part.len() < PART_BYTES_MIN {
                return Err(("400 Bad Request", "EntityTooSmall"));
            }
            content.extend_from_slice(part);
        }
        Ok(content)
    }
}

/// What identifies a part. It is no MD5, as it is not everywhere.
fn etag(part: usize) -> String {
    format!("\"part-{part}\"")
}

fn document(name: &str, inner: &str) -> String {
    let xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";
    let space = "http://s3.amazonaws.com/doc/2006-03-01/";
    answer("200 OK", "", &format!("{xml}\n<{name} xmlns=\"{space}\">{inner}</{name}>"))
}

fn decoded(text: &str) -> String {
    let text = text.replace('+', "%2B");
    let pair = form_urlencoded::parse(text.as_bytes()).next();
    pair.map(|(text, _)| text.into_owned()).unwrap_or_default()
}

fn code(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn the_signature_of_the_example_in_the_manual_of_s3_is_right_and_no_other_is() {
    let line = "GET /test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
                &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
                &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
                &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404 HTTP/1.1";
    let host = ("host".to_owned(), "examplebucket.s3.amazonaws.com".to_owned());
    let request = |line: &str, more: &[(String, String)]| Received {
        line: line.to_owned(),
        headers: [std::slice::from_ref(&host), more].concat(),
        body: String::new(),
        bytes: Vec::new(),
    };
    let checked = |line: &str, more: &[(String, String)], secret| {
        let request = request(line, more);
        Question::read(&request).is_signed(&request, secret)
    };
    assert_eq!(checked(line, &[], SECRET_KEY), Ok(()));
    assert_eq!(checked(line, &[], "another"), Err("SignatureDoesNotMatch"));
    assert_eq!(
        checked(&line.replace("test.txt", "other.txt"), &[], SECRET_KEY),
        Err("SignatureDoesNotMatch")
    );
    let unsigned = [(KEPT.to_owned(), "x".to_owned())];
    assert_eq!(checked(line, &unsigned, SECRET_KEY), Err("AccessDenied"));
}
