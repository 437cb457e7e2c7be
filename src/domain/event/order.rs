//! Position of an event in its mailbox.

use super::EventKind;
use crate::priority::{HIGH_PREFIX, LOW_PREFIX, Priority};
use crate::time::Millis;

/// Returns the sort key of an event in its mailbox: results first, then messages, then tasks by priority, each by time
/// of publication and stream sequence. So a backlog of tasks never hides the result that the open task waits for.
pub fn mailbox_key(kind: EventKind, priority: Priority, published: Millis, sequence: u64) -> String {
    let class = match (kind, priority) {
        (EventKind::Result, _) => "1-",
        (EventKind::Message, _) => "2-",
        (EventKind::Task, Priority::High) => HIGH_PREFIX,
        (EventKind::Task, Priority::Normal) => "3-",
        (EventKind::Task, Priority::Low) => LOW_PREFIX,
    };
    format!("{class}{:016}-{sequence:020}", published.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mailbox_orders_results_messages_and_tasks() {
        let at = |kind, priority, time| mailbox_key(kind, priority, Millis(time), 0);
        let sorted = [
            at(EventKind::Result, Priority::Normal, 9),
            at(EventKind::Message, Priority::Normal, 8),
            at(EventKind::Task, Priority::High, 6),
            at(EventKind::Task, Priority::High, 7),
            at(EventKind::Task, Priority::Normal, 4),
            at(EventKind::Task, Priority::Normal, 5),
            at(EventKind::Task, Priority::Low, 1),
            at(EventKind::Task, Priority::Low, 2),
        ];
        assert!(sorted.is_sorted(), "{sorted:?}");
        let allowed = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase() || c == '-';
        assert!(sorted.iter().all(|order| order.len() <= 64 && order.chars().all(allowed)));
        assert_eq!(at(EventKind::Task, Priority::Normal, 5), "3-0000000000000005-00000000000000000000", "as before");
    }
}
