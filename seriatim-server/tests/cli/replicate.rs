//! The ready-made worker that copies files, here, to other servers and into buckets.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use serde_json::json;
use seriatim::JobId;
use seriatim::store::JobState;
use seriatim_testkit::Rsync;
use sha2::{Digest, Sha256};

use crate::bucket::{ACCESS_KEY, Bucket, SECRET_KEY, hex, refused};
use crate::builtin::Ready;
use crate::site::{Serving, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn replicate_writes_through_no_link_and_gives_nobody_elses_rights() {
    let ready = Ready::new("fifo", "", "builtin = \"replicate\"\nroots = [\".\"]").await;
    ready.write("film.mp4", "a film");
    let rights = fs::Permissions::from_mode(0o4755);
    fs::set_permissions(ready.site.path("film.mp4"), rights).unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("film.mp4"), "mine").unwrap();
    ready.write("copies/.keep", "");
    let link = ready.site.path("copies/film.mp4");
    std::os::unix::fs::symlink(outside.path().join("film.mp4"), &link).unwrap();
    let serving = ready.serve();
    let id = ready.push("film", json!({"source": "film.mp4", "targets": ["copies"]})).await;
    assert_eq!(ready.ends(id).await.state, JobState::Succeeded);
    serving.stop();
    assert_eq!(fs::read_to_string(outside.path().join("film.mp4")).unwrap(), "mine");
    let copy = fs::symlink_metadata(link).unwrap();
    assert!(copy.is_file() && copy.permissions().mode() & 0o7777 == 0o755, "{copy:?}");
}

/// The film of most tests, and one that has three parts.
const FILM_BYTES: usize = 5_000_000;
const LONG_FILM_BYTES: usize = (17 << 20) + 3;

/// So many bytes that do not repeat.
fn film(bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    std::iter::repeat_with(|| random.u8(..)).take(bytes).collect()
}

fn part_of(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    let head = digest.iter().take(8).fold(0u64, |head, byte| head << 8 | u64::from(*byte));
    format!(".film.mp4.{head:016x}.part")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_copies_skips_what_is_equal_and_resumes_what_is_begun() {
    let ready = Ready::new("fifo", "", "builtin = \"replicate\"\nroots = [\".\"]").await;
    let film = film(FILM_BYTES);
    ready.write("film.mp4", &film);
    fs::set_permissions(ready.site.path("film.mp4"), fs::Permissions::from_mode(0o440)).unwrap();
    let part = part_of(&film);
    ready.write("equal/film.mp4", &film);
    ready.write("stale/film.mp4", "an older version");
    ready.write(&format!("begun/{part}"), &film[..2_345_678]);
    ready.write(&format!("broken/{part}"), vec![0; 1_000_000]);
    let inode = |name: &str| fs::metadata(ready.site.path(name)).unwrap().ino();
    let (equal, begun) = (inode("equal/film.mp4"), inode(&format!("begun/{part}")));
    let serving = ready.serve();
    let targets = ["equal", "stale", "begun", "broken"];
    let id = ready.push("film", json!({"source": "film.mp4", "targets": targets})).await;
    let job = ready.ends(id).await;
    serving.stop();
    assert_eq!((job.state, job.attempt), (JobState::Succeeded, 2), "the broken part costs a try");
    for target in targets {
        let copy = ready.site.path(target).join("film.mp4");
        assert!(fs::read(&copy).unwrap() == film, "{target}");
        assert!(!ready.site.path(target).join(&part).exists(), "{target}");
    }
    assert_eq!(inode("equal/film.mp4"), equal, "what is equal is left alone");
    assert_eq!(inode("begun/film.mp4"), begun, "what was begun is the copy now");
    let mode = fs::metadata(ready.site.path("stale/film.mp4")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o440);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_begins_a_part_anew_that_has_its_rights_already() {
    let ready = Ready::new("fifo", "", "builtin = \"replicate\"\nroots = [\".\"]").await;
    // As an attempt leaves it that was cut off before the last step.
    let part = format!("copies/{}", part_of(b"a film"));
    for name in ["film.mp4", &part] {
        ready.write(name, "a film");
        fs::set_permissions(ready.site.path(name), fs::Permissions::from_mode(0o440)).unwrap();
    }
    // Root may write all the same.
    let as_user =
        if rustix::process::geteuid().is_root() { "setpriv --bounding-set=-all" } else { "" };
    ready.program("plain", &format!("exec {as_user} {} \"$@\"", env!("CARGO_BIN_EXE_seriatim")));
    let serving = ready.site.serve_by(ready.site.path("plain").to_str().unwrap(), "history.ndjson");
    let id = ready.push("film", json!({"source": "film.mp4", "targets": ["copies"]})).await;
    let job = ready.ends(id).await;
    serving.stop();
    assert_eq!((job.state, job.attempt), (JobState::Succeeded, 1), "{job:?}");
    assert_eq!(ready.read("copies/film.mp4"), "a film");
    assert!(!ready.site.path(&part).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_copies_a_file_whose_name_is_as_long_as_names_can_be() {
    let ready = Ready::new("fifo", "", "builtin = \"replicate\"\nroots = [\".\"]").await;
    let name = "ж".repeat(125) + ".mp4";
    ready.write(&name, "a film");
    ready.write("copies/.keep", "");
    let serving = ready.serve();
    let id = ready.push("film", json!({"source": name, "targets": ["copies"]})).await;
    let job = ready.ends(id).await;
    let longer = json!({"source": name + "x".repeat(9).as_str(), "targets": ["copies"]});
    let longer = ready.push("longer", longer).await;
    ready.fails(longer, "File name too long").await;
    serving.stop();
    assert_eq!(job.state, JobState::Succeeded, "{job:?}");
    assert_eq!(ready.job(longer).await.attempt, 1, "it is not tried again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_does_what_it_can_and_says_what_it_cannot() {
    let ready =
        Ready::new("fifo", "max_retries = 0", "builtin = \"replicate\"\nroots = [\".\"]").await;
    ready.write("film.mp4", "x");
    ready.write("there/.keep", "");
    ready.write("after/.keep", "");
    let serving = ready.serve();
    for (order, error) in [
        (json!({"source": "film.mp4", "targets": ["missing", "there"]}), "missing: No such file"),
        (json!({"source": "film.mp4", "targets": []}), "targets: 0; from 1 to 64"),
        (json!({"source": "film.mp4", "targets": ["/"]}), "is not within the worker's `roots`"),
        (json!({"source": "film.mp4", "targets": ["/", "after"]}), "/ is not within"),
        (json!({"source": "there", "targets": ["there"]}), "is not a regular file"),
        (json!({"source": "film.mp4"}), "cannot be decoded"),
    ] {
        let id = ready.push(error, order).await;
        ready.fails(id, error).await;
    }
    serving.stop();
    assert_eq!(
        (ready.read("there/film.mp4"), ready.read("after/film.mp4")),
        ("x".into(), "x".into())
    );
}

fn to_server(url: &str, queue: &str) -> impl Future<Output = Ready> {
    let worker =
        format!("builtin = \"replicate\"\nroots = [\".\"]\n[workers.servers]\narchive = \"{url}\"");
    let queue = queue.to_owned();
    async move { Ready::new("fifo", &queue, &worker).await }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_copies_to_another_server_goes_on_where_it_broke_off_and_skips_equal_copies()
{
    let server = Rsync::start().unwrap();
    let ready = to_server(&server.url(), "").await;
    let film = film(FILM_BYTES);
    ready.write("film.mp4", &film);
    ready.write("here/.keep", "");
    let parts = server.folder().join(".seriatim-part");
    fs::create_dir(&parts).unwrap();
    fs::write(parts.join("film.mp4"), &film[..3_000_000]).unwrap();
    // The server is another user, who cannot change the rights of what it does not own.
    for path in [&parts, &parts.join("film.mp4"), &ready.site.path("film.mp4")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let serving = ready.serve();
    let order = json!({"source": "film.mp4", "targets": ["archive:", "here"]});
    for attempt in 0..2 {
        let job = ready.ends(ready.push("film", order.clone()).await).await;
        assert_eq!(job.state, JobState::Succeeded, "{attempt}: {job:?}");
    }
    serving.stop();
    assert!(fs::read(server.folder().join("film.mp4")).unwrap() == film);
    assert!(fs::read(ready.site.path("here/film.mp4")).unwrap() == film);
    assert!(!parts.join("film.mp4").exists());
    let log = server.received();
    let sent: Vec<u64> = log
        .lines()
        .filter_map(|line| line.split_once("received film.mp4: ")?.1.parse().ok())
        .collect();
    assert_eq!(sent.len(), 1, "the equal copy was not sent again: {log}");
    assert!(sent[0] < 2_500_000, "only what was missing was sent: {log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_names_the_server_that_failed_and_copies_to_the_others() {
    let mut server = Rsync::start().unwrap();
    let ready = to_server(&server.url(), "max_retries = 0").await;
    ready.write("film.mp4", "a film");
    ready.write("here/.keep", "");
    ready.write("beside/.keep", "");
    let serving = ready.serve();
    for (targets, error) in [
        (json!(["archive:missing/folder", "here"]), "media/missing/folder: rsync ended"),
        (json!(["archive:../other", "beside"]), "write archive:FOLDER, without dots"),
        (json!(["unknown:x"]), "unknown:x: No such file"),
    ] {
        let id = ready.push(error, json!({"source": "film.mp4", "targets": targets})).await;
        ready.fails(id, error).await;
    }
    assert_eq!(ready.read("here/film.mp4"), "a film");
    assert_eq!(ready.read("beside/film.mp4"), "a film");
    server.kill().unwrap();
    let id = ready.push("away", json!({"source": "film.mp4", "targets": ["archive:"]})).await;
    ready.fails(id, "onnection refused").await;
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_copies_through_a_remote_shell() {
    let worker = "builtin = \"replicate\"\nroots = [\".\"]\nrsync = [\"rsync\", \"-e\", \"./shell\"]\n\
                  servers = { archive = \"b.example:copies\" }";
    let ready = Ready::new("fifo", "", worker).await;
    // In place of ssh: it leaves out the host and stays on this machine.
    ready.program("shell", "shift\nexec \"$@\"");
    ready.write("a film's \"cut\" $HOME.mp4", "a film");
    ready.write("copies/.keep", "");
    let serving = ready.serve();
    let order = json!({"source": "a film's \"cut\" $HOME.mp4", "targets": ["archive:"]});
    let job = ready.ends(ready.push("film", order).await).await;
    assert_eq!(job.state, JobState::Succeeded, "{job:?}");
    serving.stop();
    assert_eq!(ready.read("copies/a film's \"cut\" $HOME.mp4"), "a film");
    // What looks like a pattern is a name.
    ready.write("copies/movie1.mp4", "another film");
    ready.write("movie[1].mp4", "a film");
    let serving = ready.serve();
    let order = json!({"source": "movie[1].mp4", "targets": ["archive:"]});
    let job = ready.ends(ready.push("pattern", order).await).await;
    assert_eq!(job.state, JobState::Succeeded, "{job:?}");
    ready.write("copies/film.mp4/inside", "a folder");
    ready.write("film.mp4", "a film");
    let order = json!({"source": "film.mp4", "targets": ["archive:"]});
    let taken = ready.push("folder", order).await;
    eventually("it is refused", async || ready.job(taken).await.error.is_some()).await;
    serving.stop();
    assert_eq!(ready.read("copies/movie[1].mp4"), "a film");
    assert_eq!(ready.read("copies/movie1.mp4"), "another film");
    assert_eq!(ready.read("copies/film.mp4/inside"), "a folder");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_pauses_without_rsync_and_keeps_what_it_did_before() {
    let worker = "builtin = \"replicate\"\nroots = [\".\"]\nrsync = [\"./no-rsync\"]\n\
                  servers = { archive = \"b.example:copies\" }";
    let ready = Ready::new("accumulate", "", worker).await;
    ready.write("film.mp4", "a film");
    ready.write("here/.keep", "");
    let order = |target: &str| json!({"source": "film.mp4", "targets": [target]});
    // In one call.
    let here = ready.push("film", order("here")).await;
    let there = ready.push("film", order("archive:")).await;
    let serving = ready.serve();
    assert_eq!(ready.ends(here).await.state, JobState::Succeeded);
    eventually("the worker pauses", async || ready.log().contains("install it, or set `rsync`"))
        .await;
    serving.stop();
    assert_eq!(ready.job(there).await.attempt, 0, "nothing is counted");
}

/// A site with a worker that copies into a bucket.
async fn to_bucket(bucket: &Bucket, queue: &str) -> Ready {
    let ready = Ready::new("fifo", queue, &bucket.worker()).await;
    write_keys(&ready);
    ready
}

fn write_keys(ready: &Ready) {
    ready.write("access.key", ACCESS_KEY);
    ready.write("secret.key", format!("{SECRET_KEY}\n"));
}

fn sha256(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

/// A latch that a request waits for once.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, std::sync::Condvar)>);

impl Gate {
    fn wait(&self) {
        let is_open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(is_open, |is_open| !*is_open).unwrap());
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

/// A bucket whose first request of this kind gets no answer before the gate is open, and then an error.
fn held_at(what: &'static str) -> (Bucket, Gate) {
    let (gate, is_first) = (Gate::default(), Mutex::new(true));
    let held = gate.clone();
    let bucket = Bucket::start(move |asked| {
        if asked != what || !std::mem::take(&mut *is_first.lock().unwrap()) {
            return None;
        }
        held.wait();
        Some(refused("503 Service Unavailable", "SlowDown"))
    });
    (bucket, gate)
}

/// A node that copies a film of three parts into a bucket, which holds one of its requests.
struct OnItsWay {
    bucket: Bucket,
    gate: Gate,
    ready: Ready,
    film: Vec<u8>,
    id: JobId,
    serving: Serving,
}

async fn film_on_its_way(held: &'static str) -> OnItsWay {
    let (bucket, gate) = held_at(held);
    let ready = to_bucket(&bucket, "").await;
    let film = film(LONG_FILM_BYTES);
    ready.write("film.mp4", &film);
    let id = ready.push("film", json!({"source": "film.mp4", "targets": ["films:"]})).await;
    let serving = ready.serve();
    let is_held = async || bucket.asked().iter().any(|asked| asked == held);
    eventually("a part is under way", is_held).await;
    OnItsWay { bucket, gate, ready, film, id, serving }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_copies_into_a_bucket_and_skips_what_is_equal() {
    let bucket = Bucket::start(|_| None);
    let ready = to_bucket(&bucket, "").await;
    let name = "a film's \"cut\" $1 (+ж) 100%&=?#.mp4";
    ready.write("here/.keep", "");
    ready.write("empty", "");
    let serving = ready.serve();
    let order = json!({"source": name, "targets": ["films:11//b", "here"]});
    for (content, attempt) in [("a film", 0), ("a film", 1), ("another", 2)] {
        ready.write(name, content);
        let job = ready.ends(ready.push("film", order.clone()).await).await;
        assert_eq!(job.state, JobState::Succeeded, "{attempt}: {job:?}");
        let object = bucket.object(&format!("2026/11/b/{name}")).unwrap();
        assert_eq!(object.content, content.as_bytes());
        assert_eq!(object.sha256, sha256(content.as_bytes()));
        assert_eq!(ready.read(&format!("here/{name}")), content);
    }
    let empty = ready.push("empty", json!({"source": "empty", "targets": ["films:"]})).await;
    assert_eq!(ready.ends(empty).await.state, JobState::Succeeded);
    serving.stop();
    assert_eq!(bucket.object("2026/empty").unwrap().content, b"");
    let puts = bucket.asked().into_iter().filter(|asked| asked == "put").count();
    assert_eq!(puts, 3, "the equal copy was not sent again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_goes_on_after_a_crash_with_the_parts_that_the_bucket_has() {
    let OnItsWay { bucket, gate, ready, film, id, serving } = film_on_its_way("part 3").await;
    // Hashed once, and two of three parts.
    let is_told = |text: Arc<str>| text.contains("\"percent\":96.0");
    eventually("how far it is", async || ready.job(id).await.progress.is_some_and(is_told)).await;
    serving.kill();
    gate.open();
    let serving = ready.serve();
    let job = ready.ends(id).await;
    serving.stop();
    assert_eq!(job.state, JobState::Succeeded, "{job:?}");
    let object = bucket.object("2026/film.mp4").unwrap();
    assert!(object.content == film);
    assert_eq!(object.sha256, sha256(&film));
    let asked = bucket.asked();
    let once = ["head", "begin", "part 1", "part 2", "part 3"];
    let again = ["head", "list", "part 3", "complete", "head"];
    assert_eq!(asked, [&once[..], &again].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_sends_another_content_from_its_beginning_and_forgets_the_old_parts() {
    let OnItsWay { bucket, gate, ready, mut film, id, serving } = film_on_its_way("part 2").await;
    serving.kill();
    gate.open();
    film[0] ^= 1;
    ready.write("film.mp4", &film);
    let serving = ready.serve();
    assert_eq!(ready.ends(id).await.state, JobState::Succeeded);
    serving.stop();
    assert!(bucket.object("2026/film.mp4").unwrap().content == film);
    assert!(bucket.asked().iter().any(|asked| asked == "abort"), "{:?}", bucket.asked());
    assert_eq!(bucket.uploads(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_tries_a_bucket_again_and_publishes_no_spoiled_part() {
    let failures = Mutex::new(vec![
        ("complete", refused("200 OK", "InternalError")),
        ("part 2", refused("503 Service Unavailable", "SlowDown")),
        ("begin", refused("500 Internal Server Error", "InternalError")),
    ]);
    let bucket = Bucket::start(move |asked| {
        let mut failures = failures.lock().unwrap();
        failures.pop_if(|(what, _)| *what == asked).map(|(_, answer)| answer)
    });
    let ready = to_bucket(&bucket, "").await;
    ready.write("film.mp4", film(LONG_FILM_BYTES));
    let id = ready.push("film", json!({"source": "film.mp4", "targets": ["films:"]})).await;
    let serving = ready.serve();
    let job = ready.ends(id).await;
    serving.stop();
    assert_eq!((job.state, job.attempt), (JobState::Succeeded, 4), "{job:?}");
    let asked = bucket.asked();
    let count = |what: &str| asked.iter().filter(|asked| *asked == what).count();
    assert_eq!((count("begin"), count("part 1"), count("part 3")), (2, 1, 1), "{asked:?}");
    assert_eq!(count("list"), 3, "two parts are a page: {asked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_sends_all_parts_again_if_the_bucket_has_spoiled_one() {
    let OnItsWay { bucket, gate, ready, film, id, serving } = film_on_its_way("part 3").await;
    bucket.spoil(1);
    gate.open();
    let job = ready.ends(id).await;
    serving.stop();
    // The last part was refused, then all of them.
    assert_eq!((job.state, job.attempt), (JobState::Succeeded, 3), "{job:?}");
    assert!(bucket.object("2026/film.mp4").unwrap().content == film);
    assert_eq!(bucket.uploads(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_leaves_no_parts_of_a_cancelled_job_and_those_of_a_stopped_one() {
    let OnItsWay { bucket, gate, ready, id, serving, .. } = film_on_its_way("part 2").await;
    ready.cancel(id).await;
    assert_eq!(ready.ends(id).await.state, JobState::Canceled);
    serving.stop();
    gate.open();
    assert_eq!(bucket.uploads(), 0, "{:?}", bucket.asked());

    let OnItsWay { bucket, gate, ready, id, serving, .. } = film_on_its_way("part 2").await;
    serving.stop();
    gate.open();
    assert_eq!((ready.job(id).await.state, bucket.uploads()), (JobState::Queued, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_leaves_no_parts_of_a_job_that_is_cancelled_before_it_goes_on_with_them() {
    let (gate, heads) = (Gate::default(), AtomicUsize::new(0));
    let held = gate.clone();
    let bucket = Bucket::start(move |asked| {
        let is_of_second = asked == "head" && heads.fetch_add(1, Ordering::SeqCst) > 0;
        if is_of_second || asked == "part 2" {
            held.wait();
        }
        None
    });
    let ready = to_bucket(&bucket, "").await;
    ready.write("film.mp4", film(LONG_FILM_BYTES));
    let id = ready.push("film", json!({"source": "film.mp4", "targets": ["films:"]})).await;
    let first = ready.serve();
    let count = |what: &str| bucket.asked().iter().filter(|asked| *asked == what).count();
    eventually("a part is under way", async || count("part 2") == 1).await;
    first.kill();
    let second = ready.serve();
    eventually("it begins again", async || count("head") == 2).await;
    ready.cancel(id).await;
    assert_eq!(ready.ends(id).await.state, JobState::Canceled);
    second.stop();
    assert_eq!(bucket.uploads(), 0, "{:?}", bucket.asked());
    gate.open();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_goes_back_uncounted_if_its_node_stops_before_the_upload_has_begun() {
    let gate = Gate::default();
    let held = gate.clone();
    let bucket = Bucket::start(move |asked| {
        if asked == "head" {
            held.wait();
        }
        None
    });
    // A node with time to let its calls end.
    let ready = Ready::on("lease = \"5s\"", "fifo", "max_retries = 0", &bucket.worker()).await;
    write_keys(&ready);
    ready.write("film.mp4", film(LONG_FILM_BYTES));
    let id = ready.push("film", json!({"source": "film.mp4", "targets": ["films:"]})).await;
    let serving = ready.serve();
    eventually("it asks for the copy", async || bucket.asked() == ["head"]).await;
    serving.signal(Signal::TERM);
    ready.logs("stopping: no new work").await;
    gate.open();
    serving.ends();
    let job = ready.job(id).await;
    assert_eq!((job.state, job.attempt, job.retry_count), (JobState::Queued, 0, -1), "{job:?}");
    assert_eq!((bucket.asked().len(), bucket.uploads()), (1, 0), "{:?}", bucket.asked());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_replicate_says_what_a_bucket_refuses_and_never_a_key_or_a_signature() {
    let bucket = Bucket::start(|_| None);
    let careless = Bucket::start(|asked| {
        let answer = crate::receiver::answer("200 OK", "etag: \"x\"\r\n", "");
        (asked == "put").then_some(answer)
    });
    for (bucket, secret, error) in [
        (
            &bucket,
            "not the secret key",
            "the server answered 403 Forbidden: SignatureDoesNotMatch: It is refused.",
        ),
        (&careless, SECRET_KEY, "the server does not compare SHA-256 checksums"),
    ] {
        let ready = to_bucket(bucket, "max_retries = 0").await;
        ready.write("secret.key", secret);
        ready.write("film.mp4", "a film");
        ready.write("here/.keep", "");
        let serving = ready.serve();
        let order = json!({"source": "film.mp4", "targets": ["films:11", "here"]});
        let id = ready.push("film", order).await;
        ready.fails(id, error).await;
        ready.fails(id, "/my-films/2026/11/film.mp4: ").await;
        assert_eq!(ready.read("here/film.mp4"), "a film");
        for (targets, error) in [
            (json!(["films:../b"]), "films:../b: write films:FOLDER, without dots"),
            (json!([format!("films:{}", "x/".repeat(520))]), "at most 1024"),
        ] {
            let id = ready.push(error, json!({"source": "film.mp4", "targets": targets})).await;
            ready.fails(id, error).await;
        }
        serving.stop();
        let said = format!("{}{:?}", ready.log(), ready.job(id).await);
        assert!(!said.contains(secret) && !said.contains("Signature="), "{said}");
    }
    let nowhere = "builtin = \"replicate\"\nroots = [\".\"]\n[workers.servers.films]\ns3 = \"http://127.0.0.1:1/b\"\n\
                   region = \"x\"\naccess_key = { file = \"a\" }\nsecret_key = { file = \"b\" }";
    let ready = Ready::new("fifo", "max_retries = 0", nowhere).await;
    ready.write("film.mp4", "a film");
    let refused = ready.site.run(&["config", "check"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    let wanted = "`servers`: films: `access_key`: cannot read a: No such file";
    assert!(!refused.status.success() && said.contains(wanted), "{said}");
    ready.write("a", "x");
    ready.write("b", "y");
    let serving = ready.serve();
    let id = ready.push("film", json!({"source": "film.mp4", "targets": ["films:"]})).await;
    ready.fails(id, "http://127.0.0.1:1/b/film.mp4: ").await;
    ready.fails(id, "onnection refused").await;
    serving.stop();
}
