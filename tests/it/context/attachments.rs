//! Pictures and files of assets, from a submission to the provider's wire.

use crate::support::attachments::png;
use crate::support::both_stores::{On, on_both};
use crate::support::cli::Up;
use crate::support::model_server::{ModelCall, ModelServer};
use crate::support::raw_reply::RawReply;
use crate::support::site::path;
use crate::support::venue::TestVenue;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tempfile::TempDir;
use trellis::domain::asset::Draft;
use trellis::domain::event::Submission;
use trellis::domain::ids::{AssetId, Owner};
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::domain::limits::ATTACHMENT_BYTES;
use trellis::domain::load::Load;
use trellis::domain::media::reference;
use trellis::model::endpoint::ModelEndpoint;
use trellis::process::clock::Clock;
use trellis::store::{DocWrite, keys};
use trellis::venue::assets;

on_both! {
    a_picture_reaches_the_model_and_stays_where_it_was
    a_task_with_an_unshowable_attachment_fails_with_the_reason
    a_lost_or_revoked_attachment_becomes_a_line
    another_provider_is_told_what_it_does_not_see
    a_picture_in_the_context_is_shown
    a_model_that_refuses_pictures_is_asked_without_them
    many_large_pictures_at_once_share_the_memory
}

fn seen() -> RawReply {
    let delta = json!({"choices": [{"index": 0, "delta": {"content": "seen"}, "finish_reason": "stop"}]});
    RawReply::events(&[delta.to_string().as_str(), "[DONE]"])
}

struct Site {
    venue: TestVenue,
    server: ModelServer,
    _dir: TempDir,
}

impl Site {
    /// An agent `clerk` of `openai`, on a server that has seen all.
    async fn new(on: On) -> Option<Self> {
        Self::with(on, ModelServer::start(|_| seen())).await
    }

    async fn with(on: On, server: ModelServer) -> Option<Self> {
        let (mut venue, dir) = on.venue("", Clock::system()).await?;
        for provider in ["openai", "deepseek"] {
            let endpoint = ModelEndpoint { base_url: server.url("/v1"), api_key_env: None };
            venue.providers.endpoints.insert(provider.to_owned(), endpoint);
        }
        let site = Self { venue, server, _dir: dir };
        site.agent("openai", json!({})).await;
        site.venue.worker();
        Some(site)
    }

    async fn agent(&self, provider: &str, more: Value) {
        let mut config = json!({"model": {"provider": provider, "name": "m"}, "defaultTools": false});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.venue.agent("clerk", config).await;
    }

    async fn store(&self, owner: &Owner, bytes: Vec<u8>, kind: &str) -> AssetId {
        let draft = Draft::new(bytes, kind, Some("a.png".into()), None, self.venue.venue.now()).unwrap();
        assets::put(&self.venue.venue, owner, &draft).await.unwrap().0
    }

    async fn png(&self, mark: u64) -> AssetId {
        self.store(&self.venue.owner, png(mark), "image/png").await
    }

    /// The end of a task in the session `s`.
    async fn run(&self, id: &str, input: Value) -> Job {
        let session_id = Some("s".parse().unwrap());
        let submission = Submission { input, session_id, ..Submission::default() };
        let submitted = self.venue.arrive("clerk", id, true, submission).await;
        self.venue.ended(&submitted.job.unwrap()).await
    }

    /// The parts of messages of the last request.
    fn parts(&self) -> Vec<Value> {
        let body = self.server.calls().pop().unwrap().body;
        let contents = body["messages"].as_array().unwrap().iter().map(|message| message["content"].clone());
        contents.flat_map(|content| content.as_array().cloned().unwrap_or_else(|| vec![content])).collect()
    }

    /// The pictures of the last request.
    fn pictures(&self) -> Vec<Vec<u8>> {
        let url = |part: &Value| part.pointer("/image_url/url")?.as_str().map(str::to_owned);
        let picture =
            |url: String| BASE64_STANDARD.decode(url.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
        self.parts().iter().filter_map(url).map(picture).collect()
    }

    fn texts(&self) -> String {
        let text = |part: &Value| part.as_str().or_else(|| part["text"].as_str()).map(str::to_owned);
        self.parts().iter().filter_map(text).collect::<Vec<_>>().join("\n")
    }
}

async fn a_picture_reaches_the_model_and_stays_where_it_was(on: On) {
    let Some(site) = Site::new(on).await else { return };
    let asset = site.png(1).await;
    let job = site.run("t1", json!({"what": "is it?", "picture": reference(&asset)})).await;
    assert_eq!((job.status, job.result.unwrap().output), (JobStatus::Complete, Some(json!("seen"))));
    assert_eq!(site.pictures(), [png(1)]);
    assert!(site.texts().contains(&format!("[Attachment a/{asset}, a.png, image/png, {} bytes]", png(1).len())));
    let first = site.parts();
    let place = |parts: &[Value]| parts.iter().position(|part| !part["image_url"].is_null()).unwrap();
    site.run("t2", json!([reference(&asset), reference(&site.png(2).await)])).await;
    assert_eq!(site.pictures(), [png(1), png(2)]);
    assert!(site.texts().contains("not shown: it stands above"));
    let second = site.parts();
    assert_eq!(second[place(&first)], first[place(&first)], "it stays where it was");
    // Nothing that is kept has the bytes, but the asset itself.
    let docs = site.venue.venue.store.scan(&site.venue.owner, "", None, false, 10_000).await.unwrap();
    assert!(docs.len() > 5);
    let (needle, encoded) = (png(1)[..20].to_vec(), BASE64_STANDARD.encode(&png(1)[..18]));
    for (key, doc) in docs.into_iter().filter(|(key, _)| !key.starts_with("a.c/")) {
        let bytes = doc.value.unwrap_or_default();
        let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
        assert!(!has(&needle) && !has(encoded.as_bytes()), "{key}");
    }
    let turns = site.venue.turns("clerk", "s").await;
    assert_eq!(turns[0].heard[0].attachments, std::slice::from_ref(&asset));
    assert!(turns[0].used.iter().flatten().any(|cap| cap.with.contains(asset.as_str())), "{turns:?}");
}

async fn a_task_with_an_unshowable_attachment_fails_with_the_reason(on: On) {
    let Some(site) = Site::new(on).await else { return };
    let (own, other) = (site.venue.owner.clone(), "local/you".parse().unwrap());
    let named = |asset: &AssetId| json!({"x": [reference(asset)]});
    let large = [png(9), vec![0; ATTACHMENT_BYTES]].concat();
    let cases = [
        (named(&site.store(&other, png(3), "image/png").await), "no such asset"),
        (named(&AssetId::of_content(b"nothing")), "no such asset"),
        (named(&site.store(&own, b"GIF89a\x01\0\x01\0".to_vec(), "image/png").await), "its bytes are image/gif"),
        (named(&site.store(&own, b"PK\x03\x04\0".to_vec(), "image/png").await), "none of these"),
        (named(&site.store(&own, large, "image/png").await), "expected at most 3932160"),
        (json!({"$asset": "o/pin"}), "a/HASH"),
    ];
    for (n, (input, part)) in cases.into_iter().enumerate() {
        let result = site.run(&format!("t{n}"), input).await.result.unwrap();
        let error = result.error.unwrap();
        assert!(error.contains(part), "expected `{part}`: {error}");
        assert_eq!(result.error_code, Some(ErrorCode::ContextRequiredMissing), "{error}");
    }
    assert!(site.server.calls().is_empty(), "no model was asked");
    let narrow = json!({"caps": [{"with": "w", "can": "crud"}]});
    site.agent("openai", narrow).await;
    let denied = site.run("denied", named(&site.png(1).await)).await.result.unwrap().error.unwrap();
    assert!(denied.contains("capability denied: needs crud/read on a/"), "{denied}");
    site.agent("deepseek", json!({})).await;
    let refused = site.run("refused", named(&site.png(1).await)).await.result.unwrap().error.unwrap();
    assert!(refused.contains("`deepseek` takes no images or files"), "{refused}");
    assert_eq!(site.run("next", json!("go on")).await.status, JobStatus::Complete, "the session lives");
    assert!(site.pictures().is_empty());
}

async fn a_lost_or_revoked_attachment_becomes_a_line(on: On) {
    let Some(site) = Site::new(on).await else { return };
    let (gone, revoked) = (site.png(1).await, site.png(2).await);
    site.run("t1", json!([reference(&gone), reference(&revoked)])).await;
    assert_eq!(site.pictures().len(), 2);
    let delete = DocWrite::delete(keys::asset(&gone));
    site.venue.venue.store.write(site.venue.venue.now(), &site.venue.owner, &[delete]).await.unwrap();
    assert_eq!(site.run("t2", json!("again")).await.status, JobStatus::Complete);
    assert_eq!(site.pictures(), [png(2)]);
    assert!(site.texts().contains("not shown: no such asset"), "{}", site.texts());
    site.venue.revoke(&format!("a/{revoked}")).await;
    assert_eq!(site.run("t3", json!("again")).await.status, JobStatus::Complete);
    assert!(site.pictures().is_empty() && !site.texts().contains(&format!("a/{revoked}, a.png")), "{}", site.texts());
    let denied = site.run("t4", reference(&revoked)).await.result.unwrap().error.unwrap();
    assert!(denied.contains("capability denied"), "{denied}");
}

async fn another_provider_is_told_what_it_does_not_see(on: On) {
    let Some(site) = Site::new(on).await else { return };
    site.run("t1", reference(&site.png(1).await)).await;
    site.agent("deepseek", json!({})).await;
    assert_eq!(site.run("t2", json!("and now?")).await.status, JobStatus::Complete);
    assert!(site.pictures().is_empty());
    assert!(site.texts().contains("not shown: provider `deepseek` takes no images or files"), "{}", site.texts());
    site.agent("openai", json!({})).await;
    site.run("t3", json!("and now?")).await;
    assert_eq!(site.pictures(), [png(1)]);
}

async fn a_picture_in_the_context_is_shown(on: On) {
    let Some(site) = Site::new(on).await else { return };
    let (first, second) = (site.png(1).await, site.png(2).await);
    site.venue.write("w/logo", json!({"of": "us", "picture": reference(&second)})).await;
    site.agent("openai", json!({"context": [format!("a/{first}"), "w/logo"]})).await;
    assert_eq!(site.run("t1", json!("look")).await.status, JobStatus::Complete);
    assert_eq!(site.pictures(), [png(1), png(2)]);
    site.agent("openai", json!({})).await;
    let session_id = Some("loads".parse().unwrap());
    let loads = vec![Load::new(&path(&format!("a/{first}")), None, None).unwrap()];
    let submission = Submission { input: json!("look"), session_id, loads, ..Submission::default() };
    let loaded = site.venue.arrive("clerk", "t2", true, submission).await;
    site.venue.ended(&loaded.job.unwrap()).await;
    assert_eq!(site.pictures(), [png(1)], "of a loaded path");
}

async fn a_model_that_refuses_pictures_is_asked_without_them(on: On) {
    let tries = AtomicUsize::new(0);
    let blind = move |call: &ModelCall| {
        if call.body.to_string().contains("image_url") {
            // llama.cpp says so by a 500.
            let status = [400, 500][tries.fetch_add(1, Ordering::Relaxed) % 2];
            return RawReply::json(&json!({"error": {"message": "image input is not supported"}})).status(status);
        }
        seen()
    };
    let Some(site) = Site::with(on, ModelServer::start(blind)).await else { return };
    for n in 0..2 {
        let job = site.run(&format!("t{n}"), reference(&site.png(n).await)).await;
        assert_eq!(job.status, JobStatus::Complete);
        assert!(site.texts().contains("not shown: the provider refused the request with it"), "{}", site.texts());
    }
}

async fn many_large_pictures_at_once_share_the_memory(on: On) {
    let Some(site) = Site::new(on).await else { return };
    site.agent("openai", json!({"concurrency": 20})).await;
    let picture = [png(1), vec![0; 3_000_000]].concat();
    let asset = site.store(&site.venue.owner, picture.clone(), "image/png").await;
    let mut jobs = Vec::new();
    for n in 0..8 {
        jobs.push(site.venue.submit("clerk", &format!("t{n}"), reference(&asset)).await.job.unwrap());
    }
    for job in jobs {
        assert_eq!(site.venue.ended(&job).await.status, JobStatus::Complete);
    }
    assert_eq!(site.pictures(), [picture]);
}

#[test]
fn attached_files_reach_the_model_and_again_after_a_kill() {
    static IS_FIRST: AtomicBool = AtomicBool::new(true);
    let server =
        ModelServer::start(|_| if IS_FIRST.swap(false, Ordering::Relaxed) { RawReply::silence() } else { seen() });
    let endpoint = format!("models.endpoints.openai.base_url={}", server.url("/v1/"));
    let mut up = Up::start_with(&[&endpoint]);
    up.file("clerk.toml", "defaultTools = false\nmodel = { provider = \"openai\", name = \"m\" }");
    up.run(&["agent", "apply", "clerk.toml"]).ok();
    let picture = [png(5), vec![b' '; 2_000_000]].concat();
    std::fs::write(up.dir.path().join("my picture.png"), &picture).unwrap();
    up.file("note.txt", "remember the milk");
    std::fs::write(up.dir.path().join("zip"), b"PK\x03\x04\0").unwrap();
    up.run(&["submit", "clerk", "x", "--attach", "zip"]).expect(2, "expected png, jpeg, webp, gif, pdf or text");
    let files = ["--attach", "my picture.png", "--attach", "note.txt"];
    let job = up.run(&[&["submit", "clerk", "what is it?"][..], &files].concat()).ok();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(server.wait_until("the model is asked", |server| server.calls().len() == 1));
    up.process.signal("KILL");
    up.process.ended();
    up.start_again();
    assert_eq!(up.run(&["job", "wait", &job]).ok(), "seen");
    let calls = server.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].body["messages"], calls[1].body["messages"], "the same again");
    let sent = calls[1].body["messages"].to_string();
    assert!(sent.contains(&format!("data:image/png;base64,{}", BASE64_STANDARD.encode(&picture))));
    assert!(sent.contains("remember the milk") && sent.contains("my picture.png"), "{sent:.400}");
}
