//! Lists on a phone.

use super::window::Window;
use super::with_trouble;

/// The height of a phone's screen, and where rows begin in it.
const SCREEN: u32 = 844;
const ROWS_BEGIN_MAX: u64 = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_phone_the_first_screen_has_rows_and_the_buttons_are_unfolded_by_a_tap() {
    let api = with_trouble().await;
    let window = Window::open(&api.address, 390, SCREEN).await;
    for path in [
        "/jobs",
        "/jobs?queue=mails",
        "/jobs?queue=mails&state=queued&key=m",
        "/morgue?queue=reports",
        "/morgue?view=causes",
        "/queues/orders/lanes",
        "/queues",
        "/scheduled",
        "/batches",
        "/nodes",
    ] {
        window.go(path).await;
        let row = "const row = document.querySelector('tbody tr').getBoundingClientRect();
            return [innerWidth, Math.round(row.top), Math.round(row.bottom)]";
        let row = window.run(row).await;
        println!("{path}: {row}");
        assert_eq!(row[0], 390);
        assert!(row[1].as_u64().unwrap() <= ROWS_BEGIN_MAX, "{path}: {row}");
    }
    window.go("/morgue?queue=reports").await;
    let is_seen = |text: &str| {
        format!(
            "[...document.querySelectorAll('button')].some((one) => one.innerText === {text:?} && one.checkVisibility())"
        )
    };
    let button = is_seen("Delete selected…");
    assert_eq!(window.run(&format!("return {button}")).await, false);
    window.run("document.querySelector('tbody input').click()").await;
    window
        .until(
            "the summary counts",
            "document.querySelector('main summary').innerText.includes('1 selected')",
        )
        .await;
    window.run("document.querySelector('main summary').click()").await;
    window.until("what can be done", &button).await;
    window.press("Delete selected…").await;
    window.until("it asks", "document.body.innerText.includes('1 chosen dead job')").await;
    // What is wrong is seen where it is corrected.
    window.go("/queues/orders/lanes?due_from=soon").await;
    let field = "return document.querySelector('[aria-invalid]').checkVisibility()";
    assert_eq!(window.run(field).await, true);
    // Values have more room than their names.
    window.go("/about").await;
    let facts = "return [...document.querySelectorAll('.facts div')].every((one) => one.children[1].offsetWidth > one.children[0].offsetWidth)";
    assert_eq!(window.run(facts).await, true);
    // On its side it is wide, and nothing is folded.
    window.go("/morgue?queue=reports").await;
    window.resize(SCREEN, 600).await;
    window.until("all is seen", &button).await;
    window.close().await;
}
