//! Text of models and callers on pages: it is shown whole or cut, and never obeyed.

use crate::support::http::Server;
use crate::support::venue::TestVenue;
use serde_json::json;
use std::sync::Arc;

const RULES: &str = r#"
[[rule]]
when = { agent = "script" }
then = { text = "<script>alert(1)</script> [pay](javascript:alert(2)) \u202e1004\u200b <img src=x onerror=alert(3)>" }

[[rule]]
when = { agent = "caller", turn = 1 }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/docs/<b>bold</b>" } }] }

[[rule]]
when = { agent = "caller" }
then = { text = "read" }

[[rule]]
when = { agent = "reader" }
then = { text = "seen" }
"#;

/// A page as a browser gets it.
async fn page(server: &Server, path: &str) -> String {
    let answer = server.get(path).await;
    assert_eq!(answer.status.as_u16(), 200, "{path}: {}", answer.body);
    answer.body.as_str().unwrap().to_owned()
}

fn assert_harmless(path: &str, page: &str) {
    assert_eq!(page.matches("<script").count(), 1, "{path}: {page}");
    for markup in ["<img", "href=\"javascript:", "<b>bold", "\u{202e}", "\u{200b}"] {
        assert!(!page.contains(markup), "{path} has `{}`: {page}", markup.escape_unicode());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn markup_and_hidden_characters_of_a_model_are_shown() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    venue.worker();
    let server = Server::of(Arc::clone(&venue.venue)).await;
    for agent in ["script", "caller"] {
        venue.agent(agent, json!({})).await;
    }
    let input = json!({"<img src=x>": "a\u{202e}b"});
    let job = venue.run("script", "e1", input).await.head;
    let turn = format!("/agents/script/turns/{}/1", job.session);
    for path in ["/", "/agents/script", &format!("/jobs/{}", job.id), &turn] {
        assert_harmless(path, &page(&server, path).await);
    }
    let shown = page(&server, &format!("/jobs/{}", job.id)).await;
    for text in ["&#60;script&#62;alert(1)", "(javascript:alert(2))", "⟨U+202E⟩1004⟨U+200B⟩", r"a\u202eb"] {
        assert!(shown.contains(text), "no `{text}` in {shown}");
    }
    let raw = server.get(&format!("/jobs/{}?raw=output", job.id)).await;
    assert_eq!(raw.header("content-type"), "text/plain; charset=utf-8");
    assert!(raw.body.as_str().unwrap().starts_with("<script>"), "{}", raw.body);
    let called = venue.run("caller", "e2", json!("go")).await.head;
    let turn = format!("/agents/caller/turns/{}/1", called.session);
    let shown = page(&server, &turn).await;
    assert_harmless(&turn, &shown);
    assert!(shown.contains("lattice_read") && shown.contains("w/docs/&#60;b&#62;"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_megabyte_in_one_line_is_cut_with_a_link_to_all() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    venue.worker();
    let server = Server::of(Arc::clone(&venue.venue)).await;
    venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    // An input has a limit of its own; an output of a turn is as long as this.
    let line = "x".repeat(200_000);
    let job = venue.run("echo", "e1", json!(line)).await.head;
    let path = format!("/jobs/{}", job.id);
    let shown = page(&server, &path).await;
    assert!(shown.len() < 60_000, "{} bytes", shown.len());
    assert!(shown.contains("the first 20.0 kB of 200.0 kB") && shown.contains(&format!("{path}?raw=input")), "{shown}");
    assert_eq!(page(&server, &format!("{path}?raw=input")).await, line);
    let listed = page(&server, "/").await;
    assert!(listed.len() < 10_000, "{} bytes", listed.len());
    let turn = page(&server, &format!("/agents/echo/turns/{}/1", job.session)).await;
    assert!(turn.len() < 120_000, "{} bytes", turn.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_shows_what_its_model_was_denied() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    venue.worker();
    let server = Server::of(Arc::clone(&venue.venue)).await;
    venue.write("w/a/rule", json!("pay on time")).await;
    venue.write("w/pay/salaries", json!("99,000")).await;
    let caps = json!([{"with": "w/a", "can": "crud/read"}]);
    venue.agent("reader", json!({"context": ["w/a/rule", "w/pay/salaries"], "caps": caps})).await;
    let job = venue.run("reader", "e1", json!("go")).await.head;
    let turn = format!("/agents/reader/turns/{}/1", job.session);
    let shown = page(&server, &turn).await;
    for text in ["w/a/rule", "href=\"/lattice/w/a/rule\"", "w/pay/salaries", "⊗", "denied", "class=\"part-system\""] {
        assert!(shown.contains(text), "no `{text}` in {shown}");
    }
    assert!(!shown.contains("99,000"), "{shown}");
    let prompt = server.get(&format!("{turn}?raw=prompt")).await.body(200).to_string();
    assert!(prompt.contains("pay on time") && !prompt.contains("99,000"), "{prompt}");
}
