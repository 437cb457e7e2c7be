//! What the placeholders of one prompt insert: all that the prompt, and its record, hold of the
//! values of a turn.

use super::placeholder::{GivenValue, keys};
use super::{Mapping, Resolver, Tier, Values};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// By key as it is written. A key that isn't here has no value, whatever lies above or below it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KnownValues(BTreeMap<String, GivenValue>);

impl KnownValues {
    /// What the placeholders of these texts insert.
    pub fn of<'t>(texts: impl IntoIterator<Item = &'t str>, resolver: &Resolver) -> Self {
        let mut known = BTreeMap::new();
        for key in texts.into_iter().flat_map(keys) {
            if !known.contains_key(key)
                && let Some((value, tier)) = resolver.lookup(key)
            {
                known.insert(key.to_owned(), GivenValue::new(&value, tier));
            }
        }
        Self(known)
    }

    /// What a key inserts.
    pub fn get(&self, key: &str) -> Option<&GivenValue> {
        self.0.get(key)
    }

    /// The path of a key in a tier that operators keep.
    fn place(key: &str, tier: Tier, user: &str) -> Option<String> {
        let key = key.replace('.', "/");
        match tier {
            Tier::User => Some(format!("v/context/users/{user}/{key}")),
            Tier::Project => Some(format!("v/context/project/{key}")),
            Tier::Session | Tier::Agent | Tier::Fallback => None,
        }
    }

    /// Takes out what operators keep at places that are gone. Whether anything was there.
    pub fn remove(&mut self, user: &str, is_gone: impl Fn(&str) -> bool) -> bool {
        let count = self.0.len();
        self.0.retain(|key, given| Self::place(key, given.tier, user).is_none_or(|place| !is_gone(&place)));
        self.0.len() < count
    }

    /// Puts other values at places that operators keep; `None` of a place where nothing is any more. Whether any was
    /// there.
    pub fn replace(&mut self, user: &str, value_at: impl Fn(&str) -> Option<Option<Value>>) -> bool {
        let mut is_any = false;
        let mut gone = Vec::new();
        for (key, given) in &mut self.0 {
            let Some(value) = Self::place(key, given.tier, user).and_then(|place| value_at(&place)) else { continue };
            is_any = true;
            match value {
                Some(value) => *given = GivenValue::new(&value, given.tier),
                None => gone.push(key.clone()),
            }
        }
        for key in &gone {
            self.0.remove(key);
        }
        is_any
    }

    /// Nothing is inserted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The texts as values again, with the rows of another configuration: for an experiment. What no
    /// placeholder showed is not among them.
    pub fn resolver(&self, mapping: Mapping) -> Resolver {
        let mut tiers = [Values::new(), Values::new(), Values::new()];
        for (key, given) in &self.0 {
            let [session, user, project] = &mut tiers;
            let tier = match given.tier {
                Tier::Session => session,
                Tier::User => user,
                Tier::Project => project,
                // The rows of the configuration say these themselves.
                Tier::Agent | Tier::Fallback => continue,
            };
            tier.insert(key.clone(), given.text.clone().into());
        }
        let [session, user, project] = tiers;
        Resolver::new(session, user, project, mapping)
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
    fn only_what_the_texts_name_is_kept_each_key_exactly() {
        let session = values(json!({"a": {"b": 1, "c": 2}, "secret": "s", "a.c": "literal"}));
        let project = values(json!({"p": true}));
        let mapping = Mapping::parse("m", &json!([{"key": "f", "source": "session.x", "fallback": [1]}])).unwrap();
        let resolver = Resolver::new(session, Values::new(), project, mapping);
        let known = KnownValues::of(["{{a.b}} ${p}", r"${f} \${secret} ${none}"], &resolver);
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
        let resolver = Resolver::new(values(json!({"s": 7, "t": 8})), Values::new(), Values::new(), Mapping::default());
        let known = KnownValues::of(["${s}"], &resolver);
        let again = known.resolver(Mapping::parse("m", &json!({"c": "CONSTANT:x"})).unwrap());
        assert_eq!(again.lookup("s"), Some((json!("7"), Tier::Session)));
        assert_eq!(again.lookup("c"), Some((json!("x"), Tier::Agent)));
        assert_eq!(again.lookup("t"), None);
    }
}
