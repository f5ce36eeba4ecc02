//! The dashboard in a real browser.

mod copied;
mod hostile;
mod live;
mod narrow;
mod outage;
mod pictures;
mod redraws;
mod roles;
mod stores;
mod unscripted;
mod window;
mod zones;

use serde_json::{Value, json};

use crate::http::Api;
use crate::site::{Site, eventually};
use window::Window;

/// What fails waits for a person: no test is so slow that it runs again by itself.
const QUEUES: &str = "[queues.orders]\nmode = \"accumulate\"\nmax_retries = 3\nbackoff = { kind = \"constant\", base = \"1h\" }\n\
    [queues.mails]\nmode = \"fifo\"\n[queues.reports]\nmode = \"parallel\"\nmax_retries = 0\n";

/// What fails and waits in the store of the tests.
async fn with_trouble() -> Api {
    with_trouble_on("").await
}

/// The same in another store.
async fn with_trouble_on(store: &str) -> Api {
    let config = format!(
        "{store}{QUEUES}\
        [[workers]]\nqueue = \"orders\"\ncommand = [\"sh\", \"-c\", \"test -e repaired || {{ echo no stock >&2; exit 1; }}\"]\n\
        [[workers]]\nqueue = \"reports\"\ncommand = [\"sh\", \"-c\", \"echo no table report_$$ >&2; exit 1\"]\n"
    );
    let api = Api::start(&config);
    for key in ["order-41", "order-42", "<b>&\"'"] {
        api.post(
            "/api/v1/queues/orders/jobs",
            &json!({ "key": key, "payload": { "status": "paid" } }),
        )
        .done();
    }
    for i in 0..3 {
        api.post("/api/v1/queues/reports/jobs", &json!({ "payload": i })).done();
        api.post("/api/v1/queues/mails/jobs", &json!({ "key": "m", "payload": i })).done();
    }
    if store.is_empty() || store.contains("postgres") {
        assert!(api.site.run(&["batches", "open", "<b>&\"'", "reports"]).status.success());
    }
    for (name, wanted) in [("dead", 3), ("retrying", 3)] {
        let is_so = async || api.get("/api/v1/stats").done()["total"][name] == wanted;
        eventually(name, is_so).await;
    }
    api
}

/// Pages with something of everything; some stores have no batches.
fn pages(api: &Api, has_batches: bool) -> Vec<String> {
    let jobs = api.get("/api/v1/jobs?queue=mails").done();
    let nodes = api.get("/api/v1/nodes").done();
    let dead = api.get("/api/v1/queues/reports/morgue").done();
    let id = |value: &Value| value.as_str().unwrap().to_owned();
    let waiting = id(&jobs["jobs"][0]["job_id"]);
    let dead = id(&dead["jobs"][0]["job_id"]);
    let always = [
        "/",
        "/?span=30d",
        "/queues",
        "/queues/orders",
        "/queues/orders/lanes?by=retry_count",
        "/key?k=order-42",
        "/key?k=%3Cb%3E%26%22%27",
        "/key?k=unknown",
        "/key/events?k=order-42",
        "/jobs",
        "/jobs?queue=mails&task=nothing",
        "/morgue",
        "/morgue?view=causes",
        "/morgue?queue=reports&error=table&from=2020-01-01T00:00:00Z",
        "/morgue?queue=reports",
        "/scheduled",
        "/scheduled?queue=orders&prefix=order",
        "/search?q=order-",
        "/search?q=nothing",
        "/audit?action=pause&who=ops",
        "/nodes",
        "/operations",
        "/audit",
        "/cron",
        "/about",
    ];
    let mut all: Vec<String> = always.into_iter().map(str::to_owned).collect();
    all.extend([
        format!("/jobs/{dead}"),
        format!("/jobs/{dead}/events"),
        format!("/jobs/{waiting}"),
        format!("/nodes/{}", id(&nodes["nodes"][0]["node"])),
        "/operations/new?action=requeue&queue=reports".to_owned(),
        format!("/reschedule?job={waiting}"),
        "/confirm?deed=lane.bury&queue=orders&key=order-42".to_owned(),
        "/queues/nowhere".to_owned(),
    ]);
    if has_batches {
        all.push("/batches".to_owned());
        all.push("/confirm?deed=batch.seal&batch=%3Cb%3E%26%22%27".to_owned());
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_demo_a_stranger_finds_what_does_not_move_and_retries_it() {
    let site = Site::new("");
    assert!(site.run(&["demo", "--keep", "shop"]).status.success());
    let config = site.path("shop/seriatim.toml");
    let api = Api::with(site, |command| {
        command.arg("--config").arg(config);
    });
    let window = Window::open(&api.address, 1280, 900).await;
    window.go("/").await;
    let overview = window.text().await;
    for found in
        ["no node works on its 40 jobs", "the address is wrong", "the database did not answer"]
    {
        assert!(overview.contains(found), "{found}: {overview}");
    }
    window.press("orders: order-42").await;
    window.until("the key", "location.pathname === '/key'").await;
    let key = window.text().await;
    assert!(key.contains("retry 6 of 25") && key.contains("no stock of item 7731"), "{key}");
    window.press("seriatim").await;
    window.until("the overview", "location.pathname === '/'").await;
    window.press("orders: order-17").await;
    window.until("the other key", "location.search === '?k=order-17'").await;
    let key = window.text().await;
    assert!(key.contains("ask the warehouse") && key.contains("delivered"), "{key}");
    window.press("Run now").await;
    window
        .until("all of it is done", "document.body.innerText.includes('Nothing waits or runs')")
        .await;
    window.until("it succeeded", "document.querySelectorAll('td .succeeded').length === 4").await;
    window.press("What happened").await;
    window.until("its story", "location.pathname === '/key/events'").await;
    let story = window.text().await;
    for told in ["ask the warehouse", "lane retry", "succeeded"] {
        assert!(story.contains(told), "{told}: {story}");
    }
    assert_eq!(window.console().await, Vec::<String>::new());
    window.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_folded_out_stays_so_alone_when_the_page_is_renewed() {
    let api = Api::start(QUEUES);
    let window = Window::open(&api.address, 1280, 900).await;
    window.go("/queues/orders").await;
    window.run("[...document.querySelectorAll('details')].at(-1).open = true").await;
    assert!(api.site.run(&["queues", "limits", "orders", "--running", "5"]).status.success());
    window.until("its new part", "document.getElementById('limits')").await;
    let folded = "return [...document.querySelectorAll('main details')].map((one) => [one.firstChild.textContent, one.open])";
    let wanted = json!([
        ["Pause with a reason", false],
        ["Set the limit", false],
        ["Set the limits and weights of groups", false],
        ["Settings", true]
    ]);
    assert_eq!(window.run(folded).await, wanted);
    window.close().await;
}

/// axe-core, which `cargo xtask test` fetches.
fn axe() -> String {
    let path = std::env::var("SERIATIM_TEST_AXE");
    let path =
        path.expect("SERIATIM_TEST_AXE names the script of axe-core: use `cargo xtask test`");
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_has_a_barrier_that_axe_knows_on_a_phone_in_light_or_dark() {
    has_no_barrier(390).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_has_a_barrier_that_axe_knows_on_a_screen_in_light_or_dark() {
    has_no_barrier(1280).await;
}

/// What axe-core has against the page that is shown, in light and dark.
async fn barriers(window: &Window, axe: &str) -> Vec<String> {
    let look = "const done = arguments[arguments.length - 1];
        const all = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
        axe.run(document, { runOnly: all, resultTypes: ['violations'] })
            .then((found) => done([
                found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).slice(0, 3).join(' ')}`),
                found.passes.length > 10]));";
    window.run(axe).await;
    let mut found = Vec::new();
    for theme in ["light", "dark"] {
        window.run(&format!("document.documentElement.dataset.theme = '{theme}'")).await;
        let answer = window.run_async(look).await;
        if answer != json!([[], true]) {
            found.push(format!("{theme} {}: {answer}", window.place().await));
        }
    }
    found
}

/// And pages fit the screen, show foreign text as text, and leave the console empty.
async fn has_no_barrier(width: u32) {
    let (api, axe) = (with_trouble().await, axe());
    let window = Window::open(&api.address, width, 900).await;
    // Forms whose fields say what is wrong.
    let wrong = ["/jobs?from=soon", "/queues/orders/lanes?node=nobody"].map(str::to_owned);
    let mut found = Vec::new();
    for path in pages(&api, true).iter().chain(&wrong) {
        window.go(path).await;
        let seen = window
            .run("return [document.documentElement.scrollWidth - innerWidth, document.querySelectorAll('b, script:not([src]), [style]').length, document.querySelectorAll('h1').length]")
            .await;
        assert_eq!(seen, json!([0, 0, 1]), "{path}");
        let (messages, is_refused) = (window.console().await, path == "/queues/nowhere");
        let is_refused = is_refused || wrong.contains(path);
        assert!(messages.len() == usize::from(is_refused), "{path}: {messages:?}");
        found.extend(barriers(&window, &axe).await);
        // What axe has to say there.
        window.console().await;
    }
    assert_eq!(found, Vec::<String>::new());
    window.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_stays_current_and_its_rows_do_not_move_under_the_pointer() {
    let api = Api::start(QUEUES);
    let push = |key: &str| {
        api.post("/api/v1/queues/mails/jobs", &json!({ "key": key, "delay": "1h" })).done();
    };
    push("m1");
    push("m2");
    let window = Window::open(&api.address, 1280, 900).await;
    window.asks_soon().await;
    window.go("/queues/mails/lanes?by=key").await;
    push("m3");
    window.until("the new row is there", "document.body.innerText.includes('m3')").await;
    window.point_at("tbody tr:nth-child(2) a").await;
    push("m0");
    window.shows("1 new – show").await;
    let rows = "return [...document.querySelectorAll('tbody tr')].map((row) => row.querySelector('th').innerText)";
    assert_eq!(window.run(rows).await, json!(["m1", "m2", "m3"]), "nothing moved");
    api.act("/api/v1/queues/mails/lane/delete?key=m2").done();
    window.until("what is gone is grey", "document.querySelectorAll('tr.gone').length === 1").await;
    assert_eq!(window.run(rows).await, json!(["m1", "m2", "m3"]));
    window.press("1 new – show").await;
    let keys = "[...document.querySelectorAll('tbody th a')].map((key) => key.innerText).join()";
    window.until("all of it is shown", &format!("{keys} === 'm0,m1,m3'")).await;
    assert_eq!(window.console().await, Vec::<String>::new());
    window.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changed_beside_the_pointer_waits_and_a_button_says_so() {
    let api = Api::start(QUEUES);
    let push = |key: &str| {
        api.post("/api/v1/queues/mails/jobs", &json!({ "key": key, "delay": "1h" })).done();
    };
    push("m1");
    let window = Window::open(&api.address, 1280, 900).await;
    window.asks_soon().await;
    window.go("/key?k=m1").await;
    // All of the page changes while the pointer rests on a button.
    window.point_at("main .buttons button").await;
    api.act("/api/v1/queues/mails/lane/delete?key=m1").done();
    window.shows("Changed – show").await;
    assert!(window.text().await.contains("Run now"), "it stays under the pointer");
    window.press("Changed – show").await;
    window.shows("Nothing waits or runs with this key now").await;
    window.until("that is all", "document.querySelector('[data-more]').hidden").await;
    push("m1");
    window.shows("Run now").await;
    // What stays in its place is renewed beside the pointer.
    window.point_at("main .buttons button").await;
    api.act("/api/v1/queues/mails/lane/pause?key=m1").done();
    window.until("its state", "document.querySelector('.why').innerText.includes('paused')").await;
    assert!(window.text().await.contains("Run now"), "it stays under the pointer");
    assert_eq!(window.console().await, Vec::<String>::new());
    window.close().await;
}

/// The queue is the second in the list.
async fn go_to_orders_by_keys(window: &Window) {
    window.go("/").await;
    window.keys("gq").await;
    window.until("the queues", "location.pathname === '/queues'").await;
    window.keys("jj").await;
    window.enter().await;
    window.until("the queue", "location.pathname === '/queues/orders'").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_is_reached_with_the_keyboard_alone() {
    let api = with_trouble().await;
    let window = Window::open(&api.address, 1280, 900).await;
    go_to_orders_by_keys(&window).await;
    for told in ["paused", "resumed"] {
        window.keys("p").await;
        let is_told = format!("document.querySelector('.said')?.innerText.includes('{told}')");
        window.until(told, &is_told).await;
    }
    window.keys("gl").await;
    window.until("its lanes", "location.pathname === '/queues/orders/lanes'").await;
    window.keys("/").await;
    window.keys("order-41").await;
    window.enter().await;
    window.until("the key", "location.pathname === '/key'").await;
    assert_eq!(window.place().await, "/key?k=order-41");
    window.keys("?").await;
    window.until("the keys are listed", "location.pathname === '/about'").await;
    let shortcuts = "document.querySelector('[name=shortcuts]')";
    window.run(&format!("{shortcuts}.click()")).await;
    window.until("they are off", &format!("{shortcuts} && !{shortcuts}.checked")).await;
    window.keys("gq/?").await;
    assert_eq!(window.place().await, "/about");
    assert_eq!(window.run("return document.activeElement === document.body").await, true);
    window.run(&format!("{shortcuts}.click()")).await;
    window.until("they are on", &format!("{shortcuts} && {shortcuts}.checked")).await;
    window.keys("gq").await;
    window.until("the queues", "location.pathname === '/queues'").await;
    window.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_key_is_found_and_repaired_with_the_keyboard_alone() {
    let api = with_trouble().await;
    let window = Window::open(&api.address, 1280, 900).await;
    go_to_orders_by_keys(&window).await;
    window.tab_to("Retrying").await;
    window.enter().await;
    window.until("its lanes", "location.pathname === '/queues/orders/lanes'").await;
    // The first row, and back to it: the focus is on its key.
    window.keys("jjkkx").await;
    window.until("it is selected", "document.querySelectorAll('input:checked').length === 1").await;
    window.keys("x").await;
    while window.run("return document.activeElement.innerText").await != "order-42" {
        window.keys("j").await;
    }
    window.enter().await;
    window.until("the key", "location.pathname === '/key'").await;
    std::fs::write(api.site.path("repaired"), "").unwrap();
    window.tab_to("Run now").await;
    window.enter().await;
    window.until("the page says so", "document.body.innerText.includes('set to run now')").await;
    assert_eq!(window.place().await, "/key?k=order-42");
    window.until("it is done", "document.body.innerText.includes('Nothing waits or runs')").await;
    assert_eq!(window.console().await, Vec::<String>::new());
    window.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn back_reload_and_a_shared_link_show_the_same_rows() {
    let api = Api::start(QUEUES);
    for i in 0..60 {
        let job = json!({ "key": format!("m-{i:02}"), "delay": "1h" });
        api.post("/api/v1/queues/mails/jobs", &job).done();
    }
    let window = Window::open(&api.address, 1280, 900).await;
    let rows = "return [...document.querySelectorAll('tbody th')].map((key) => key.innerText)";
    window.go("/queues/mails/lanes").await;
    window.run("document.querySelector('[name=prefix]').focus()").await;
    window.keys("m-").await;
    window.run("document.querySelector('[name=by]').value = 'key'").await;
    window.enter().await;
    window.until("the filtered lanes", "location.search.includes('prefix=m-')").await;
    let first = window.run(rows).await;
    window.press("Next page").await;
    window.until("the second page", "location.search.includes('after=')").await;
    let (second, link) = (window.run(rows).await, window.place().await);
    assert_eq!((&first[0], &second[0]), (&json!("m-00"), &json!("m-25")), "{link}");
    window.run("history.back()").await;
    window.until("the first page", "!location.search.includes('after=')").await;
    assert_eq!(window.run(rows).await, first);
    window.run("history.forward()").await;
    window.until("the second page", "location.search.includes('after=')").await;
    window.run("location.reload()").await;
    window.until("it again", "location.search.includes('after=')").await;
    assert_eq!(window.run(rows).await, second);
    window.another_tab().await;
    window.go(&link).await;
    assert_eq!(window.run(rows).await, second);
    window.close().await;
}
