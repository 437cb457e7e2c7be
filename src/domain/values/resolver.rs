//! What one turn knows: the tiers and the rows that name their values.

use crate::ids::sha256_hex;
use crate::values::mapping::{Mapping, MappingRow, RowSource};
use crate::values::{Tier, Tiers, Values};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Tiers and mapping rows. It ends with the turn: its record keeps [`super::known::KnownValues`] of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Resolver {
    /// The values; the agent tier is the mapping's constants.
    pub tiers: Tiers,
    /// The rows.
    #[serde(skip_serializing_if = "Mapping::is_empty")]
    pub mapping: Mapping,
}

impl Resolver {
    /// The values of a turn.
    pub fn new(session: Values, user: Values, project: Values, mapping: Mapping) -> Self {
        Self { tiers: Tiers { session, user, agent: mapping.constants(), project }, mapping }
    }

    /// SHA-256 of everything that it resolves from.
    pub fn hash(&self) -> String {
        sha256_hex(&serde_json::to_vec(self).expect("values serialise"))
    }

    /// The value of a key. A row owns its key and what is below it (`customer` owns
    /// `customer.name`): what it doesn't find is not looked for elsewhere, so that no caller's
    /// value takes the place of one that the configuration has bound. A key without a row is
    /// walked over all tiers.
    pub fn lookup(&self, key: &str) -> Option<(Value, Tier)> {
        let mut owner = Some(key);
        while let Some(candidate) = owner {
            if self.mapping.of(candidate).next().is_some() {
                let (value, tier) = self.mapped(candidate)?;
                return below(value, &key[candidate.len()..]).map(|value| (value, tier));
            }
            owner = candidate.rsplit_once('.').map(|(parent, _)| parent);
        }
        self.tiers.resolve(key).map(|(value, tier)| (value.clone(), tier))
    }

    /// The value of a key that has rows: values first, in the order of precedence, then fallbacks.
    fn mapped(&self, key: &str) -> Option<(Value, Tier)> {
        let rows = || self.mapping.of(key);
        let value = rows().find_map(|row| self.value(&row.key, &row.source));
        value.or_else(|| rows().find_map(|row| Some((row.fallback.clone()?, Tier::Fallback))))
    }

    /// The value of a source; `key` is what `_global` and `_auto` read.
    pub(super) fn value(&self, key: &str, source: &RowSource) -> Option<(Value, Tier)> {
        let found = match source {
            RowSource::Constant(value) => return (!value.is_null()).then(|| (value.clone(), Tier::Agent)),
            // `user.name` as a source also means the claim of that name.
            RowSource::From(Tier::User, name) => {
                let claim = crate::values::get(&self.tiers.user, &format!("user.{name}"));
                claim.map(|value| (value, Tier::User)).or_else(|| self.tiers.resolve_from(Tier::User, name))
            }
            RowSource::From(tier, name) => self.tiers.resolve_from(*tier, name),
            RowSource::Walk(name) => self.tiers.resolve(name),
            RowSource::Global => self.tiers.resolve_from(Tier::Project, key),
            RowSource::Auto => self.tiers.resolve(key),
            RowSource::Llm => None,
        };
        found.map(|(value, tier)| (value.clone(), tier))
    }

    /// Keys that may be injected by the name of an argument, and have a value now.
    pub fn auto_keys(&self) -> Vec<&str> {
        self.mapping.auto_keys().filter(|key| self.lookup(key).is_some()).collect()
    }

    /// The rows of a key.
    pub fn rows<'r>(&'r self, key: &'r str) -> impl Iterator<Item = &'r MappingRow> + 'r {
        self.mapping.of(key)
    }
}

/// What lies at `.rest` below a value.
fn below(value: Value, rest: &str) -> Option<Value> {
    let Some(rest) = rest.strip_prefix('.') else { return Some(value) };
    crate::values::get(&Map::from_iter([("_".to_owned(), value)]), &format!("_.{rest}")).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn values(value: Value) -> Values {
        let Value::Object(map) = value else { panic!("expected a map") };
        map
    }

    fn resolver(rows: &Value) -> Resolver {
        Resolver::new(
            values(json!({"user_id": "s", "only_session": 1, "city.name": "sneaked", "session": "x"})),
            values(json!({"user_id": "u", "user.name": "Ada", "name": "plain", "email": "e"})),
            values(json!({"user_id": "p", "city": {"zip": 7}, "only_project": true})),
            Mapping::parse("contextMapping", rows).unwrap(),
        )
    }

    #[test]
    fn sources_start_at_their_tier_and_fall_through() {
        for (source, expected) in [
            ("session.user_id", Some((json!("s"), Tier::Session))),
            ("session.only_project", Some((json!(true), Tier::Project))),
            ("user.user_id", Some((json!("u"), Tier::User))),
            ("user.name", Some((json!("Ada"), Tier::User))),
            ("user.email", Some((json!("e"), Tier::User))),
            ("user.only_session", None),
            ("agent.fixed", Some((json!("f"), Tier::Agent))),
            ("agent.user_id", Some((json!("p"), Tier::Project))),
            ("project.user_id", Some((json!("p"), Tier::Project))),
            ("project.fixed", None),
            ("CONSTANT:{\"a\":1}", Some((json!({"a": 1}), Tier::Agent))),
            ("CONSTANT:null", None),
            ("LLM", None),
            ("user_id", Some((json!("s"), Tier::Session))),
            ("fixed", Some((json!("f"), Tier::Agent))),
            ("nothing", None),
        ] {
            let rows = json!([{"key": "k", "source": source}, {"key": "fixed", "source": "CONSTANT:f"}]);
            assert_eq!(resolver(&rows).lookup("k"), expected, "{source}");
        }
    }

    #[test]
    fn global_and_auto_read_the_rows_own_key() {
        let rows = json!({"user_id": "_global", "only_session": "_auto", "only_project": "_auto", "none": "_auto"});
        let resolver = resolver(&rows);
        assert_eq!(resolver.lookup("user_id"), Some((json!("p"), Tier::Project)));
        assert_eq!(resolver.lookup("only_session"), Some((json!(1), Tier::Session)));
        assert_eq!(resolver.auto_keys(), ["only_session", "only_project"]);
    }

    #[test]
    fn a_fallback_is_used_on_a_miss_only() {
        let rows = json!({
            "user_id": {"source": "session.user_id", "fallback": "f"},
            "gone": {"source": "session.gone", "fallback": {"a": [1]}},
        });
        let resolver = resolver(&rows);
        assert_eq!(resolver.lookup("user_id"), Some((json!("s"), Tier::Session)));
        assert_eq!(resolver.lookup("gone"), Some((json!({"a": [1]}), Tier::Fallback)));
        assert_eq!(resolver.lookup("gone.a.0"), Some((json!(1), Tier::Fallback)));
    }

    #[test]
    fn a_constant_beats_a_session_binding_beats_global_beats_auto_beats_fallbacks() {
        let row = |source: &str| json!({"key": "user_id", "source": source, "fallback": "f"});
        for (rows, expected) in [
            (json!([row("_auto"), row("_global"), row("session.user_id"), row("CONSTANT:c")]), "c"),
            (json!([row("_auto"), row("_global"), row("session.user_id")]), "s"),
            (json!([row("_auto"), row("_global")]), "p"),
            (json!([row("_auto")]), "s"),
            (json!([row("session.gone"), row("_global")]), "p"),
            (json!([row("session.gone")]), "f"),
        ] {
            assert_eq!(resolver(&rows).lookup("user_id").unwrap().0, json!(expected), "{rows}");
        }
    }

    #[test]
    fn a_row_owns_its_key_and_what_is_below_it() {
        let resolver = resolver(&json!({"city": "project.city"}));
        assert_eq!(resolver.lookup("city.zip"), Some((json!(7), Tier::Project)));
        assert_eq!(resolver.lookup("city.name"), None, "the caller's own `city.name` is not the row's");
        assert_eq!(resolver.lookup("city_name"), None);
    }

    #[test]
    fn it_is_kept_as_json_and_the_empty_one_is_empty() {
        assert_eq!(serde_json::to_value(Resolver::default()).unwrap(), json!({"tiers": {}}));
        let first = resolver(&json!([{"key": "a", "source": "CONSTANT:{\"b\":1}", "fallback": 2}]));
        let again: Resolver = serde_json::from_value(serde_json::to_value(&first).unwrap()).unwrap();
        assert_eq!(again, first);
        assert_eq!(Resolver::default().lookup("a"), None);
    }
}
