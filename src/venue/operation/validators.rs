//! Compiled input schemas of published operations: kept while calls use them, and those that were used last.

use crate::domain::schema::{self, SchemaError};
use jsonschema::Validator;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// Most validators that are kept between calls, enough for the tools of some turns. They take far more memory than
/// schemas, and others may write thousands of schemas.
const RECENT_MAX: usize = 32;

/// Validators that were used last, in the order of their use.
#[derive(Default)]
pub(super) struct RecentValidators(Mutex<VecDeque<Arc<Validator>>>);

impl RecentValidators {
    fn keep(&self, used: &Arc<Validator>) {
        let mut recent = self.0.lock();
        recent.retain(|known| !Arc::ptr_eq(known, used));
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(Arc::clone(used));
    }
}

/// The validator of a published operation, compiled when a call needs it.
pub(super) struct SharedValidator {
    compiled: Mutex<Weak<Validator>>,
    /// Whether it may be kept between calls: a pattern of a few letters may take megabytes when compiled.
    is_small: bool,
    recent: Arc<RecentValidators>,
}

impl SharedValidator {
    /// Makes the place of a schema's validator.
    pub(super) fn new(schema: &Value, recent: &Arc<RecentValidators>) -> Self {
        let is_small = !schema::has_patterns(schema);
        Self { compiled: Mutex::default(), is_small, recent: Arc::clone(recent) }
    }

    /// Returns the validator of `schema`, the one that the place was made for. Calls at the same time share it, and so
    /// do those that follow soon.
    pub(super) fn get(&self, schema: &Value) -> Result<Arc<Validator>, SchemaError> {
        // The lock is free while the schema is compiled.
        let known = self.compiled.lock().upgrade();
        let validator = if let Some(known) = known {
            known
        } else {
            let compiled = Arc::new(schema::compile(schema)?);
            *self.compiled.lock() = Arc::downgrade(&compiled);
            compiled
        };
        if self.is_small {
            self.recent.keep(&validator);
        }
        Ok(validator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_small_schema_is_compiled_once_for_calls_in_a_row() {
        let recent = Arc::default();
        let schema = json!({"type": "object", "required": ["q"]});
        let shared = SharedValidator::new(&schema, &recent);
        let first = Arc::downgrade(&shared.get(&schema).unwrap());
        assert!(first.upgrade().is_some(), "it is kept");
        assert!(Weak::ptr_eq(&first, &Arc::downgrade(&shared.get(&schema).unwrap())));
        let other = json!({"type": "object"});
        for _ in 0..RECENT_MAX {
            SharedValidator::new(&other, &recent).get(&other).unwrap();
        }
        assert!(first.upgrade().is_none(), "others were used later");
        assert_eq!(recent.0.lock().len(), RECENT_MAX);
        assert!(!shared.get(&schema).unwrap().is_valid(&json!({})), "compiled again");
    }

    #[test]
    fn a_schema_with_patterns_is_kept_only_while_it_is_used() {
        let recent = Arc::default();
        let schema = json!({"properties": {"q": {"pattern": "^x{9}$"}}});
        let shared = SharedValidator::new(&schema, &recent);
        let first = shared.get(&schema).unwrap();
        assert!(Arc::ptr_eq(&first, &shared.get(&schema).unwrap()));
        let kept = Arc::downgrade(&first);
        drop(first);
        assert!(recent.0.lock().is_empty() && shared.get(&schema).is_ok());
        assert!(kept.upgrade().is_none());
    }
}
