//! `ContextWindow`: labelled items within a number of tokens, for programs that use Trellis as a library.

use std::collections::VecDeque;

/// Default of a window's tokens.
pub const WINDOW_TOKENS: usize = 100_000;

/// Characters that an item costs besides its own: brackets, `source: `, line ends.
const ITEM_CHARS: usize = 20;

/// A labelled item of a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContextItem {
    /// Name of the item.
    pub key: String,
    /// Text of the item.
    pub value: String,
    /// Source of the item.
    pub source: String,
    /// Priority; items with higher ones stand first, and may displace lower ones.
    pub priority: i32,
}

/// Which items stay when the window is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AdmissionRule {
    /// An item displaces items of lower priority.
    #[default]
    Priority,
    /// Earlier items stay.
    Arrival,
}

/// The result of adding an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddOutcome {
    /// The item is in the window.
    Accepted {
        /// Items that were displaced, the lowest priority and the newest first.
        displaced: Vec<ContextItem>,
    },
    /// The item is not in the window.
    Dropped {
        /// Reason for dropping it.
        reason: DropReason,
    },
}

/// Why an item was dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DropReason {
    /// The item alone exceeds the window.
    #[error("`{key}` has about {tokens} tokens, expected at most {max_tokens}")]
    TooLarge {
        /// Name of the item.
        key: String,
        /// Estimated tokens of the item.
        tokens: usize,
        /// Most tokens of the window.
        max_tokens: usize,
    },
    /// The other items leave too little room, and the item may not displace them.
    #[error("`{key}` has about {tokens} tokens, and {left} of {max_tokens} are left")]
    Full {
        /// Name of the item.
        key: String,
        /// Estimated tokens of the item.
        tokens: usize,
        /// Tokens that the window has left.
        left: usize,
        /// Most tokens of the window.
        max_tokens: usize,
    },
}

/// Labelled items within a number of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextWindow {
    max_tokens: usize,
    admission: AdmissionRule,
    items: Vec<ContextItem>,
    chars: usize,
}

impl Default for ContextWindow {
    fn default() -> Self {
        Self::new(WINDOW_TOKENS, AdmissionRule::default())
    }
}

impl ContextItem {
    /// Makes an item of priority 0.
    pub fn new(key: impl Into<String>, value: impl Into<String>, source: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into(), source: source.into(), priority: 0 }
    }

    fn chars(&self) -> usize {
        let count = |text: &str| text.chars().count();
        count(&self.key) + count(&self.value) + count(&self.source) + ITEM_CHARS
    }

    /// Returns the estimated tokens: a quarter of its characters, counted as code points.
    pub fn estimated_tokens(&self) -> usize {
        self.chars() / 4
    }
}

impl ContextWindow {
    /// Makes an empty window.
    pub const fn new(max_tokens: usize, admission: AdmissionRule) -> Self {
        Self { max_tokens, admission, items: Vec::new(), chars: 0 }
    }

    /// Adds `item` if the estimates of the window and the item together are at most the window's tokens; returns
    /// whether it was added, and the displaced items.
    pub fn add(&mut self, item: ContextItem) -> AddOutcome {
        let (tokens, max_tokens) = (item.estimated_tokens(), self.max_tokens);
        let key = || item.key.clone();
        if tokens > max_tokens {
            return AddOutcome::Dropped { reason: DropReason::TooLarge { key: key(), tokens, max_tokens } };
        }
        let Some(displaced) = self.room_for(tokens, item.priority) else {
            let left = max_tokens.saturating_sub(self.estimated_tokens());
            return AddOutcome::Dropped { reason: DropReason::Full { key: key(), tokens, left, max_tokens } };
        };
        let displaced = self.remove(&displaced);
        self.chars += item.chars();
        self.items.push(item);
        AddOutcome::Accepted { displaced }
    }

    /// Returns the indexes of the items that must leave so that `tokens` fit; `None` if that isn't enough.
    fn room_for(&self, tokens: usize, priority: i32) -> Option<Vec<usize>> {
        let mut lower: Vec<usize> = match self.admission {
            AdmissionRule::Arrival => Vec::new(),
            AdmissionRule::Priority => (0..self.items.len()).filter(|at| self.items[*at].priority < priority).collect(),
        };
        lower.sort_by_key(|at| (self.items[*at].priority, std::cmp::Reverse(*at)));
        let mut lower = VecDeque::from(lower);
        let (mut chars, mut displaced) = (self.chars, Vec::new());
        while chars / 4 + tokens > self.max_tokens {
            let at = lower.pop_front()?;
            chars -= self.items[at].chars();
            displaced.push(at);
        }
        Some(displaced)
    }

    fn remove(&mut self, places: &[usize]) -> Vec<ContextItem> {
        let gone: Vec<_> = places.iter().map(|at| self.items[*at].clone()).collect();
        self.chars -= gone.iter().map(ContextItem::chars).sum::<usize>();
        let mut at = 0;
        self.items.retain(|_| {
            at += 1;
            !places.contains(&(at - 1))
        });
        gone
    }

    /// Writes the items by priority, items of the same priority in the order of arrival. Each item is `[key (source:
    /// src)]` and its value, with an empty line between two; the text is empty without items.
    pub fn build(&self) -> String {
        let mut sorted: Vec<&ContextItem> = self.items.iter().collect();
        sorted.sort_by_key(|item| std::cmp::Reverse(item.priority));
        let parts = sorted.iter().map(|item| format!("[{} (source: {})]\n{}", item.key, item.source, item.value));
        parts.collect::<Vec<_>>().join("\n\n")
    }

    /// Returns the estimated tokens of all items: a quarter of their characters.
    pub const fn estimated_tokens(&self) -> usize {
        self.chars / 4
    }

    /// Returns the most tokens of the window.
    pub const fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Returns the items in the order of arrival.
    pub fn items(&self) -> &[ContextItem] {
        &self.items
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        self.items.clear();
        self.chars = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 characters of overhead, 2 of key and source, the rest in the value: `tokens` in all.
    fn item(key: &str, tokens: usize, priority: i32) -> ContextItem {
        ContextItem { priority, ..ContextItem::new(key, "x".repeat(4 * tokens - 22), "s") }
    }

    fn keys(items: &[ContextItem]) -> Vec<&str> {
        items.iter().map(|item| item.key.as_str()).collect()
    }

    #[test]
    fn an_estimate_adds_twenty_to_code_points_and_rounds_down() {
        assert_eq!(ContextItem::new("k", "v", "s").estimated_tokens(), 5);
        assert_eq!(ContextItem::new("ä", "€𝄞", "s").estimated_tokens(), 6);
        let mut window = ContextWindow::default();
        for _ in 0..3 {
            window.add(ContextItem::new("k", "v", "s"));
        }
        assert_eq!(window.estimated_tokens(), 69 / 4, "of the sums, not the sum of the estimates");
        assert_eq!(window.max_tokens(), 100_000);
    }

    #[test]
    fn parts_without_room_are_dropped_with_the_reason() {
        let mut window = ContextWindow::new(20, AdmissionRule::Arrival);
        assert_eq!(window.add(item("a", 14, 0)), AddOutcome::Accepted { displaced: Vec::new() });
        let AddOutcome::Dropped { reason } = window.add(item("b", 7, 9)) else { panic!("expected a drop") };
        assert_eq!(reason.to_string(), "`b` has about 7 tokens, and 6 of 20 are left");
        let AddOutcome::Dropped { reason } = window.add(item("c", 21, 9)) else { panic!("expected a drop") };
        assert_eq!(reason.to_string(), "`c` has about 21 tokens, expected at most 20");
        assert_eq!(window.add(item("d", 6, 0)), AddOutcome::Accepted { displaced: Vec::new() });
        assert_eq!(keys(window.items()), ["a", "d"]);
    }

    #[test]
    fn lower_priorities_leave_first_and_are_reported() {
        let mut window = ContextWindow::new(30, AdmissionRule::Priority);
        for (key, priority) in [("a", 1), ("b", 0), ("c", 0)] {
            window.add(item(key, 10, priority));
        }
        let AddOutcome::Accepted { displaced } = window.add(item("d", 15, 2)) else { panic!("expected to be taken") };
        assert_eq!(keys(&displaced), ["c", "b"]);
        assert_eq!(keys(window.items()), ["a", "d"]);
        // Equal ones are never displaced, and nothing is lost for an item that doesn't fit after all.
        assert!(matches!(window.add(item("e", 10, 1)), AddOutcome::Dropped { .. }));
        assert!(matches!(window.add(item("f", 30, 2)), AddOutcome::Dropped { .. }));
        assert_eq!(keys(window.items()), ["a", "d"]);
    }

    #[test]
    fn build_sorts_by_priority_and_keeps_the_order_of_equals() {
        let mut window = ContextWindow::default();
        assert_eq!(window.build(), "");
        for (key, priority) in [("a", 0), ("b", 5), ("c", 0)] {
            window.add(ContextItem { priority, ..ContextItem::new(key, "v", "tool") });
        }
        assert_eq!(window.build(), "[b (source: tool)]\nv\n\n[a (source: tool)]\nv\n\n[c (source: tool)]\nv");
        window.clear();
        assert_eq!((window.build().as_str(), window.estimated_tokens()), ("", 0));
    }
}
