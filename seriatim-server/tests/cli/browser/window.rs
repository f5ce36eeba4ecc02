//! A window of a real browser.

use std::time::Duration;

use fantoccini::error::CmdError;
use fantoccini::key::Key;
use fantoccini::wd::{Capabilities, TimeoutConfiguration, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use seriatim_testkit::Chromium;
use tokio::time::{Instant, timeout};

use crate::site::PATIENCE;

/// A browser with one window. Its driver ends it.
pub(super) struct Window {
    client: Client,
    base: String,
    _driver: Chromium,
}

impl Window {
    /// Opens one of this size for the server at this address.
    pub(super) async fn open(address: &str, width: u32, height: u32) -> Self {
        let driver = tokio::task::block_in_place(Chromium::start).unwrap();
        let options = json!({ "binary": driver.program(), "args": driver.arguments() });
        let wanted =
            json!({ "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } });
        let Value::Object(wanted) = wanted else { unreachable!() };
        let capabilities: Capabilities = wanted;
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&driver.url())
            .await
            .unwrap();
        let script = Some(PATIENCE);
        client.update_timeouts(TimeoutConfiguration::new(script, script, None)).await.unwrap();
        client.set_window_size(width, height).await.unwrap();
        Self { client, base: format!("http://{address}"), _driver: driver }
    }

    pub(super) async fn go(&self, path: &str) {
        self.client.goto(&format!("{}{path}", self.base)).await.unwrap();
    }

    /// Goes to an address of any site.
    pub(super) async fn go_elsewhere(&self, url: &str) {
        self.client.goto(url).await.unwrap();
    }

    /// From now on paths are those of the server at this address.
    pub(super) fn visits(&mut self, address: &str) {
        self.base = format!("http://{address}");
    }

    /// Forgets all cookies: the login too, which scripts do not see.
    pub(super) async fn forget_cookies(&self) {
        self.client.delete_all_cookies().await.unwrap();
    }

    /// Waits until the page has this text.
    pub(super) async fn shows(&self, text: &str) {
        self.until(text, &format!("document.body.innerText.includes({text:?})")).await;
    }

    /// The path and query of the page.
    pub(super) async fn place(&self) -> String {
        let url = self.client.current_url().await.unwrap();
        url.as_str().strip_prefix(&self.base).unwrap().to_owned()
    }

    /// What a script of the page returns.
    pub(super) async fn run(&self, script: &str) -> Value {
        self.client
            .execute(script, Vec::new())
            .await
            .unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// What a script answers by its last argument. If another page comes meanwhile, it is run there again: the
    /// driver calls that an unloaded document, a script out of time or a lost frame.
    pub(super) async fn run_async(&self, script: &str) -> Value {
        let asking = async {
            loop {
                match self.client.execute_async(script, Vec::new()).await {
                    Ok(answer) => return answer,
                    Err(error) if is_of_the_script(&error) => panic!("{script}: {error}"),
                    Err(_) => {}
                }
            }
        };
        let Ok(answer) = timeout(PATIENCE, asking).await else {
            panic!("no answer in time: {script}\n{}: {}", self.place().await, self.text().await);
        };
        answer
    }

    /// The text of the page, as a person sees it.
    pub(super) async fn text(&self) -> String {
        self.run("return document.body.innerText").await.as_str().unwrap().to_owned()
    }

    /// Clicks a link or button with this text.
    pub(super) async fn press(&self, text: &str) {
        let path =
            format!("//*[self::a or self::button][not(@hidden)][normalize-space()={text:?}]");
        let is_there = format!(
            "document.evaluate({path:?}, document, null, XPathResult.BOOLEAN_TYPE).booleanValue"
        );
        let end = Instant::now() + PATIENCE;
        loop {
            self.until(text, &is_there).await;
            // A page that renews itself may replace the element between the look and the click.
            let pressed = match self.client.find(Locator::XPath(&path)).await {
                Ok(found) => found.click().await,
                Err(error) => Err(error),
            };
            match pressed {
                Ok(()) => return,
                Err(error) if Instant::now() >= end => panic!("{text:?}: {error}"),
                Err(error) if error.is_stale_element_reference() || error.is_no_such_element() => {}
                Err(error) => panic!("{text:?}: {error}"),
            }
        }
    }

    /// Types keys where the focus is.
    pub(super) async fn keys(&self, keys: &str) {
        self.client.active_element().await.unwrap().send_keys(keys).await.unwrap();
    }

    pub(super) async fn enter(&self) {
        self.keys(&String::from(char::from(Key::Enter))).await;
    }

    /// Rests the pointer on what this selector finds.
    pub(super) async fn point_at(&self, selector: &str) {
        use fantoccini::actions::{InputSource, MouseActions, PointerAction};
        let element = self.client.find(Locator::Css(selector)).await.unwrap();
        let moved = PointerAction::MoveToElement {
            element,
            duration: Some(Duration::ZERO),
            x: 5.0,
            y: 5.0,
        };
        let actions = MouseActions::new("mouse".to_owned()).then(moved);
        self.client.perform_actions(actions).await.unwrap();
    }

    /// Waits until a page is whole and a script of it returns true. The page reports changes; nothing polls.
    pub(super) async fn until(&self, what: &str, condition: &str) {
        let script = format!(
            "const done = arguments[arguments.length - 1];
             const is = () => document.readyState === 'complete' && ({condition});
             if (is()) {{ done(true); return; }}
             const look = () => {{ if (is()) {{ watch.disconnect(); done(true); }} }};
             const watch = new MutationObserver(look);
             addEventListener('load', look);
             watch.observe(document.documentElement, {{ subtree: true, childList: true, attributes: true, characterData: true }});"
        );
        assert_eq!(self.run_async(&script).await, true, "{what}");
    }

    /// Goes to a tab, in the order in which they were opened.
    pub(super) async fn to_tab(&self, tab: usize) {
        let all = self.client.windows().await.unwrap();
        self.client.switch_to_window(all[tab].clone()).await.unwrap();
    }

    /// Opens another tab, and goes to it.
    pub(super) async fn another_tab(&self) {
        let tab = self.client.new_window(true).await.unwrap();
        self.client.switch_to_window(tab.handle).await.unwrap();
    }

    /// A picture of what is seen, as PNG.
    pub(super) async fn picture(&self) -> Vec<u8> {
        self.client.screenshot().await.unwrap()
    }

    pub(super) async fn resize(&self, width: u32, height: u32) {
        self.client.set_window_size(width, height).await.unwrap();
    }

    /// Lets nothing through to addresses with this end, in this tab.
    pub(super) async fn block(&self, end: &str) {
        self.devtools("Network.enable", json!({})).await;
        self.devtools("Network.setBlockedURLs", json!({ "urls": [format!("*{end}")] })).await;
    }

    /// Runs no script of a page any more.
    pub(super) async fn without_scripts(&self) {
        self.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    }

    /// Runs a script in each page that comes, before those of the page.
    pub(super) async fn before_each_page(&self, script: &str) {
        let script = json!({ "source": script });
        self.devtools("Page.addScriptToEvaluateOnNewDocument", script).await;
    }

    /// Each new page asks again soon, not after some seconds, and in an outage ever more.
    pub(super) async fn asks_soon(&self) {
        let soon = "const later = window.setTimeout;
            window.setTimeout = (what, wait) => later(what, Math.min(wait, 200));";
        self.before_each_page(soon).await;
    }

    /// As if the machine were in this time zone.
    pub(super) async fn in_zone(&self, name: &str) {
        let zone = json!({ "timezoneId": name });
        self.devtools("Emulation.setTimezoneOverride", zone).await;
    }

    async fn devtools(&self, cmd: &str, params: Value) {
        let command = DevTools(json!({ "cmd": cmd, "params": params }));
        self.client.issue_cmd(command).await.unwrap();
    }

    /// Clicks where the pointer rests.
    pub(super) async fn click(&self) {
        use fantoccini::actions::{InputSource, MOUSE_BUTTON_LEFT, MouseActions, PointerAction};
        let actions = MouseActions::new("mouse".to_owned())
            .then(PointerAction::Down { button: MOUSE_BUTTON_LEFT })
            .then(PointerAction::Up { button: MOUSE_BUTTON_LEFT });
        self.client.perform_actions(actions).await.unwrap();
    }

    /// Goes from one to the next with the tabulator, until what has the focus has this text.
    pub(super) async fn tab_to(&self, text: &str) {
        const STEPS_MAX: usize = 200;
        for _ in 0..STEPS_MAX {
            self.keys(&String::from(char::from(Key::Tab))).await;
            if self.run("return document.activeElement.innerText").await == text {
                return;
            }
        }
        panic!("the tabulator does not lead to {text:?}: {}", self.text().await);
    }

    /// Messages of the console since the last call: errors of scripts, and what the page's policy refused.
    pub(super) async fn console(&self) -> Vec<String> {
        let log = self.client.issue_cmd(Log).await.unwrap();
        let text = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        log.as_array().unwrap().iter().map(text).collect()
    }

    pub(super) async fn close(self) {
        self.client.close().await.unwrap();
    }
}

/// Whether a script failed by itself, and would fail again.
fn is_of_the_script(error: &CmdError) -> bool {
    let text = error.to_string();
    text.contains("javascript error") && !text.contains("unloaded")
}

/// A command of the browser's own protocol.
#[derive(Debug)]
struct DevTools(Value);

impl WebDriverCompatibleCommand for DevTools {
    fn endpoint(
        &self,
        base: &url::Url,
        session: Option<&str>,
    ) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.0.to_string()))
    }
}

/// The browser's log, as chromedriver hands it out.
#[derive(Debug)]
struct Log;

impl WebDriverCompatibleCommand for Log {
    fn endpoint(
        &self,
        base: &url::Url,
        session: Option<&str>,
    ) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({ "type": "browser" }).to_string()))
    }
}
