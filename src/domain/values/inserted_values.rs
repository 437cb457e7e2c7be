//! Values that the placeholders of one prompt insert. The prompt and its record hold no others of a turn's values.

use super::placeholder::{InsertedText, keys};
use super::{ContextMapping, Resolver, Tier, Values};
use crate::lattice::value::{get, set};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Inserted values by key as it is written. A key that is missing has no value, whatever is above or below it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KnownValues(BTreeMap<String, InsertedText>);

impl KnownValues {
    /// Collects the values for the placeholders of these texts.
    pub fn collect<'t>(texts: impl IntoIterator<Item = &'t str>, resolver: &Resolver) -> Self {
        let mut known = BTreeMap::new();
        for key in texts.into_iter().flat_map(keys) {
            if !known.contains_key(key)
                && let Some(found) = resolver.find(key)
            {
                known.insert(key.to_owned(), InsertedText::from_found(key, &found));
            }
        }
        Self(known)
    }

    /// Returns the value that a key inserts.
    pub fn get(&self, key: &str) -> Option<&InsertedText> {
        self.0.get(key)
    }

    /// Removes the values that operators stored at removed places. Returns whether there were any.
    pub fn remove(&mut self, user: &str, is_gone: impl Fn(&str) -> bool) -> bool {
        let count = self.0.len();
        self.0.retain(|key, given| given.path(key, user).is_none_or(|path| !is_gone(&path)));
        self.0.len() < count
    }

    /// Replaces values that operators store; `Some(None)` removes the value of a place. Returns whether there were any.
    pub fn replace(&mut self, user: &str, value_at: impl Fn(&str) -> Option<Option<Value>>) -> bool {
        let mut is_any = false;
        let mut gone = Vec::new();
        for (key, given) in &mut self.0 {
            let Some(value) = given.path(key, user).and_then(|path| value_at(&path)) else { continue };
            is_any = true;
            match value {
                Some(value) => *given = InsertedText { at: given.at.take(), ..InsertedText::new(&value, given.tier) },
                None => gone.push(key.clone()),
            }
        }
        for key in &gone {
            self.0.remove(key);
        }
        is_any
    }

    /// Whether nothing is inserted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a resolver of these values with the rows of another configuration, for an experiment. Values that no
    /// placeholder showed are missing in it.
    pub fn resolver(&self, mapping: ContextMapping) -> Resolver {
        let mut tiers = [Values::new(), Values::new(), Values::new()];
        for (key, given) in &self.0 {
            let [session, user, project] = &mut tiers;
            let tier = match given.tier {
                Tier::Session => session,
                Tier::User => user,
                Tier::Project => project,
                // The rows of the configuration hold these values themselves.
                Tier::Agent | Tier::Fallback => continue,
            };
            insert(tier, key, given);
        }
        let [session, user, project] = tiers;
        Resolver::new(session, user, project, mapping)
    }
}

/// Stores the text of a key where its value was found, so that a lookup finds it there. If another text is at or above
/// that place, it is stored under its key.
fn insert(tier: &mut Values, key: &str, given: &InsertedText) {
    let segments: Vec<String> = match &given.at {
        Some(at) => at.replace("\\/", "\0").split('/').map(|segment| segment.replace('\0', "/")).collect(),
        None => key.split('.').map(str::to_owned).collect(),
    };
    let mut root = Value::Object(std::mem::take(tier));
    let is_free = (1..=segments.len()).all(|count| match segments.get(..count).and_then(|place| get(&root, place)) {
        None => true,
        Some(Value::Object(_)) => count < segments.len(),
        Some(_) => false,
    });
    let place = if is_free { segments } else { vec![key.to_owned()] };
    // This can't fail, because only maps are above it.
    set(&mut root, &place, given.text.clone().into()).ok();
    if let Value::Object(values) = root {
        *tier = values;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn values(value: Value) -> Values {
        let Value::Object(map) = value else { panic!("expected a map") };
        map
    }

    #[test]
    fn only_keys_named_by_the_texts_are_kept() {
        let session = values(json!({"a": {"b": 1, "c": 2}, "secret": "s", "a.c": "literal"}));
        let project = values(json!({"p": true}));
        let mapping =
            ContextMapping::parse("m", &json!([{"key": "f", "source": "session.x", "fallback": [1]}])).unwrap();
        let resolver = Resolver::new(session, Values::new(), project, mapping);
        let known = KnownValues::collect(["{{a.b}} ${p}", r"${f} \${secret} ${none}"], &resolver);
        let kept = serde_json::to_value(&known).unwrap();
        assert_eq!(
            kept,
            json!({
                "a.b": {"text": "1", "bytes": 1, "tier": "session"},
                "f": {"text": "[1]", "bytes": 3, "tier": "fallback"},
                "p": {"text": "true", "bytes": 4, "tier": "project"},
            })
        );
        assert_eq!(serde_json::from_value::<KnownValues>(kept).unwrap(), known);
        assert!(known.get("a").is_none() && known.get("a.c").is_none() && known.get("none").is_none());
    }

    #[test]
    fn an_experiment_has_the_shown_values_and_its_own_rows() {
        let resolver =
            Resolver::new(values(json!({"s": 7, "t": 8})), Values::new(), Values::new(), ContextMapping::default());
        let known = KnownValues::collect(["${s}"], &resolver);
        let again = known.resolver(ContextMapping::parse("m", &json!({"c": "CONSTANT:x"})).unwrap());
        assert_eq!(again.lookup("s"), Some((json!("7"), Tier::Session)));
        assert_eq!(again.lookup("c"), Some((json!("x"), Tier::Agent)));
        assert_eq!(again.lookup("t"), None);
    }

    /// Values of the project, with a key that has a dot and one that a row calls otherwise.
    fn of_project() -> KnownValues {
        let project = values(json!({"a.b": "literal", "a": {"c": "below"}, "city": {"zip": 7}}));
        let mapping = ContextMapping::parse("m", &json!({"town": "project.city"})).unwrap();
        let resolver = Resolver::new(Values::new(), Values::new(), project, mapping);
        KnownValues::collect(["${a.b} ${a.c} ${town.zip}"], &resolver)
    }

    #[test]
    fn a_value_has_the_path_at_which_it_was_found() {
        for (path, expected) in [
            ("v/context/project/a.b", vec!["a.c", "town.zip"]),
            ("v/context/project/a/b", vec!["a.b", "a.c", "town.zip"]),
            ("v/context/project/a/c", vec!["a.b", "town.zip"]),
            ("v/context/project/city/zip", vec!["a.b", "a.c"]),
            ("v/context/project/town/zip", vec!["a.b", "a.c", "town.zip"]),
        ] {
            let mut known = of_project();
            let is_any = known.remove("u", |place| place == path);
            let left: Vec<&str> = known.0.keys().map(String::as_str).collect();
            assert_eq!((is_any, left), (expected.len() < 3, expected.clone()), "{path}");
        }
    }

    #[test]
    fn an_experiment_finds_the_shown_values_at_their_places() {
        let known = of_project();
        let again = known.resolver(ContextMapping::parse("m", &json!({"place": "project.city"})).unwrap());
        let again = KnownValues::collect(["${a.b} ${a.c} ${place.zip} ${town.zip}"], &again);
        let kept = serde_json::to_value(&again).unwrap();
        assert_eq!(
            kept,
            json!({
                "a.b": {"text": "literal", "bytes": 7, "tier": "project", "at": "a.b"},
                "a.c": {"text": "below", "bytes": 5, "tier": "project"},
                "place.zip": {"text": "7", "bytes": 1, "tier": "project", "at": "city/zip"},
            })
        );
    }
}
