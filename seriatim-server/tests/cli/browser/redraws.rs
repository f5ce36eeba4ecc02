//! Pages that are redrawn hundreds of times, without a pause, while a user points at them, reads or types.

use serde_json::{Value, json};

use super::window::Window;
use crate::http::Api;

const QUEUES: &str = "[queues.exports]\nmode = \"fifo\"\n[queues.mails]\nmode = \"fifo\"\n[queues.orders]\nmode = \"fifo\"\n";
/// The page asks again at once, and gets what `change` makes of its live parts, as soon as there is one. `redrawn(n)`
/// resolves after `n` more redraws.
const AT_ONCE: &str = "
    const [later, ask] = [window.setTimeout, window.fetch];
    window.setTimeout = (what, wait) => later(what, wait >= 100 ? 0 : wait);
    window.EventSource = undefined;
    let [known, count, waits, begin] = ['', 0, () => false, null];
    const begun = new Promise((done) => { begin = done; });
    window.fetch = async (...what) => {
        waits(count);
        known ||= await (await ask(...what)).text();
        await begun;
        const page = new DOMParser().parseFromString(known, 'text/html');
        count += 1;
        window.change(page, count);
        return new Response(page.body.innerHTML, { headers: { etag: String(count) } });
    };
    window.redrawn = (times) => new Promise((done) => {
        const end = count + times;
        waits = (now) => now >= end && done(now);
        begin();
    });
    ";
/// Rows by turns, one of them gone, one that is new, and cells that grow; sections above get longer.
const SHUFFLE: &str = "window.change = (page, count) => {
        for (const body of page.querySelectorAll('tbody')) {
            const rows = [...body.rows];
            for (let i = 0; i < count % rows.length; i += 1) body.append(rows[i]);
            const fresh = body.rows[0].cloneNode(true);
            fresh.id = `fresh-${count}`;
            fresh.querySelector('a').href = `/fresh-${count}`;
            body.prepend(fresh);
            if (count % 3 === 0) body.rows[1].remove();
            for (const row of [...body.rows].slice(0, 3)) row.cells[2].textContent = 'late '.repeat(1 + count % 40);
        }
        const first = page.querySelector('section[data-live]');
        for (let i = 0; i < count % 5; i += 1) first.append(document.createElement('hr'));
    };";

async fn with_keys() -> (Api, Window) {
    let api = Api::start(QUEUES);
    for i in 0..8 {
        for queue in ["exports", "mails", "orders"] {
            let job = json!({ "key": format!("key-{i}"), "delay": "1h" });
            api.post(&format!("/api/v1/queues/{queue}/jobs"), &job).done();
        }
    }
    let window = Window::open(&api.address, 1280, 900).await;
    window.before_each_page(AT_ONCE).await;
    (api, window)
}

/// Waits until the page has been drawn so often.
async fn redrawn(window: &Window, times: usize) {
    let script = format!("window.redrawn({times}).then(arguments[arguments.length - 1])");
    window.run_async(&script).await;
}

/// So often: sections grow by turns of five, rows by turns of eight, and cells by turns of forty.
const REDRAWS: usize = 160;

/// What is under the pointer stays, and a click leads where it leads.
async fn in_many_redraws_nothing_else_comes_under_the_pointer(path: &str, link: &str) {
    let (_api, window) = with_keys().await;
    window.go(path).await;
    let selector = format!("tbody th a[href='{link}']");
    window.point_at(&selector).await;
    // What a click would hit, each time that the page was drawn.
    let watch = format!(
        "const link = document.querySelector({selector:?}).getBoundingClientRect();
         const [x, y] = [link.x + 4, link.y + 4];
         window.wrong = [];
         const change = (page, count) => {{
             const hit = document.elementFromPoint(x, y).closest('a')?.getAttribute('href');
             if (hit !== {link:?}) window.wrong.push([count, hit]);
         }};
         {SHUFFLE}
         const shuffle = window.change;
         window.change = (page, count) => {{ change(page, count); shuffle(page, count); }};"
    );
    window.run(&watch).await;
    redrawn(&window, REDRAWS).await;
    assert_eq!(window.run("return window.wrong.slice(0, 5)").await, json!([]), "{path}");
    let seen = window.run("return document.querySelector('[data-more]').innerText").await;
    assert!(seen.as_str().unwrap().contains("new – show"), "it was drawn: {seen}");
    window.click().await;
    let there = format!("(location.pathname + location.search) === {link:?}");
    window.until("where the link leads", &there).await;
    window.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_many_redraws_of_the_overview_nothing_else_comes_under_the_pointer() {
    in_many_redraws_nothing_else_comes_under_the_pointer("/", "/queues/mails").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_many_redraws_of_lanes_nothing_else_comes_under_the_pointer() {
    let path = "/queues/orders/lanes?by=key";
    in_many_redraws_nothing_else_comes_under_the_pointer(path, "/key?k=key-3").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selection_scroll_focus_and_ticks_survive_a_hundred_redraws() {
    let (_api, window) = with_keys().await;
    window.resize(1280, 500).await;
    window.go("/queues/orders/lanes?by=key").await;
    let state = "return [getSelection().toString(), scrollY, document.activeElement.outerHTML.slice(0, 40),
        [...document.querySelectorAll('input:checked')].map((box) => box.closest('tr').innerText.trim().split(/\\s/)[0])]";
    // A time: the cell that is another in each redraw.
    let begin = "document.querySelectorAll('tbody input')[3].click();
        scrollTo(0, 200);
        document.querySelectorAll('tbody time')[5].focus({ preventScroll: true });
        const cell = document.querySelectorAll('tbody tr')[7].cells[2];
        getSelection().selectAllChildren(cell);";
    window.run(begin).await;
    let before: Value = window.run(state).await;
    assert!(before[0].as_str().unwrap().contains("due in"), "{before}");
    assert_eq!((&before[1], before[3].as_array().unwrap().len()), (&json!(200), 1), "{before}");
    assert!(before[2].as_str().unwrap().starts_with("<time"), "{before}");
    window
        .run(&format!(
            "{SHUFFLE}
             const shuffle = window.change;
             window.change = (page, count) => {{
                 shuffle(page, count);
                 page.querySelectorAll('time').forEach((time) => {{ time.textContent = `in ${{count}} s`; }});
             }};"
        ))
        .await;
    redrawn(&window, 100).await;
    let others = window.run("return document.querySelectorAll('tbody time')[2].innerText").await;
    assert!(others.as_str().unwrap().contains(" s"), "the others were drawn: {others}");
    assert_eq!(window.run(state).await, before);
    window.close().await;
}
