//! A worker that dies between a reply and its calls: its successor hands on the same bytes.

use super::*;
use crate::support::watched_store::Watched;

const RULES: &str = r#"
[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [{ tool = "help", arguments = { n = 1, _scopes = ["context/plan", "transcript"] } }, { tool = "look", arguments = {} }] }

[[rule]]
then = { text = "done" }
"#;

#[tokio::test]
async fn a_successor_hands_on_what_the_prompt_showed() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(2), Clock::system()).unwrap();
    let watch = Between::new(true);
    let recorded = Arc::clone(&watch.reached);
    let held = Watched { inner: Arc::clone(&store) as Arc<dyn trellis::store::Store>, watch };
    let first = TestVenue::new(Arc::new(held), Arc::new(bus), dir.path(), RULES).await;
    first.worker();
    write(&first, "w/plan", json!({"version": "shown"})).await;
    let tool = json!({"delegate": "helper", "name": "help", "scopes": {"enum": ["context/plan", "transcript"]}, "wait": 60000});
    let context = json!([{"ref": "w/plan", "label": "plan"}]);
    first.agent("boss", json!({"tools": [tool, fixed("look", &["context/plan"])], "context": context})).await;
    first.agent("helper", json!({})).await;
    let job = first.submit("boss", "t1", json!("go")).await.job.unwrap();
    soon(&recorded).await;
    // It dies here, with the lease in its hands, which is given back as by a stop.
    first.shutdown.trigger();
    first.shutdown.cancel_token().cancel();
    write(&first, "w/plan", json!({"version": "changed since"})).await;
    let bus = Arc::clone(&first.venue.bus);
    let second = TestVenue::new(store, bus, dir.path(), RULES).await;
    second.worker();
    let job = second.ended(&job).await;
    let turns = turns(&second, &job).await;
    let looked: Value = serde_json::from_str(results(&turns[0])[1]).unwrap();
    assert_eq!(looked["scoped"], json!({"context/plan": {"version": "shown"}}));
    let child = jobs_of(&second, "helper").await.pop().unwrap();
    let (request, _) = prompt(&second, &child, 1).await;
    let text = text_of(&request);
    assert!(text.contains("[Scoped: context/plan]\n{version: \"shown\"}") && !text.contains("changed since"), "{text}");
    let asked = second.model_calls().iter().filter(|call| call["event"] == "replied").count();
    assert_eq!(asked, 3, "the reply is not asked for again: two of the boss and one of its helper");
}
