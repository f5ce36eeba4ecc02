//! The ready-made `ffmpeg` worker: probe → transcode → verify → publish. Each step leaves a mark
//! in a folder beside the output, so that a repeat goes on where the last attempt ended.

use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use serde_json::json;
use seriatim::{Context, JobId};
use tokio::process::Command;

use super::files::{FileJob, FileWorker, Progress, Trouble, hidden, publish};
use super::launch;
use super::on_file;
use super::roots::Input;
use crate::config::Ffmpeg;

/// Most options of one job.
const ARGS_MAX: usize = 256;
/// How much shorter or longer than its input a result may be, in seconds and as a part of it.
const LENGTH_SLACK_S: f64 = 1.0;
const LENGTH_SLACK_PART: f64 = 0.02;
/// Options after which a result need not be as long as its input.
const CUTTING: [&str; 6] = ["-ss", "-sseof", "-t", "-to", "-frames", "-shortest"];
const FILTERING: [&str; 4] = ["-vf", "-af", "-filter", "-lavfi"];
/// What the programs call their input: the file that was opened for them as their stdin. By a name it could
/// be another file by then, a pattern of names, or read as an option.
const INPUT: &str = "file:/proc/self/fd/0";
/// The formats of input that are read, in ffmpeg's words: those of one file, which opens no other. Not among
/// them are playlists (hls, dash, concat, imf, vobsub), names of streams (sdp), scripts and drawings that
/// refer to files (svg).
const FORMATS: &str = "aac,ac3,aiff,amr,apng,ape,asf,ass,au,av1,avi,bmp_pipe,caf,dirac,dnxhd,dpx_pipe,dsf,\
    dts,dtshd,dv,eac3,exr_pipe,flac,flv,gif,gxf,h261,h263,h264,hevc,ico,ivf,j2k_pipe,jpeg_pipe,jpegxl_anim,\
    jpegxl_pipe,m4v,matroska,mjpeg,mov,mp3,mpc,mpc8,mpeg,mpegts,mpegvideo,mxf,nut,obu,ogg,png_pipe,\
    ppm_pipe,psd_pipe,qoi_pipe,rm,srt,tak,tiff_pipe,tta,vc1,voc,vvc,w64,wav,webp_pipe,webvtt,wtv,wv,\
    yuv4mpegpipe";
/// Before each input: nothing but this file, whatever stands in it.
const CONFINED: [&str; 4] = ["-protocol_whitelist", "file", "-format_whitelist", FORMATS];
/// Told if one of the programs is missing.
const HINT: &str = ": install it, or set `ffmpeg` and `ffprobe`";
/// Longest extension of an output, in bytes.
const EXTENSION_BYTES_MAX: usize = 16;

/// The payload of a job.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    input: PathBuf,
    output: PathBuf,
    #[serde(default)]
    args: Vec<String>,
}

/// What is known of the input: the mark of the first step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Probed {
    bytes: u64,
    modified_ns: u128,
    args: Vec<String>,
    duration_s: Option<f64>,
}

/// The folder in which a job works, beside its output so that a rename is enough in the end.
struct Bench {
    folder: PathBuf,
    input: Input,
    output: PathBuf,
    args: Vec<String>,
}

impl FileWorker for Ffmpeg {
    type Payload = Order;

    async fn run(&self, job: FileJob<Order>) -> Result<(), Trouble> {
        let bench = self.bench(&job.payload, job.id)?;
        let probed = self.probe(&bench, &job).await?;
        if !bench.is_published() {
            self.transcode(&bench, &probed, &job).await?;
            self.verify(&bench, &probed, &job).await?;
            job.tell(&json!({ "step": "publish", "percent": 100 }));
            publish(&bench.transcoded(), &bench.output)?;
        }
        std::fs::remove_dir_all(&bench.folder).map_err(|e| Trouble::at(&bench.folder, e))
    }
}

impl Ffmpeg {
    fn bench(&self, order: &Order, id: JobId) -> Result<Bench, Trouble> {
        if !order.args.is_empty() && !self.takes_args {
            let what = "args: not allowed in payloads unless the worker sets `payload_args = true`";
            return Err(Trouble::Bury(what.to_owned()));
        }
        if order.args.len() > ARGS_MAX {
            let count = order.args.len();
            return Err(Trouble::Bury(format!("args: {count}; at most {ARGS_MAX}")));
        }
        let input = self.roots.open(&order.input)?;
        let output = self.roots.resolve_new(&order.output)?;
        if output.extension().is_none() {
            let what = format!("{} has no extension to tell its format", output.display());
            return Err(Trouble::Bury(what));
        }
        let extension = output.extension().unwrap_or_default().as_encoded_bytes();
        if extension.len() > EXTENSION_BYTES_MAX || !extension.iter().all(u8::is_ascii_alphanumeric)
        {
            let path = output.display();
            return Err(Trouble::Bury(format!(
                "{path}: its extension must be of ASCII letters and digits, at most {EXTENSION_BYTES_MAX}"
            )));
        }
        if input.path == output {
            return Err(Trouble::Bury("the output is the input".to_owned()));
        }
        if let Err(error) = output.symlink_metadata()
            && error.kind() == ErrorKind::InvalidFilename
        {
            return Err(Trouble::at(&output, error));
        }
        let name = output.file_name().unwrap_or_default().to_string_lossy().replace('%', "_");
        let folder = output.with_file_name(hidden(Path::new(&name), &format!(".seriatim-{id}")));
        if is_pattern(&folder) {
            let path = output.display();
            return Err(Trouble::Bury(format!("{path}: `%d` in its folder would be a pattern")));
        }
        if folder.symlink_metadata().is_ok_and(|there| !there.is_dir()) {
            return Err(Trouble::Bury(format!("{} is not a folder", folder.display())));
        }
        let args = [&self.args[..], &order.args[..]].concat();
        Ok(Bench { folder, input, output, args })
    }

    /// What was done for another state of the input, or with other options, is thrown away.
    async fn probe(&self, bench: &Bench, job: &FileJob<Order>) -> Result<Probed, Trouble> {
        let at = |error| Trouble::at(&bench.input.path, error);
        let about = bench.input.file.metadata().map_err(at)?;
        let modified = about.modified().map_err(at)?.duration_since(UNIX_EPOCH);
        let mut now = Probed {
            bytes: about.len(),
            modified_ns: modified.unwrap_or_default().as_nanos(),
            args: bench.args.clone(),
            duration_s: None,
        };
        if let Some(before) = bench.probed() {
            now.duration_s = before.duration_s;
            if now == before {
                return Ok(before);
            }
            std::fs::remove_dir_all(&bench.folder).map_err(at)?;
        }
        job.tell(&json!({ "step": "probe", "percent": 0 }));
        let Input { file, path } = &bench.input;
        now.duration_s = self.duration(file, path, &job.context).await?;
        let mark = serde_json::to_vec(&now).map_err(|e| Trouble::Retry(e.to_string()))?;
        let leave = || {
            std::fs::create_dir_all(&bench.folder)?;
            std::fs::write(bench.mark("probe.part"), mark)?;
            std::fs::rename(bench.mark("probe.part"), bench.mark("probe.json"))
        };
        leave().map_err(|error| Trouble::at(&bench.folder, error))?;
        Ok(now)
    }

    async fn transcode(
        &self,
        bench: &Bench,
        probed: &Probed,
        job: &FileJob<Order>,
    ) -> Result<(), Trouble> {
        if bench.transcoded().exists() {
            return Ok(());
        }
        bench.forget_verified()?;
        let part = bench.mark("part").with_extension(bench.extension());
        let mut command = launch::command(&self.transcoder, &self.environment);
        command.args(["-hide_banner", "-nostdin", "-nostats", "-y", "-progress", "pipe:1"]);
        command.args(CONFINED).args(["-i", INPUT]).args(&bench.args).arg(as_file(&part));
        let Input { file, path } = &bench.input;
        let (progress, duration_s) = (job.progress(), probed.duration_s);
        let follow = |line: &str| follow(line, &progress, duration_s);
        run(command, (file, path), &job.context, follow).await?;
        std::fs::rename(&part, bench.transcoded()).map_err(|error| Trouble::at(&part, error))
    }

    async fn verify(
        &self,
        bench: &Bench,
        probed: &Probed,
        job: &FileJob<Order>,
    ) -> Result<(), Trouble> {
        if bench.mark("verified").exists() {
            return Ok(());
        }
        job.tell(&json!({ "step": "verify", "percent": 100 }));
        let result = bench.transcoded();
        let file = File::open(&result).map_err(|error| Trouble::at(&result, error))?;
        let length = self.duration(&file, &result, &job.context).await;
        let wrong = match (length, probed.duration_s) {
            (Err(Trouble::Retry(error)), _) => Some(error),
            (Err(other), _) => return Err(other),
            (Ok(Some(is)), Some(was)) if bench.keeps_length() => {
                let slack = LENGTH_SLACK_S + was * LENGTH_SLACK_PART;
                let differs = (is - was).abs() > slack;
                differs.then(|| format!("it lasts {is:.1} s, but its input {was:.1} s"))
            }
            (Ok(None), Some(_)) => Some("it has no duration".to_owned()),
            _ => None,
        };
        if let Some(wrong) = wrong {
            // The next attempt transcodes again.
            let _ = std::fs::remove_file(&result);
            return Err(Trouble::Retry(format!("wrong result: {wrong}")));
        }
        // The mark must not survive a power cut that the result does not.
        let marked = file.sync_all().and_then(|()| std::fs::write(bench.mark("verified"), ""));
        marked.map_err(|error| Trouble::at(&result, error))
    }

    /// In seconds; none for what has no duration, such as a picture.
    async fn duration(
        &self,
        file: &File,
        path: &Path,
        context: &Context,
    ) -> Result<Option<f64>, Trouble> {
        let mut command = launch::command(&self.prober, &self.environment);
        command.args(["-v", "error", "-show_entries", "format=duration"]);
        command.args(["-of", "default=noprint_wrappers=1:nokey=1"]).args(CONFINED).arg(INPUT);
        let mut first = None;
        let keep = |line: &str| {
            first.get_or_insert_with(|| line.to_owned());
        };
        run(command, (file, path), context, keep).await?;
        let duration = first.and_then(|text| text.trim().parse().ok());
        Ok(duration.filter(|length: &f64| length.is_finite() && *length > 0.0))
    }
}

impl Bench {
    fn mark(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn extension(&self) -> &Path {
        self.output.extension().map_or(Path::new(""), Path::new)
    }

    fn transcoded(&self) -> PathBuf {
        self.mark("transcoded").with_extension(self.extension())
    }

    fn probed(&self) -> Option<Probed> {
        serde_json::from_slice(&std::fs::read(self.mark("probe.json")).ok()?).ok()
    }

    /// A mark that is left is of a result that was published, and then moved away before a repeat of the job.
    fn forget_verified(&self) -> Result<(), Trouble> {
        let mark = self.mark("verified");
        match std::fs::remove_file(&mark) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Trouble::at(&mark, error)),
            _ => Ok(()),
        }
    }

    /// All was done but to clear up: the last attempt broke off there.
    fn is_published(&self) -> bool {
        self.mark("verified").exists() && !self.transcoded().exists() && self.output.exists()
    }

    fn keeps_length(&self) -> bool {
        let cuts = |arg: &String| {
            CUTTING.iter().any(|option| arg == option || arg.starts_with(&format!("{option}:")))
                || FILTERING.iter().any(|option| arg.starts_with(option))
        };
        !self.args.iter().any(cuts)
    }
}

/// Whether ffmpeg may put a number into a path, as it does where a format has a file for each picture.
fn is_pattern(path: &Path) -> bool {
    let mut behind = path.as_os_str().as_encoded_bytes().split(|byte| *byte == b'%').skip(1);
    behind.any(|rest| rest.iter().find(|byte| !byte.is_ascii_digit()) == Some(&b'd'))
}

/// A path as ffmpeg takes it: neither an option nor an address.
fn as_file(path: &Path) -> OsString {
    let mut name = OsString::from("file:");
    name.push(path);
    name
}

/// Runs a program on a file to its end; `hear` gets the lines of its output.
async fn run(
    command: Command,
    (file, path): (&File, &Path),
    context: &Context,
    hear: impl FnMut(&str) + Send,
) -> Result<(), Trouble> {
    let hear = async move |stdout| on_file::each_line(Some(stdout), hear).await;
    let ended = on_file::run(command, (file, path), context, HINT, hear).await;
    ended.map_err(|trouble| match trouble {
        Trouble::Retry(error) => {
            let error = error.replace(INPUT, &path.display().to_string());
            Trouble::Retry(error.replace(FORMATS, "see docs/workers.md"))
        }
        other => other,
    })
}

/// Reads what `-progress` writes: `name=value` lines, the place in the output in microseconds.
fn follow(line: &str, progress: &Progress, duration_s: Option<f64>) {
    let place = line.strip_prefix("out_time_us=").and_then(|text| text.parse().ok());
    if let (Some(place_us), Some(duration_s)) = (place, duration_s) {
        let place_us: f64 = place_us;
        let percent = (place_us / 10_000.0 / duration_s).clamp(0.0, 100.0).round();
        progress.tell(&json!({ "step": "transcode", "percent": percent }));
    }
}
