//! What an agent is told of its capabilities, in paths that it can use.

use crate::support::venue::TestVenue;
use serde_json::json;
use trellis::domain::context::assemble::assemble;
use trellis::domain::event::Submission;
use trellis::domain::ids::SessionKey;
use trellis::venue::ledger;

const RULES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "lattice_write", arguments = { path = "n/other", value = 1 } }] }

[[rule]]
then = { text = "{{tool_result}}" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn own_places_are_disclosed_by_stable_short_paths() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    let venue = venue.foreseen();
    venue.worker();
    let caps = json!([
        {"with": "n/diary", "can": "crud"}, {"with": "t", "can": "crud/read"}, {"with": "c/a", "can": "crud/write"},
        {"with": "w/b", "can": "crud/read"}, {"with": "g/nt/n/own", "can": "crud/read"}, {"with": "g/kid/n", "can": "crud"}
    ]);
    venue.agent("nt", json!({"caps": caps, "tools": ["v/ops/lattice/write"], "defaultTools": false})).await;
    let mut systems = Vec::new();
    for id in ["a", "b"] {
        let session_id = Some(id.parse().unwrap());
        let submission = Submission { input: json!("go"), session_id, ..Submission::default() };
        let job = venue.arrive("nt", id, true, submission).await.job.unwrap();
        let denied = venue.ended(&job).await.result.unwrap().output.unwrap().to_string();
        assert!(denied.contains("crud/write on n/other"), "{denied}");
        assert!(
            denied.contains("crud on n/diary") && !denied.contains("g/nt") && !denied.contains("on j/"),
            "{denied}"
        );
        let key = SessionKey { agent: "nt".parse().unwrap(), session: id.parse().unwrap() };
        let past = ledger::load(&*venue.venue.store, &venue.owner, &key, 1).await.unwrap().unwrap();
        systems.push(assemble(&past.seen.unwrap().inputs.unwrap()).unwrap().request.system);
    }
    for line in
        ["- crud on n/diary", "- crud/read on t", "- crud/write on c/a", "- crud/read on n/own", "- crud on g/kid/n"]
    {
        assert!(systems[0].contains(&format!("{line}\n")), "{line}: {}", systems[0]);
    }
    assert!(!systems[0].contains("on g/nt") && !systems[0].contains("on j/"), "{}", systems[0]);
    assert_eq!(systems[0], systems[1], "nothing of a job or session stands in the prefix");
}
