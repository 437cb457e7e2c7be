//! The fetched values of a turn have a limit together.

use super::*;
use crate::context::item::limit_items;

#[test]
fn entries_beyond_the_byte_limit_are_reported_by_name() {
    let large = |name: &str, priority| PromptItem { priority, asked: Some(300), ..entry(name, 3_000_000) };
    let fetched = vec![large("c", 500), large("b", 500), entry("small", 100), large("a", 900)];
    let assembled = built(&inputs(180_000, limit_items(fetched.clone()), doing(task(1, "x"))));
    let statuses: Vec<_> = assembled.ledger.rows.iter().map(|row| (row.key.as_str(), row.status)).collect();
    assert!(
        statuses.contains(&("context/a", RowStatus::Shrunk)) && statuses.contains(&("context/c", RowStatus::Shrunk))
    );
    assert!(statuses.contains(&("context/small", RowStatus::Full)), "what is smaller still fits: {statuses:?}");
    let row = assembled.ledger.rows.iter().find(|row| row.key == "context/b").unwrap();
    assert_eq!(row.status, RowStatus::Failed);
    let reason = row.reason.as_deref().unwrap();
    assert!(reason.starts_with("too much at once: it has about 3000000 bytes, and 2000000 are left of the 8000000"));
    assert!(text(&assembled).contains("[Context: b — unavailable: too much at once"));
    let required = fetched.into_iter().chain((0..3).map(|n| PromptItem { required: true, ..large(&n.to_string(), 1) }));
    let error = refused(&inputs(180_000, limit_items(required.collect()), doing(task(1, "x"))));
    assert!(matches!(error, ContextError::RequiredMissing { label, .. } if label == "2"));
}
