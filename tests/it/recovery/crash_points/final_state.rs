//! What of the end of a run must not depend on crashes.

use serde_json::{Value, json};
use trellis::domain::ids::JobId;
use trellis::domain::session::TurnRecord;
use trellis::domain::time::Millis;

/// What is kept of a resource, whenever it was.
pub fn untimed(bytes: &[u8]) -> Value {
    let mut value: Value = serde_json::from_slice(bytes).unwrap();
    if let Some(map) = value.as_object_mut() {
        map.retain(|key, _| !["created", "updated", "at"].contains(&key.as_str()));
    }
    value
}

/// What a turn did, whenever and as which it ran.
pub fn turn(record: &TurnRecord) -> Value {
    let mut record = record.clone();
    for call in &mut record.calls {
        call.began = None;
        if let Some(decided) = &mut call.decided {
            // Its id has the start of the turn in it.
            decided.at = Millis(0);
            decided.approval = JobId::new(&"0".repeat(32)).unwrap();
        }
    }
    json!({
        "job": record.job, "events": record.events, "heard": record.heard, "said": record.said,
        "calls": record.calls, "ended": record.ended,
    })
}
