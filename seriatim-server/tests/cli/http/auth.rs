//! Who may do what.

use serde_json::json;

use super::Api;
use super::client::Request;
use super::pages::{Visitor, field, guarded};
use crate::site::{Site, secret, text};

#[test]
fn a_token_of_the_environment_is_an_admins() {
    let api = Api::with(Site::new(""), |command| {
        command.env("SERIATIM_TOKEN", "a-long-enough-secret");
    });
    let refused = api.get("/api/v1/queues");
    refused.refused(401);
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    let asked = Request::new("GET", "/api/v1/queues").token("a-long-enough-secret");
    assert_eq!(asked.send(&api.address).status, 200);
    let basic = Request::new("GET", "/api/v1/queues").header("Authorization", "Basic eDp5");
    basic.send(&api.address).refused(401);
    assert!(!api.log().contains("a-long-enough-secret"));
}

#[test]
fn without_a_token_nothing_listens_beyond_this_machine() {
    let site = Site::new("");
    let output = site.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("--insecure"), "{}", text(&output));
    let short = site
        .command(&["serve", "--listen", "127.0.0.1:0"])
        .env("SERIATIM_TOKEN", "short")
        .output()
        .unwrap();
    assert_eq!(short.status.code(), Some(2));
    assert!(text(&short).contains("at least 16 ASCII characters"), "{}", text(&short));
    let missing = Site::new(
        "[http]\ntokens = [{ name = \"ci\", token_env = \"NOT_SET_AT_ALL\", role = \"reader\" }]\n",
    );
    let output = missing.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(text(&output).contains("NOT_SET_AT_ALL"), "{}", text(&output));
}

#[test]
fn without_tokens_pages_of_other_sites_are_refused() {
    let api = Api::start("");
    let push = |name: &str, value: &str| {
        let body = serde_json::json!({ "payload": 1 });
        let request = Request::new("POST", "/api/v1/queues/q/jobs").json(&body).header(name, value);
        request.send(&api.address)
    };
    push("Origin", "http://evil.example").refused(403);
    push("Host", "evil.example:7117").refused(403);
    assert_eq!(push("Origin", &format!("http://{}", api.address)).status, 200);
    assert_eq!(push("Host", "localhost:7117").status, 200);
    // What cannot be read is not what is missing.
    push("Host", "\u{e9}vil.example").refused(403);
    push("Origin", "http://\u{e9}vil.example").refused(403);
}

#[test]
fn a_page_of_another_site_cannot_post_without_a_body_nor_when_all_are_let_in() {
    for flags in [&[][..], &["--insecure"]] {
        let api = Api::with(Site::new("[queues.q]\nmode = \"fifo\"\n"), |command| {
            command.args(flags);
        });
        let pause = |name: &str, value: &str| {
            let request = Request::new("POST", "/api/v1/queues/q/pause").header(name, value);
            request.send(&api.address)
        };
        for site in ["cross-site", "same-site"] {
            pause("Sec-Fetch-Site", site).refused(403);
        }
        pause("Origin", "http://evil.example").refused(403);
        pause("Host", "evil.example").refused(403);
        for site in ["same-origin", "none"] {
            assert_eq!(pause("Sec-Fetch-Site", site).status, 200, "{site}");
        }
    }
}

/// What `serve` says of these tokens, with these variables.
fn refused(tokens: &str, variables: &[(&str, &[u8])]) -> String {
    use std::os::unix::ffi::OsStrExt;
    let site = Site::new(&format!("[http]\ntokens = {tokens}\n"));
    let mut command = site.command(&["serve", "--listen", "127.0.0.1:0"]);
    for (name, value) in variables {
        command.env(name, std::ffi::OsStr::from_bytes(value));
    }
    let output = command.output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[test]
fn tokens_that_cannot_be_meant_are_refused_and_never_shown() {
    let one = r#"[{ name = "ci", token_env = "T_CI", role = "reader" }]"#;
    let two = r#"[{ name = "ci", token_env = "T_CI", role = "reader" }, { name = "ops", token_env = "T_OPS", role = "admin" }]"#;
    let same = r#"[{ name = "ci", token_env = "T_CI", role = "reader" }, { name = "ci", token_env = "T_OPS", role = "admin" }]"#;
    let (long, other) = (&b"a-long-enough-secret"[..], &b"another-long-secret!"[..]);
    for blank in [&[b' '; 16][..], b"a secret with spaces in it", b"a-secret-\xff-that-is-no-text"]
    {
        assert!(refused(one, &[("T_CI", blank)]).contains("T_CI"));
    }
    let said = refused(two, &[("T_CI", long), ("T_OPS", b"a-long-enough-secret\n")]);
    assert!(said.contains("the same token") && said.contains("ops"), "{said}");
    assert!(refused(same, &[("T_CI", long), ("T_OPS", other)]).contains("two tokens"));
    let (secret, hidden) = ("s3cr3t-of-the-shop", |said: String| {
        let says_why = said.contains("token") || said.contains("TOML parse error");
        assert!(!said.contains("s3cr3t") && says_why, "{said}");
    });
    hidden(refused(
        &format!(r#"[{{ name = "ci", token_env = "{secret}", role = "reader" }}]"#),
        &[],
    ));
    hidden(refused(&format!(r#"[{{ name = "ci", token = "{secret}", role = "reader" }}]"#), &[]));
    hidden(refused(&format!(r#"["{secret}"]"#), &[]));
    hidden(refused(&format!(r#""{secret}""#), &[]));
    hidden(refused(&format!(r#"[{{ name = "ci", token = "{secret}" role }}]"#), &[]));
}

#[test]
fn a_variable_of_others_may_hold_anything_and_a_line_end_is_no_part_of_a_token() {
    use std::os::unix::ffi::OsStrExt;
    let api = Api::with(Site::new(""), |command| {
        command.env("OF_OTHERS", std::ffi::OsStr::from_bytes(b"\xff\xfe"));
        command.env("SERIATIM_TOKEN", "a-long-enough-secret\r\n");
    });
    let asked = Request::new("GET", "/api/v1/queues").token("a-long-enough-secret");
    assert_eq!(asked.send(&api.address).status, 200);
}

#[test]
fn a_token_that_nobody_can_guess_is_heard_whoever_guesses_beside_it() {
    let config = "[http]\ntokens = [{ name = \"a\", token_env = \"T_A\", role = \"admin\" }, { name = \"b\", token_env = \"T_B\", role = \"admin\" }]\n\
        [http.proxy]\nfrom = [\"127.0.0.1\"]\nuser = \"X-User\"\nroles = { \"*\" = \"reader\" }\n";
    let (long, short) = ("0123456789abcdef".repeat(2), "0123456789abcdef");
    let api = Api::with(Site::new(config), |command| {
        command.env("T_A", &long).env("T_B", short);
    });
    let ask = |token: &str, from: &str| {
        let request = Request::new("GET", "/api/v1/queues").token(token);
        request.header("X-Forwarded-For", &format!("1.2.3.4, {from}")).status(&api.address)
    };
    for _ in 0..10 {
        assert_eq!(ask("nobody-has-this-token", "203.0.113.9"), 401);
    }
    assert_eq!(ask("nobody-has-this-token", "203.0.113.9"), 429);
    assert_eq!(ask(short, "203.0.113.9"), 429, "it may have been guessed");
    assert_eq!(ask(&long, "203.0.113.9"), 200);
    // Behind a proxy the others are others.
    assert_eq!(ask("nobody-has-this-token", "203.0.113.10"), 401);
    assert_eq!(ask(short, "203.0.113.10"), 200);
}

#[test]
fn a_server_that_is_open_to_all_answers_no_page_that_has_another_name_for_it() {
    let api = Api::at("0.0.0.0:0", Site::new(""), |command| {
        command.arg("--insecure");
    });
    let ask = |host: &str| {
        let request = Request::new("GET", "/api/v1/queues").header("Host", host);
        request.send(&api.address)
    };
    let (_, why) = ask("evil.example:7117").refused(403);
    assert!(why.contains("localhost"), "{why}");
    for own in ["10.0.0.7:7117", "localhost"] {
        assert_eq!(ask(own).status, 200, "{own}");
    }
}

#[test]
fn who_sends_a_form_behind_the_end_of_their_login_learns_that_nothing_was_done() {
    let api = guarded();
    let sent = |referer: &str| {
        let request = Request::new("POST", "/do").header("Sec-Fetch-Site", "same-origin");
        let request = request.header("Referer", &format!("http://{}{referer}", api.address));
        let body = "deed=queue.pause&queue=mails";
        request.body("application/x-www-form-urlencoded", body).send(&api.address)
    };
    for (referer, next) in [
        ("/queues/mails?span=7d", "%2Fqueues%2Fmails%3Fspan%3D7d"),
        ("/operations/new?action=pause", "%2Foperations%2Fnew%3Faction%3Dpause"),
        ("/do", "%2F"),
        ("", "%2F"),
    ] {
        let answer = sent(referer);
        let login = format!("/login?next={next}&undone=true");
        assert_eq!((answer.status, answer.header("location")), (303, Some(&*login)));
    }
    let stranger = Visitor { api: &api, cookie: String::new() };
    assert!(stranger.page("/login?next=%2F&undone=true").contains("nothing was done"));
    assert!(!stranger.page("/login?next=%2F").contains("nothing was done"));
}

#[test]
fn what_was_typed_before_a_login_ended_is_asked_about_behind_the_next_login() {
    let api = guarded();
    let stranger = Visitor { api: &api, cookie: String::new() };
    let job = "0199aa12-77de-7000-8123-abcdefabcdef";
    let text = "{\"n\": \"<b>\"}";
    let typed = [
        ("deed", "dead.edit"),
        ("queue", "mails"),
        ("job", job),
        ("payload", text),
        ("back", "/morgue"),
    ];
    let shown = "{&#34;n&#34;: &#34;&#60;b&#62;&#34;}</textarea>";
    let asked = stranger.submit("/do", &typed);
    let page = asked.text();
    assert_eq!((asked.status, asked.header("location")), (401, None));
    for part in [shown, "nothing was done", "What you typed is kept", "type=\"password\""] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let wrong = stranger.submit("/login", &[&typed[..], &[("token", "no-token")]].concat());
    assert!(wrong.status == 403 && wrong.text().contains(shown), "{}", wrong.text());
    let enters = |name: &str, fields: &[(&str, &str)]| {
        let secret = secret(name);
        stranger.submit("/login", &[fields, &[("token", &*secret), ("next", "/morgue")]].concat())
    };
    let asks = enters("boss", &typed);
    let page = asks.text();
    assert!(asks.status == 200 && page.contains(shown) && page.contains("Not requeued"), "{page}");
    let cookie = asks.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let boss = Visitor { api: &api, cookie };
    assert_eq!(field(&page, "mark").unwrap(), boss.mark(), "it is a form of the new login");
    assert!(page.contains("boss (admin)") && page.contains("value=\"/morgue\""), "{page}");
    // Who may not send it goes on to the page.
    let reader = enters("eyes", &typed);
    assert_eq!((reader.status, reader.header("location")), (303, Some("/morgue")));
    // Settings are asked about in words.
    let limit = [("deed", "queue.limits"), ("queue", "mails"), ("running", "5"), ("rate", "30/m")];
    let page = stranger.submit("/do", &limit).text();
    assert!(page.contains("Set the limit: queue mails"), "{page}");
    let page = enters("boss", &limit).text();
    assert!(page.contains("You typed: running 5, rate 30/m"), "{page}");
    assert_eq!(field(&page, "rate").as_deref(), Some("30/m"));
    // What is too long to be kept is not; then the page says that nothing was done.
    let answered = |bytes: usize| {
        let payload = "x".repeat(bytes);
        let edit = [("deed", "dead.edit"), ("queue", "mails"), ("job", job), ("payload", &payload)];
        stranger.submit("/do", &edit).status
    };
    assert_eq!(answered(64 << 10), 401, "pages let edit so much");
    assert!(matches!(answered(300_000), 303 | 413));
    let limits = Request::new("GET", "/api/v1/queues/mails").token(&secret("boss"));
    assert_eq!(limits.send(&api.address).done()["settings"]["limit"]["running"], json!(null));
}
