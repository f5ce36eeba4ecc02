//! Who may do what, how it is undone, and whose forms are believed.

use serde_json::json;

use super::window::Window;
use super::{QUEUES, axe, barriers};
use crate::hand::Hand;
use crate::http::Api;
use crate::http::client::Request;
use crate::site::{Site, eventually, secret};

const TOKENS: &str = "[http]\ntokens = [\
    { name = \"eyes\", token_env = \"T_eyes\", role = \"reader\" }, \
    { name = \"hands\", token_env = \"T_hands\", role = \"operator\" }, \
    { name = \"boss\", token_env = \"T_boss\", role = \"admin\" }]\n";
/// What changes something, or asks before it does; but for the way out.
const ACTS: &str = "[...document.querySelectorAll('[form=act], form[method=post]:not([action$=\"/logout\"]), \
    a[href*=\"/confirm?\"], a[href*=\"/operations/new\"], [form=move]')].length";

/// Something that waits, that failed and that died, behind a login.
async fn guarded(config: &str) -> Api {
    let site = Site::new(&format!("{config}{QUEUES}"));
    let queues = ["orders", "mails"].map(seriatim::Queue::fifo).to_vec();
    let reports = seriatim::Queue::parallel("reports").max_retries(0);
    let hand = Hand::new(site.store().await, [queues, vec![reports]].concat()).await;
    for i in 0..3 {
        hand.push(seriatim::Job::new("reports", &i).unwrap()).await;
    }
    hand.fail_all("reports", "no table").await;
    hand.push(seriatim::Job::new("mails", &1).unwrap().key("order-42")).await;
    hand.store.close().await.unwrap();
    Api::with(site, |command| {
        for name in ["eyes", "hands", "boss"] {
            command.env(format!("T_{name}"), secret(name));
        }
    })
}

/// Somebody logs in on the page that leads there, and comes to this one.
async fn log_in(window: &Window, name: &str, path: &str) {
    window.go(path).await;
    window.forget_cookies().await;
    window.go(path).await;
    window.until("the login", "location.pathname.endsWith('/login')").await;
    window.keys(&secret(name)).await;
    window.enter().await;
    window.shows(&format!("{name} (")).await;
}

fn seen(api: &Api, path: &str) -> serde_json::Value {
    Request::new("GET", path).token(&secret("boss")).send(&api.address).done()
}

fn is_paused(api: &Api) -> bool {
    seen(api, "/api/v1/queues/mails")["paused"] == true
}

async fn a_pause_is_undone(api: &Api, window: &Window) {
    log_in(window, "hands", "/queues/mails").await;
    window.press("Pause").await;
    window.shows("queue mails: paused").await;
    assert!(is_paused(api));
    window.press("Undo").await;
    window.shows("queue mails: resumed").await;
    assert!(!is_paused(api));
}

async fn a_deletion_is_undone(api: &Api, window: &Window) {
    log_in(window, "boss", "/morgue?queue=reports").await;
    window.run("document.querySelector('tbody th a').click()").await;
    window.until("the job", "location.pathname.startsWith('/jobs/')").await;
    window.press("Delete…").await;
    window.shows("What is deleted cannot be brought back.").await;
    window.press("Delete").await;
    window.shows("will be deleted in 10 s").await;
    window.press("Undo").await;
    window.shows("undone: nothing was deleted").await;
    let is_stopped =
        async || seen(api, "/api/v1/operations")["operations"][0]["state"] == "stopped";
    eventually("it is not deleted", is_stopped).await;
    assert_eq!(seen(api, "/api/v1/stats")["total"]["dead"], 3);
}

async fn a_reader_finds_no_button_and_what_scripts_send_is_refused(api: &Api, window: &Window) {
    log_in(window, "eyes", "/queues/mails").await;
    assert_eq!(window.run(&format!("return {ACTS}")).await, 0, "a reader has none");
    assert_eq!(window.run("return document.cookie").await, "", "scripts do not see the login");
    let send = "const done = arguments[arguments.length - 1];
        const fields = new URLSearchParams({ deed: 'queue.pause', queue: 'mails', mark: '' });
        fetch('/do', { method: 'POST', body: fields }).then((answer) => done(answer.status));";
    assert_eq!(window.run_async(send).await, 403);
    assert!(!is_paused(api));
    log_in(window, "hands", "/queues/mails").await;
    assert_ne!(window.run(&format!("return {ACTS}")).await, 0, "an operator has some");
    assert!(!window.text().await.contains("Delete waiting"), "but not those of an admin");
}

async fn forms_of_others_do_nothing(api: &Api, window: &Window) {
    log_in(window, "boss", "/queues/mails").await;
    // Another site has a form that looks like ours.
    let form = format!(
        "data:text/html,<form method=post action=http://{}/do><input name=deed value=queue.pause>\
         <input name=queue value=mails><button>Win</button></form>",
        api.address
    );
    window.go_elsewhere(&form).await;
    window.press("Win").await;
    window.until("the answer", "location.protocol === 'http:'").await;
    assert!(!is_paused(api), "{}", window.text().await);
    // A page that another person left open.
    window.go("/queues/mails").await;
    window.another_tab().await;
    log_in(window, "hands", "/queues").await;
    window.to_tab(0).await;
    window.press("Pause").await;
    window.shows("this form is of another login").await;
    assert!(!is_paused(api));
    // A login that is over: after another one the page is there again.
    window.go("/queues/mails").await;
    window.forget_cookies().await;
    window.press("Pause").await;
    window.until("the login", "location.pathname === '/login'").await;
    assert!(!is_paused(api));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_undo_what_they_did_readers_do_nothing_and_forms_of_others_are_refused() {
    let api = guarded(TOKENS).await;
    let window = Window::open(&api.address, 1280, 900).await;
    a_pause_is_undone(&api, &window).await;
    a_deletion_is_undone(&api, &window).await;
    a_reader_finds_no_button_and_what_scripts_send_is_refused(&api, &window).await;
    forms_of_others_do_nothing(&api, &window).await;
    let deeds = seen(&api, "/api/v1/audit?action=queue+pause");
    let of = |who: &str, status: u64| {
        let entries = deeds["entries"].as_array().unwrap().iter();
        entries.filter(|deed| deed["who"] == who && deed["status"] == status).count()
    };
    assert_eq!((of("hands", 303), of("hands", 403), of("eyes", 403)), (1, 1, 1), "{deeds}");
    assert_eq!(json!(of("boss", 303)), 0, "{deeds}");
    window.close().await;
}

/// What people see before and after they did something: the pages of a fresh store do not have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_login_and_the_pages_after_a_deed_have_no_barrier_that_axe_knows() {
    let cron =
        "[[cron]]\nname = \"night\"\nschedule = \"0 3 * * *\"\nqueue = \"orders\"\nkey = \"c\"\n";
    let (api, axe) = (guarded(&format!("{TOKENS}{cron}")).await, axe());
    api.knows_cron("night", Some(&secret("boss")));
    let begin = Request::new("POST", "/api/v1/operations");
    let begin = begin.json(&json!({ "action": "pause", "queue": "mails", "prefix": "order" }));
    let begun = begin.token(&secret("boss")).send(&api.address).done();
    let operation = format!("/operations/{}", begun["id"].as_str().unwrap());
    let dead = seen(&api, "/api/v1/queues/reports/morgue")["jobs"][0]["job_id"].clone();
    let dead = format!("/jobs/{}", dead.as_str().unwrap());
    let mut found = Vec::new();
    for width in [390, 1280] {
        let window = Window::open(&api.address, 1280, 900).await;
        log_in(&window, "boss", "/queues/mails").await;
        window.resize(width, 900).await;
        window
            .run("[...document.querySelectorAll('details')].forEach((one) => { one.open = true; })")
            .await;
        window.press("Pause").await;
        window.shows("queue mails: paused").await;
        found.extend(barriers(&window, &axe).await);
        window.press("Undo").await;
        window.shows("resumed").await;
        for path in [&*operation, &dead, "/cron", "/audit", "/operations", "/key?k=order-42"] {
            window.go(path).await;
            window.run("[...document.querySelectorAll('main details')].forEach((one) => { one.open = true; })").await;
            found.extend(barriers(&window, &axe).await);
        }
        window.resize(1280, 900).await;
        log_in(&window, "eyes", "/queues/mails").await;
        window.resize(width, 900).await;
        found.extend(barriers(&window, &axe).await);
        window.forget_cookies().await;
        window.go("/login").await;
        found.extend(barriers(&window, &axe).await);
        window.close().await;
    }
    assert_eq!(found, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_a_path_the_login_keys_preferences_and_the_news_of_changes_work() {
    let tokens = TOKENS.strip_prefix("[http]").unwrap();
    let api = guarded(&format!("[http]\nbase_path = \"/of/jobs\"{tokens}")).await;
    let window = Window::open(&api.address, 1280, 900).await;
    log_in(&window, "hands", "/of/jobs/").await;
    // A browser has advice on forms with a password.
    window.console().await;
    window.keys("gq").await;
    window.until("the queues", "location.pathname === '/of/jobs/queues'").await;
    window.go("/of/jobs/about").await;
    window
        .run("const { theme } = document.querySelector('[data-prefs]'); theme.value = 'dark'; theme.dispatchEvent(new Event('change', { bubbles: true }));")
        .await;
    window.until("its theme", "document.documentElement.dataset.theme === 'dark'").await;
    window.go("/of/jobs/queues/mails/lanes?by=key").await;
    assert_eq!(window.run("return document.documentElement.dataset.theme").await, "dark");
    let push = Request::new("POST", "/of/jobs/api/v1/queues/mails/jobs");
    let push = push.json(&json!({ "key": "order-77" })).token(&secret("boss"));
    push.send(&api.address).done();
    window.shows("order-77").await;
    assert_eq!(window.console().await, Vec::<String>::new());
    window.run("document.querySelector('.me').open = true").await;
    window.press("Log out").await;
    window.until("the login", "location.pathname === '/of/jobs/login'").await;
    window.go("/of/jobs/queues").await;
    assert!(window.place().await.starts_with("/of/jobs/login?next="), "the login has ended");
    window.close().await;
}
