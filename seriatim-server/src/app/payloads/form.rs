//! The stored form of a payload: a JSON text `seriatim:1:FORM:KEY:BASE64`. FORM is `z` for compressed, otherwise `p`; KEY is
//! the name of the key that has encrypted it, or `-`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_with_limit};
use seriatim::limits::{PAYLOAD_BYTES_MAX, TURN_BYTES_MAX};
use seriatim::store::Digest;
use seriatim::{Codec, Error, Failure, Job, Payload, Result, engine::Exhausted};

use super::keys::Keys;
use crate::config::PayloadsConfig;

/// With what a payload in another form than its own begins.
const START: &str = "\"seriatim:1:";
/// The same without the quotation mark.
const HEAD: &str = "seriatim:1:";
/// Shorter payloads gain nothing.
const COMPRESS_FROM_BYTES: usize = 256;
const COMPRESS_LEVEL: u8 = 6;
/// A stored form is at least this part of its payload, by spaces at its end: claims, turns and what waits for a worker are
/// bounded by stored bytes, and what they unpack to must be so too.
const UNPACKED_TIMES_MAX: usize = 8;
/// What the payloads of one claim may have above that. Others than this program write forms too, by SQL or the library, and
/// earlier builds wrote shorter ones.
pub(super) const EXCESS_BYTES_MAX: usize = UNPACKED_TIMES_MAX * TURN_BYTES_MAX;
/// The first byte of what stands for a payload that cannot be read; no JSON begins with it. The reason follows.
const UNREADABLE: u8 = 0;

/// How payloads of each queue are stored.
#[derive(Default)]
pub(crate) struct Forms {
    config: PayloadsConfig,
    keys: Keys,
    /// Why there are no keys, although the configuration names some.
    keyless: Option<String>,
}

impl Forms {
    pub(super) fn new(config: &PayloadsConfig, keys: Result<Keys, String>) -> Self {
        let keyless = keys.as_ref().err().cloned();
        Self { config: config.clone(), keys: keys.unwrap_or_default(), keyless }
    }

    /// Gives a job its stored form. What equal payloads have in common is read before. A payload that no worker may get is
    /// refused here: its stored form may be short and flat.
    pub(super) fn write(&self, job: &mut Job) -> Result<()> {
        let plain = job.payload.as_bytes();
        let (seals, packs) = (self.seals(&job.queue), self.config.compresses(&job.queue));
        let is_odd = plain.starts_with(START.as_bytes());
        if !seals && !packs && !is_odd {
            return Ok(());
        }
        job.payload.validate()?;
        if let Some(why) = self.keyless.as_ref().filter(|_| seals) {
            let queue = &job.queue;
            let message = format!("payloads of queue {queue:?} are encrypted, but {why}");
            return Err(Error::invalid("payload", message));
        }
        let packed = packs.then(|| packed(plain)).flatten();
        if !seals && packed.is_none() && !is_odd {
            return Ok(());
        }
        let form = if packed.is_some() { "z" } else { "p" };
        let key = self.keys.name().filter(|_| seals).unwrap_or("-");
        let header = format!("{HEAD}{form}:{key}");
        let body = packed.as_deref().unwrap_or(plain);
        let text = match seals {
            true => STANDARD.encode(self.keys.seal(&header, body)?),
            false => STANDARD.encode(body),
        };
        if job.key.is_some() || job.digest.is_some() {
            let digest = job.payload_digest();
            job.digest = Some(if seals { self.keys.digest(digest) } else { digest });
        }
        let mut stored = format!("\"{header}:{text}\"").into_bytes();
        stored.resize(stored.len().max(plain.len() / UNPACKED_TIMES_MAX), b' ');
        job.payload = Payload::from_bytes(stored);
        Ok(())
    }

    /// What died in an encrypted queue must not lie open in the queue that hears of it.
    fn seals(&self, queue: &str) -> bool {
        self.config.encrypts(queue)
            || (queue == Exhausted::QUEUE && !self.config.encrypt.is_empty())
    }

    /// The payload of a stored form, or why it cannot be read.
    pub(super) fn read(&self, stored: &Payload) -> Result<Option<Payload>, String> {
        if !stored.as_bytes().starts_with(START.as_bytes()) {
            return Ok(None);
        }
        const WRONG: &str =
            "its payload looks compressed or encrypted, but this version cannot read it";
        let text: &str = serde_json::from_slice(stored.as_bytes()).map_err(|_| WRONG)?;
        let (header, body) = text.rsplit_once(':').ok_or(WRONG)?;
        let (form, key) =
            header.strip_prefix(HEAD).and_then(|rest| rest.split_once(':')).ok_or(WRONG)?;
        let mut bytes = STANDARD.decode(body).map_err(|_| WRONG)?;
        if key != "-" {
            bytes = self.keys.open(key, header, &bytes)?;
        }
        match form {
            "p" => {}
            "z" => {
                let unpacked = decompress_to_vec_with_limit(&bytes, PAYLOAD_BYTES_MAX);
                bytes = unpacked.map_err(|e| match e.status {
                    TINFLStatus::HasMoreOutput => format!(
                        "its payload has more than {PAYLOAD_BYTES_MAX} bytes when decompressed, the most that a job may have"
                    ),
                    _ => format!("its payload cannot be decompressed: {e}"),
                })?;
            }
            _ => return Err(WRONG.to_owned()),
        }
        Ok(Some(Payload::from_bytes(bytes)))
    }

    /// The same for a worker, which finds the reason instead of a payload that cannot be read. `excess` is what is left of
    /// [`EXCESS_BYTES_MAX`].
    pub(super) fn open(&self, payload: &mut Payload, excess: &mut usize) {
        let usual = (payload.as_bytes().len() + 1) * UNPACKED_TIMES_MAX;
        let within = |plain: Payload| {
            let over = plain.as_bytes().len().saturating_sub(usual);
            *excess = excess.checked_sub(over).ok_or_else(|| {
                format!(
                    "the compressed payloads of its claim unpack to more than {EXCESS_BYTES_MAX} bytes beyond eight times \
                     their size: requeue it"
                )
            })?;
            Ok(plain)
        };
        match self.read(payload).and_then(|plain| plain.map(within).transpose()) {
            Ok(None) => {}
            Ok(Some(plain)) => *payload = plain,
            Err(why) => {
                *payload = Payload::from_bytes([&[UNREADABLE], why.as_bytes()].concat());
            }
        }
    }
}

/// The compressed bytes, if they are fewer.
fn packed(plain: &[u8]) -> Option<Vec<u8>> {
    if plain.len() < COMPRESS_FROM_BYTES {
        return None;
    }
    let packed = compress_to_vec(plain, COMPRESS_LEVEL);
    // As text it grows by a third.
    (packed.len() + packed.len() / 3 < plain.len()).then_some(packed)
}

/// Why a payload cannot be read.
pub(crate) fn unreadable(payload: &Payload) -> Option<String> {
    let why = payload.as_bytes().strip_prefix(&[UNREADABLE])?;
    Some(String::from_utf8_lossy(why).into_owned())
}

/// Refuses what cannot be read, so that the engine buries its job.
pub(crate) struct Readable;

impl Codec for Readable {
    fn encode(&self, payload: &Payload) -> Result<Payload> {
        Ok(payload.clone())
    }

    fn decode(&self, stored: &Payload) -> Result<Payload, Failure> {
        match unreadable(stored) {
            None => Ok(stored.clone()),
            Some(why) => Err(why.into()),
        }
    }

    /// `Forms::write` keys it if the queue is encrypted.
    fn digest(&self, plain: Digest) -> Digest {
        plain
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::KeyConfig;

    const ONE: &str = "1111111111111111111111111111111111111111111111111111111111111111";
    const TWO: &str = "2222222222222222222222222222222222222222222222222222222222222222";

    fn forms(compress: bool, keys: &[&str]) -> Forms {
        let some = |is: bool| BTreeSet::from_iter(is.then(|| "q".to_owned()));
        let config = PayloadsConfig {
            compress: some(compress),
            encrypt: some(!keys.is_empty()),
            keys: Vec::new(),
        };
        let folder = tempfile::tempdir().unwrap();
        let key = |(i, text): (usize, &&str)| {
            let file = folder.path().join(i.to_string());
            std::fs::write(&file, format!("{text}\n")).unwrap();
            KeyConfig { env: None, file: Some(file) }
        };
        let keys: Vec<KeyConfig> = keys.iter().enumerate().map(key).collect();
        Forms::new(&config, Ok(Keys::read(&keys).unwrap()))
    }

    fn job(text: &str) -> Job {
        Job::with_payload("q", Payload::from_json_text(text).unwrap()).key("k")
    }

    fn stored(forms: &Forms, text: &str) -> Job {
        let mut job = job(text);
        forms.write(&mut job).unwrap();
        job
    }

    #[test]
    fn l14_what_is_written_is_read_again_and_stored_as_json() {
        let long = format!("{{\"text\": \"{}\"}}", "sämtlich ".repeat(100));
        for (compress, keys) in
            [(false, &[][..]), (true, &[]), (false, &[ONE]), (true, &[ONE]), (true, &[TWO, ONE])]
        {
            let forms = forms(compress, keys);
            for text in [&*long, "null", "\"seriatim:1:p:-:forged\"", "{\"n\": 1e400}"] {
                let stored = stored(&forms, text).payload;
                serde_json::from_slice::<serde_json::Value>(stored.as_bytes())
                    .map_or_else(|_| assert!(text.contains("1e400")), drop);
                let plain = forms.read(&stored).unwrap().unwrap_or_else(|| stored.clone());
                assert_eq!(plain.as_bytes(), text.as_bytes());
                assert_eq!(
                    stored.as_bytes() == text.as_bytes(),
                    keys.is_empty() && !text.contains("forged") && !(compress && text == long)
                );
                if compress && text == long {
                    assert!(stored.as_bytes().len() < text.len() / 2);
                }
            }
        }
    }

    #[test]
    fn a_payload_is_refused_by_its_own_size_and_depth_however_short_its_stored_form_is() {
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        for text in [format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX)), deep] {
            for forms in [forms(true, &[]), forms(true, &[ONE])] {
                let error = forms.write(&mut job(&text)).unwrap_err();
                assert_eq!(error.field(), Some("payload"), "{error}");
            }
        }
        let most = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2));
        for forms in [forms(true, &[]), forms(true, &[ONE])] {
            let stored = stored(&forms, &most).payload;
            assert_eq!(forms.read(&stored).unwrap().unwrap().as_bytes(), most.as_bytes());
            // A turn has 16 MiB as stored.
            assert_eq!(stored.as_bytes().len(), most.len() / UNPACKED_TIMES_MAX);
        }
    }

    #[test]
    fn a_stored_form_that_unpacks_to_more_than_a_payload_may_have_says_so() {
        let bomb = compress_to_vec(&vec![b' '; PAYLOAD_BYTES_MAX + 1], COMPRESS_LEVEL);
        let text = format!("{START}z:-:{}\"", STANDARD.encode(bomb));
        let mut payload = Payload::from_bytes(text.into_bytes());
        Forms::default().open(&mut payload, &mut 0);
        let why = Readable.decode(&payload).unwrap_err().to_string();
        assert!(why.contains("more than 4194304 bytes"), "{why}");
    }

    #[test]
    fn short_forms_that_others_have_written_unpack_to_so_many_bytes_in_a_claim_and_no_more() {
        let plain = vec![b' '; PAYLOAD_BYTES_MAX];
        let text = STANDARD.encode(compress_to_vec(&plain, COMPRESS_LEVEL));
        let short = Payload::from_bytes(format!("{START}z:-:{text}\"").into_bytes());
        let (forms, mut excess, mut read) = (Forms::default(), EXCESS_BYTES_MAX, 0);
        let why = loop {
            let mut payload = short.clone();
            forms.open(&mut payload, &mut excess);
            if let Err(why) = Readable.decode(&payload) {
                break why.to_string();
            }
            read += payload.as_bytes().len();
        };
        assert!((EXCESS_BYTES_MAX..EXCESS_BYTES_MAX + (8 << 20)).contains(&read), "{read}");
        assert!(why.contains("134217728 bytes"), "{why}");
    }

    #[test]
    fn l14_while_keys_change_equal_payloads_differ_once() {
        // The procedure of docs/config.md: the new key as the second, then as the first, then alone.
        let steps = [&[ONE][..], &[ONE, TWO], &[TWO, ONE], &[TWO]];
        let digests = |text: &str| {
            steps.map(|keys| stored(&forms(keys.len() > 1, keys), text).payload_digest())
        };
        let (one, same) = (digests(r#"{"a": 1, "b": 2}"#), digests(r#"{"b":2,"a":1}"#));
        assert_eq!(one, same);
        assert!(one[0] == one[1] && one[1] != one[2] && one[2] == one[3], "{one:?}");
        assert_ne!(one[0], digests(r#"{"b":2,"a":2}"#)[0]);
        assert_ne!(one[0], job(r#"{"a": 1, "b": 2}"#).payload_digest());
        let twice = ["", ""].map(|_| stored(&forms(false, &[ONE]), "1").payload);
        assert_ne!(twice[0], twice[1]);
    }

    #[test]
    fn l14_a_payload_of_another_key_or_that_was_changed_says_so() {
        let sealed = stored(&forms(false, &[ONE]), "\"secret\"").payload;
        let text = String::from_utf8_lossy(sealed.as_bytes()).into_owned();
        assert!(!text.contains("secret"));
        let why = forms(false, &[TWO]).read(&sealed).unwrap_err();
        assert!(why.contains("not among payloads.keys"), "{why}");
        let changed = Payload::from_bytes(text.replace(":p:", ":z:").into_bytes());
        let why = forms(false, &[ONE]).read(&changed).unwrap_err();
        assert!(why.contains("damaged"), "{why}");
        let mut opened = sealed;
        Forms::default().open(&mut opened, &mut 0);
        assert!(unreadable(&opened).unwrap().contains("not among"));
        assert!(Readable.decode(&opened).is_err());
    }
}
