//! A copy of a file in a bucket: in parts, of which one at a time is in memory, and which need not be sent again.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use hyper::body::Bytes;
use serde::{Deserialize, Serialize};
use seriatim::engine::Begun;
use seriatim::{Context, Steps};
use sha2::{Digest, Sha256};

use super::bucket::{Kept, Object, Part, Sum};
use super::files::{PIECE_BYTES, Trouble};
use super::stopped::must_end;
use crate::base::lock::lock;
use crate::base::text::hex;

/// Bytes of a part, unless that makes too many. A file of no more goes in one request.
const PART_BYTES: u64 = 8 << 20;
/// The protocol allows no more of one file.
const PARTS_MAX: u64 = 10_000;
/// What one job holds in memory at most. So a file has at most 4.9 TiB.
const PART_BYTES_MAX: u64 = 512 << 20;

/// The checksums of a file.
pub(super) struct Sums {
    /// In hexadecimal digits.
    whole: String,
    parts: Vec<Sum>,
    bytes: u64,
    part_bytes: u64,
}

/// An upload as the steps of the job keep it.
#[derive(Serialize, Deserialize)]
struct Noted {
    upload: String,
    /// Of the file that it is of.
    sha256: String,
}

/// One file on its way to one object.
pub(super) struct Upload<'a> {
    object: &'a Object<'a>,
    source: (&'a File, &'a Path),
    sums: &'a Sums,
    /// The id of the upload in parts, as soon as it is known.
    id: Mutex<Option<String>>,
}

impl Sums {
    /// Reads a whole file; `read` gets the number of bytes of each read.
    pub(super) fn of(
        mut file: &File,
        path: &Path,
        mut read: impl FnMut(u64) -> Result<(), Trouble>,
    ) -> Result<Self, Trouble> {
        let at = |error| Trouble::at(path, error);
        let bytes = file.metadata().map_err(at)?.len();
        let part_bytes = part_bytes(bytes).ok_or_else(|| {
            let what = format!("{bytes} bytes; a bucket takes {}", PARTS_MAX * PART_BYTES_MAX);
            Trouble::Bury(format!("{} is too long: {what}", path.display()))
        })?;
        file.rewind().map_err(at)?;
        let (mut whole, mut parts, mut done) = (Sha256::new(), Vec::new(), 0);
        let mut piece = vec![0; PIECE_BYTES];
        while done < bytes || parts.is_empty() {
            let (mut part, end) = (Sha256::new(), bytes.min(done + part_bytes));
            while done < end {
                let room = piece.len().min((end - done) as usize);
                let count = file.read(&mut piece[..room]).map_err(at)?;
                if count == 0 {
                    return Err(changed(path));
                }
                whole.update(&piece[..count]);
                part.update(&piece[..count]);
                done += count as u64;
                read(count as u64)?;
            }
            parts.push(part.finalize().into());
        }
        Ok(Self { whole: hex(&whole.finalize()), parts, bytes, part_bytes })
    }

    /// Where a part begins, counted from 0, and its bytes.
    fn place(&self, part: usize) -> (u64, u64) {
        let start = part as u64 * self.part_bytes;
        (start, self.part_bytes.min(self.bytes - start))
    }
}

impl<'a> Upload<'a> {
    pub(super) fn new(
        object: &'a Object<'a>,
        source: (&'a File, &'a Path),
        sums: &'a Sums,
    ) -> Self {
        Self { object, source, sums, id: Mutex::default() }
    }

    /// Copies the file there, unless it is there; `told` hears the percentage. `name` is of its steps alone.
    pub(super) async fn run(
        &self,
        steps: &mut Steps,
        name: &str,
        context: &Context,
        told: impl FnMut(f64),
    ) -> Result<(), Trouble> {
        let ended = tokio::select! {
            ended = self.copy(steps, name, told) => ended,
            () = context.cancelled() => Err(Trouble::Stopped),
        };
        // Whoever stops goes on later. Who cancels does not, and would pay for the parts.
        let is_only_cancelled = context.is_cancelled() && !must_end(context);
        if is_only_cancelled && matches!(ended, Err(Trouble::Stopped)) {
            self.give_up(steps, name).await;
        }
        ended
    }

    async fn copy(
        &self,
        steps: &mut Steps,
        name: &str,
        told: impl FnMut(f64),
    ) -> Result<(), Trouble> {
        let wanted = Kept { bytes: self.sums.bytes, sha256: self.sums.whole.clone() };
        if self.object.kept().await?.as_ref() == Some(&wanted) {
            return Ok(());
        }
        match &self.sums.parts[..] {
            [sum] => self.object.put(self.read(0)?, &self.sums.whole, sum).await?,
            _ => self.send_parts(steps, name, told).await?,
        }
        match self.object.kept().await? {
            Some(kept) if kept == wanted => Ok(()),
            Some(_) => Err(self.object.trouble("it is another file after the copy: copying again")),
            None => Err(self.object.trouble("the copy cannot be read to verify it (s3:GetObject)")),
        }
    }

    async fn send_parts(
        &self,
        steps: &mut Steps,
        name: &str,
        mut told: impl FnMut(f64),
    ) -> Result<(), Trouble> {
        let (id, there) = self.begin(steps, name).await?;
        let mut sent = Vec::with_capacity(self.sums.parts.len());
        for (place, sum) in self.sums.parts.iter().enumerate() {
            let number = place as u16 + 1;
            let (start, bytes) = self.sums.place(place);
            let etag = match there.get(&number).filter(|part| part.bytes == bytes) {
                Some(part) => part.etag.clone(),
                None => self.object.send(&id, number, self.read(place)?, sum).await?,
            };
            sent.push((etag, *sum));
            told((start + bytes) as f64 * 100.0 / self.sums.bytes as f64);
        }
        self.object.complete(&id, &sent).await
    }

    /// The upload that an earlier attempt began and the parts that the server has of it, or a new one.
    async fn begin(
        &self,
        steps: &mut Steps,
        name: &str,
    ) -> Result<(String, HashMap<u16, Part>), Trouble> {
        let failed = |error: seriatim::Error| Trouble::Retry(error.to_string());
        for number in 1.. {
            let step = step(name, number);
            match steps.begin(&step).map_err(failed)? {
                Begun::Cancelled | Begun::Stopping => break,
                Begun::Ended(noted) => {
                    let Ok(noted) = serde_json::from_value::<Noted>(noted) else { continue };
                    self.is_known(&noted.upload);
                    if noted.sha256 != self.sums.whole {
                        self.object.abort(&noted.upload).await?;
                    } else if let Some(parts) = self.object.parts(&noted.upload).await? {
                        return Ok((noted.upload, parts.into_iter().collect()));
                    }
                }
                Begun::Run => {
                    let upload = self.object.begin(&self.sums.whole).await?;
                    self.is_known(&upload);
                    let sha256 = self.sums.whole.clone();
                    let noted = Noted { upload: upload.clone(), sha256 };
                    let noted = serde_json::to_value(noted);
                    let noted = noted.map_err(|error| Trouble::Retry(error.to_string()))?;
                    steps.end(&step, noted).await.map_err(failed)?;
                    return Ok((upload, HashMap::new()));
                }
            }
        }
        Err(Trouble::Stopped)
    }

    /// A part, which must be as it was when it was hashed.
    fn read(&self, place: usize) -> Result<Bytes, Trouble> {
        let ((file, path), (start, bytes)) = (self.source, self.sums.place(place));
        let mut body = vec![0; bytes as usize];
        file.read_exact_at(&mut body, start).map_err(|error| Trouble::at(path, error))?;
        let sum: Sum = Sha256::digest(&body).into();
        if sum == self.sums.parts[place] { Ok(body.into()) } else { Err(changed(path)) }
    }

    fn is_known(&self, id: &str) {
        *lock(&self.id) = Some(id.to_owned());
    }

    /// Tells the server to forget the parts, also those of an earlier attempt if this one still asked for the copy.
    async fn give_up(&self, steps: &mut Steps, name: &str) {
        let mut ids: Vec<String> = lock(&self.id).take().into_iter().collect();
        if ids.is_empty() {
            for number in 1.. {
                let Ok(Begun::Ended(noted)) = steps.begin(&step(name, number)) else { break };
                let noted = serde_json::from_value::<Noted>(noted);
                ids.extend(noted.ok().map(|noted| noted.upload));
            }
        }
        for id in ids {
            if let Err(error) = self.object.abort(&id).await {
                tracing::warn!(?error, "the parts of an upload stay in their bucket");
            }
        }
    }
}

/// The step that begins an upload: a new one if the one before has ended, or is of another content.
fn step(name: &str, number: u32) -> String {
    format!("{name}, upload {number}")
}

/// The bytes of a part of a file of so many; none if it is too long.
fn part_bytes(bytes: u64) -> Option<u64> {
    let least = bytes.div_ceil(PARTS_MAX).next_multiple_of(PIECE_BYTES as u64);
    Some(least.max(PART_BYTES)).filter(|part| *part <= PART_BYTES_MAX)
}

fn changed(path: &Path) -> Trouble {
    Trouble::Retry(format!("{} changed during the copy: copying again", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_few_enough_parts_and_none_is_too_large_for_memory() {
        const MIB: u64 = 1 << 20;
        assert_eq!(part_bytes(0), Some(8 * MIB));
        assert_eq!(part_bytes(80_000 * MIB), Some(8 * MIB));
        assert_eq!(part_bytes(80_000 * MIB + 1), Some(9 * MIB));
        assert_eq!(part_bytes(PARTS_MAX * PART_BYTES_MAX), Some(PART_BYTES_MAX));
        assert_eq!(part_bytes(PARTS_MAX * PART_BYTES_MAX + 1), None);
        for bytes in [1, PART_BYTES, 123_456_789_012, 4 << 40] {
            let parts = bytes.div_ceil(part_bytes(bytes).unwrap());
            assert!(parts <= PARTS_MAX, "{bytes}: {parts}");
        }
    }

    #[test]
    fn the_checksums_of_a_file_are_of_the_whole_and_of_each_part() {
        let mut file = tempfile::tempfile().unwrap();
        let content = vec![7; PART_BYTES as usize + 3];
        std::io::Write::write_all(&mut file, &content).unwrap();
        let mut read = 0;
        let sums = Sums::of(&file, Path::new("x"), |bytes| {
            read += bytes;
            Ok(())
        });
        let sums = sums.unwrap();
        assert_eq!((read, sums.bytes), (PART_BYTES + 3, PART_BYTES + 3));
        assert_eq!(sums.whole, hex(&Sha256::digest(&content)));
        let (first, rest) = content.split_at(PART_BYTES as usize);
        let digests: [Sum; 2] = [first, rest].map(|part| Sha256::digest(part).into());
        assert_eq!(sums.parts, digests);
        assert_eq!((sums.place(0), sums.place(1)), ((0, PART_BYTES), (PART_BYTES, 3)));
        let empty = tempfile::tempfile().unwrap();
        let sums = Sums::of(&empty, Path::new("x"), |_| Ok(())).unwrap();
        assert_eq!((sums.parts.len(), sums.place(0)), (1, (0, 0)));
    }
}
