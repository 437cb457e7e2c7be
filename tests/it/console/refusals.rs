//! Changes that the console refuses: without a session, from other origins, without the right, of other owners.

use super::Site;
use reqwest::Method;
use serde_json::{Value, json};

/// Forms that change something, with their fields.
fn changes(job: &str, timer: &str) -> Vec<(String, Vec<(&'static str, &'static str)>)> {
    let mut forms: Vec<_> = ["cancel", "pause", "resume", "redrive", "delete"]
        .iter()
        .map(|action| (format!("/jobs/{job}/{action}"), Vec::new()))
        .collect();
    forms.push(("/agents/clerk/suspend".into(), Vec::new()));
    forms.push(("/agents/clerk/resume".into(), Vec::new()));
    forms.push(("/agents/clerk/tasks".into(), vec![("input", "go")]));
    forms.push((format!("/approvals/{job}"), vec![("verdict", "approve"), ("digest", "d")]));
    forms.push((format!("/timers/{timer}/cancel"), vec![("next", "/timers")]));
    forms.push(("/secrets".into(), vec![("name", "KEY"), ("value", "another-value"), ("overwrite", "1")]));
    forms.push(("/secrets/KEY/delete".into(), Vec::new()));
    forms.push(("/lattice/w/doc/rule".into(), vec![("action", "write"), ("kind", "text"), ("version", "1")]));
    forms.push(("/lattice/w/doc".into(), vec![("action", "create"), ("kind", "text"), ("key", "new")]));
    forms.push(("/lattice/w/doc/rule".into(), vec![("action", "delete")]));
    forms
}

/// Forms about many jobs, which answer how many they were not done to.
fn bulk_changes(job: &str) -> [(String, Vec<(&'static str, String)>); 2] {
    let action = || ("action", "cancel".to_owned());
    [
        ("/jobs/bulk".to_owned(), vec![action(), ("expected", "1".to_owned())]),
        ("/jobs/selected".to_owned(), vec![action(), ("sure", "yes".to_owned()), ("id", job.to_owned())]),
    ]
}

/// The agent `clerk` with a job, a timer, a secret and a value of the token's owner: the ids of job and timer.
async fn things(site: &Site, token: &str) -> (String, String) {
    site.agent(token, "clerk").await;
    let timer = site.timer(token, &json!({"input": "go", "every": "5m"})).await;
    site.api(Method::PUT, "secrets/KEY", token, &json!({"value": "planted-value"})).await;
    let write = json!({"operation": "v/ops/lattice/write", "input": {"path": "w/doc/rule", "value": "pay"}});
    site.api(Method::POST, "run", token, &write).await;
    (site.job(token, "go").await, timer)
}

/// Everything that the owner has, with its versions.
async fn documents(site: &Site) -> String {
    let owner = "acme/ann".parse().unwrap();
    format!("{:?}", site.server.venue.store.scan(&owner, "", None, false, 10_000).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_counts_with_a_session_of_the_same_origin_alone() {
    let site = Site::new().await;
    let ann = site.token("acme/ann", &json!({}));
    let (job, timer) = things(&site, &ann).await;
    let (before, origin) = (documents(&site).await, site.server.url.clone());
    assert!(before.len() > 500, "{before}");
    let cookie = format!("trellis-session={ann}");
    let bulk = bulk_changes(&job);
    let bulk = bulk.iter().map(|(path, form)| (path.clone(), form.iter().map(|(k, v)| (*k, v.as_str())).collect()));
    for (path, form) in changes(&job, &timer).into_iter().chain(bulk) {
        let nobody = site.send(Method::POST, &path, &[("origin", origin.as_str())], &form).await;
        assert_eq!(nobody.status, 401, "{path}");
        for other in ["https://evil.example", "null", "http://127.0.0.1:1"] {
            let headers = [("cookie", cookie.as_str()), ("origin", other)];
            let refused = site.send(Method::POST, &path, &headers, &form).await;
            assert!(refused.text(403).contains("not asked for by a page of the console"), "{path} of {other}");
        }
        let unproved = site.send(Method::POST, &path, &[("cookie", cookie.as_str())], &form).await;
        assert_eq!(unproved.status, 403, "{path} without an origin");
    }
    assert_eq!(documents(&site).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_and_another_owner_change_nothing() {
    let site = Site::new().await;
    let ann = site.token("acme/ann", &json!({}));
    let (job, timer) = things(&site, &ann).await;
    let before = documents(&site).await;
    let reads: Value = json!([{"with": "j", "can": "crud/read"}, {"with": "g", "can": "crud/read"}]);
    let reader = site.token("acme/ann", &json!({"att": reads}));
    let page = site.open(&format!("/jobs/{job}"), &reader).await.text(200);
    assert!(!page.contains("/cancel\""), "a reader is offered no action: {page}");
    let timers = site.open("/timers", &reader).await.text(200);
    assert!(timers.contains("every 5m") && !timers.contains("/cancel\""), "{timers}");
    for path in ["/secrets", "/policy", "/lattice/w/doc/rule"] {
        assert_eq!(site.open(path, &reader).await.status, 403, "{path}");
    }
    for (path, form) in changes(&job, &timer) {
        let status = site.post(&path, &reader, &form).await.status;
        // There is no such approval: whether one exists, a reader is not told either.
        let expected: &[u16] = if path.starts_with("/approvals") { &[403, 404] } else { &[403] };
        assert!(expected.contains(&status), "{path}: {status}");
        let bob = site.token("acme/bob", &json!({}));
        // Names of secrets and values mean those of the caller's own owner.
        let is_own = path.starts_with("/secrets") || path.starts_with("/lattice");
        let status = site.post(&path, &bob, &form).await.status;
        assert!(status == 404 || is_own && [303, 409].contains(&status), "{path}: {status}");
    }
    for (path, form) in bulk_changes(&job) {
        let form: Vec<_> = form.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let said = site.post(&path, &reader, &form).await.text(200);
        assert!(said.contains("0 jobs cancelled; 1 are not yours to do."), "{path}: {said}");
        let bob = site.token("acme/bob", &json!({}));
        let said = site.post(&path, &bob, &form).await;
        assert!(said.status == 409 || said.text.contains("no job"), "{path}: {}", said.text);
    }
    assert_eq!(documents(&site).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_another_owner_is_unknown() {
    let site = Site::new().await;
    let (ann, bob) = (site.token("acme/ann", &json!({})), site.token("acme/bob", &json!({})));
    site.agent(&ann, "clerk").await;
    let job = site.job(&ann, "very secret").await;
    for path in [format!("/jobs/{job}"), format!("/jobs/{job}?raw=input"), format!("/jobs/{job}/events")] {
        let page = site.open(&path, &bob).await.text(404);
        assert!(!page.contains("very secret") && page.contains("<h1>Not Found</h1>"), "{page}");
    }
    assert!(!site.open("/", &bob).await.text(200).contains(&job[..8]));
    assert_eq!(site.open("/agents/clerk", &bob).await.status, 404);
    // Workers and the queue are of the whole venue.
    assert_eq!(site.open("/fleet", &ann).await.status, 403);
    assert_eq!(site.open("/fleet", &site.token("acme/root", &json!({}))).await.status, 200);
}

/// The body of a refused form arrives late: the connection serves the next request, or was said to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_goes_on_behind_a_refused_form() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let site = Site::new().await;
    let ann = site.token("acme/ann", &json!({}));
    let address = site.server.url.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    for at in 0..3 {
        let head = format!(
            "POST /agents/clerk/tasks HTTP/1.1\r\nHost: {address}\r\nOrigin: https://evil.example\r\n\
             Cookie: trellis-session={ann}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 8\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        stream.write_all(b"input=go").await.unwrap();
        let (mut answer, mut piece) = (String::new(), [0; 4_096]);
        while !answer.contains("</html>") {
            let read = stream.read(&mut piece).await.unwrap();
            assert!(read > 0, "request {at} got no answer: {answer}");
            answer.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(!answer.to_lowercase().contains("connection: close"), "{answer}");
    }
}
