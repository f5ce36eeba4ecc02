//! What worker programs learn of the process that starts them: the environment that is listed for them, and
//! no token and no store, whether they are told or look for themselves. It is no business of the store's, so
//! one store is enough.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use seriatim::store::Declare;
use seriatim::{Client, Job, Mode, Queue};

use crate::site::{QUEUE, Serving, Site, eventually, is_alive, kill};

/// What a server has in its environment and no program may see.
const SECRETS: [(&str, &str); 4] = [
    ("SERIATIM_TOKEN", "the-token-of-an-admin"),
    ("SERIATIM_STORE", "sqlite:seriatim.db?of-an-admin"),
    ("T_SHOP", "the-token-of-a-producer"),
    ("AWS_SECRET_ACCESS_KEY", "a-key-of-the-cloud"),
];
const TOKENS: &str =
    "[http]\ntokens = [{ name = \"shop\", token_env = \"T_SHOP\", role = \"producer\" }]\n";
/// Notes what it was started with: of a shell's own variables nothing is there yet.
const NOTE: &str = "cat /proc/$$/environ > $1.new; mv $1.new $1";

/// How `serve` is started without the rights of root, with which a process may look into any other.
fn program() -> Vec<&'static str> {
    let mut words = vec![env!("CARGO_BIN_EXE_seriatim"), "serve", "--no-http"];
    if rustix::process::geteuid().is_root() {
        words.splice(..0, ["setpriv", "--bounding-set=-all"]);
    }
    words
}

fn serve(site: &Site, log: &str, prepare: impl FnOnce(&mut Command)) -> Serving {
    let words = program();
    let mut command = site.program(words[0], &words[1..]);
    prepare(&mut command);
    let log = fs::File::create(site.path(log)).unwrap();
    Serving(command.stdin(Stdio::null()).stderr(log).spawn().unwrap())
}

async fn push(site: &Site, queues: &[&str]) {
    let store = site.store().await;
    let queues: Vec<Queue> = queues.iter().map(|name| Queue::new(*name, Mode::Fifo)).collect();
    store.declare(Declare { now: None, queues: queues.clone() }).await.unwrap();
    for queue in queues {
        let payload = serde_json::json!({"input": "film.mov", "output": "film.mp4"});
        let job = Job::new(&queue.name, &payload).unwrap().key("a");
        Client::new(store.clone()).push(job).await.unwrap();
    }
    store.close().await.unwrap();
}

/// The variables that a program noted.
fn noted(site: &Site, name: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(site.path(name)).unwrap();
    let pairs = text.split_terminator('\0').map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn programs_get_the_environment_that_is_listed_and_nothing_else() {
    let worker = |queue: &str, keys: &str| {
        format!("[queues.{queue}]\nmode = \"fifo\"\n[[workers]]\nqueue = \"{queue}\"\n{keys}\n")
    };
    let env =
        "env = { MODE = \"fast\", TZ = \"Asia/Tokyo\" }\nenv_pass = [\"DATABASE_URL\", \"UNSET\"]";
    let note = |name: &str| format!("[\"sh\", \"note.sh\", \"{name}\"]");
    let site = Site::new(
        &[
            TOKENS,
            &worker("a", &format!("command = {}", note("command"))),
            &worker("b", &format!("command = {}\n{env}", note("listed"))),
            &worker("c", &format!("process = {}", note("process"))),
            &worker("d", "builtin = \"ffmpeg\"\nroots = [\".\"]\nffprobe = \"./ffprobe\""),
        ]
        .concat(),
    );
    fs::write(site.path("note.sh"), NOTE).unwrap();
    fs::write(site.path("film.mov"), "x").unwrap();
    fs::write(site.path("ffprobe"), "#!/bin/sh\nset -- ffmpeg\n".to_owned() + NOTE).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(site.path("ffprobe"), executable).unwrap();
    push(&site, &["a", "b", "c", "d"]).await;
    let given = [("LC_ALL", "C.UTF-8"), ("TZ", "UTC"), ("HOME", "/var/x"), ("USER", "x")];
    let path = std::env::var("PATH").unwrap();
    let serving = serve(&site, "log", |command| {
        command.env_clear().env("PATH", &path).envs(SECRETS).envs(given);
        command.env("SERIATIM_STORE", "sqlite:seriatim.db");
        command.env("DATABASE_URL", "postgres://shop").env("EDITOR", "vi");
    });
    let names = ["command", "listed", "process", "ffmpeg"];
    eventually("all have noted", async || names.iter().all(|name| site.path(name).exists())).await;
    serving.stop();

    let default = given.into_iter().chain([("PATH", path.as_str()), ("PYTHONUNBUFFERED", "1")]);
    let default: BTreeMap<&str, &str> = default.collect();
    for name in names {
        let mut seen = noted(&site, name);
        assert!(seen.remove("SERIATIM_ENGINE").is_some(), "{name}: the mark of its process");
        let ours = [
            "SERIATIM_JOB_QUEUE",
            "SERIATIM_JOB_KEY",
            "SERIATIM_JOB_TOKEN",
            "SERIATIM_JOB_ATTEMPT",
        ];
        let is_command = matches!(name, "command" | "listed");
        assert!(ours.iter().all(|ours| seen.remove(*ours).is_some() == is_command), "{name}");
        let mut expected = default.clone();
        if name == "listed" {
            let more =
                [("MODE", "fast"), ("TZ", "Asia/Tokyo"), ("DATABASE_URL", "postgres://shop")];
            expected.extend(more);
        }
        let seen: BTreeMap<&str, &str> =
            seen.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(seen, expected, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_program_cannot_read_the_environment_or_the_memory_of_the_server() {
    let site = Site::new(&format!(
        "{TOKENS}[queues.{QUEUE}]\nmode = \"fifo\"\n[[workers]]\nqueue = \"{QUEUE}\"\n\
         command = [\"sh\", \"thief.sh\"]\n"
    ));
    let thief = "cat /proc/$$/environ > own; cat /proc/$PPID/environ > environment 2>&1
        cat /proc/$PPID/cmdline > parent; head -c 1 /proc/$PPID/mem > memory 2>&1
        cat /proc/$PPID/fd/0 > files 2>&1; echo x > done";
    fs::write(site.path("thief.sh"), thief).unwrap();
    push(&site, &[QUEUE]).await;
    let serving = serve(&site, "log", |command| {
        command.envs(SECRETS).env("SERIATIM_STORE", "sqlite:seriatim.db");
    });
    eventually("it has tried", async || site.path("done").exists()).await;
    serving.stop();
    let read =
        |name: &str| String::from_utf8_lossy(&fs::read(site.path(name)).unwrap()).into_owned();
    assert!(read("parent").contains("serve"), "it looked at the server");
    assert!(read("own").contains("SERIATIM_JOB_QUEUE=orders"), "and could look at all");
    for name in ["environment", "memory", "files"] {
        // Not shown: it would be the environment of the user who runs the tests.
        assert!(read(name).contains("Permission denied"), "{name} was read");
    }
    for (name, secret) in SECRETS {
        assert!(!read("own").contains(secret), "{name}");
    }
}

/// How soon after the restart the key must run again, where its lease is a minute.
const SOON: Duration = Duration::from_secs(30);
/// Two nodes in a session of their own, so that no process of another test is in it. The second one starts at
/// a word, and ends with the input.
const TWO_NODES: &str = "\"$@\" 2> killed.log & first=$!; echo $first > pid.new; mv pid.new pid
    read word; cd \"$OTHER\"; \"$@\" 2> neighbour.log & second=$!
    read end; kill $first $second 2> /dev/null; wait $second";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nodes_that_hide_themselves_do_not_pass_for_programs_that_a_killed_one_left_behind() {
    let site = |script: &str| {
        Site::new(&format!(
            "[queues.{QUEUE}]\nmode = \"fifo\"\n[[workers]]\nqueue = \"{QUEUE}\"\n\
             command = [\"sh\", \"-c\", \"{script}\"]\n"
        ))
    };
    let shop = site("test -e first && exec touch second; echo > first; exec tail -f /dev/null");
    let other = site("echo > first");
    push(&shop, &[QUEUE]).await;
    push(&other, &[QUEUE]).await;
    let mut both = shop.program("setsid", &["sh", "-c", TWO_NODES, "sh"]);
    both.args(program()).env("OTHER", other.folder.path()).stdin(Stdio::piped());
    let mut both = both.spawn().unwrap();
    let mut input = both.stdin.take().unwrap();
    eventually("the job runs", async || shop.path("first").exists()).await;
    let pid: i32 = fs::read_to_string(shop.path("pid")).unwrap().trim().parse().unwrap();
    input.write_all(b"go\n").unwrap();
    eventually("the neighbour works", async || other.path("first").exists()).await;
    kill(pid, Signal::KILL);
    eventually("it is dead", async || !is_alive(pid)).await;
    let restarted = Instant::now();
    let successor = serve(&shop, "successor.log", |_| {});
    let runs = crate::site::happens(async || shop.path("second").exists()).await;
    let log = fs::read_to_string(shop.path("successor.log")).unwrap();
    assert!(runs, "the key runs again: {log}");
    assert!(restarted.elapsed() < SOON, "{:?}: {log}", restarted.elapsed());
    successor.stop();
    drop(input);
    assert!(both.wait().unwrap().success(), "the neighbour ended in order");
}
