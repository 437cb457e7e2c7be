//! The resolver of one turn: the tiers, and the rows that name their values.

use crate::ids::sha256_hex;
use crate::values::mapping::{ContextMapping, MappingRow, RowSource};
use crate::values::{Tier, Tiers, Values, auto};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Tiers and mapping rows of one turn. They aren't stored: the turn's record keeps [`super::inserted_values::KnownValues`] of
/// them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Resolver {
    /// Values by tier; the agent tier holds the mapping's constants.
    pub tiers: Tiers,
    /// Rows of the mapping.
    #[serde(skip_serializing_if = "ContextMapping::is_empty")]
    pub mapping: ContextMapping,
}

/// A value that a key names.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundValue {
    /// Value of the tier, a constant or a fallback.
    pub value: Value,
    /// Tier of the value.
    pub tier: Tier,
    /// Segments of its place in the tier; empty for a constant and for a fallback.
    pub place: Vec<String>,
}

impl FoundValue {
    const fn without_place(value: Value, tier: Tier) -> Self {
        Self { value, tier, place: Vec::new() }
    }

    fn new(value: &Value, tier: Tier, place: Vec<String>) -> Self {
        Self { value: value.clone(), tier, place }
    }

    /// Returns the value at `.rest` below it.
    fn descend(self, rest: &str) -> Option<Self> {
        let Some(rest) = rest.strip_prefix('.') else { return Some(self) };
        let value =
            crate::values::get(&Map::from_iter([("_".to_owned(), self.value)]), &format!("_.{rest}")).cloned()?;
        let mut place = self.place;
        if !place.is_empty() {
            place.extend(rest.split('.').map(str::to_owned));
        }
        Some(Self { value, place, ..self })
    }
}

impl Resolver {
    /// Makes the resolver of a turn.
    pub fn new(session: Values, user: Values, project: Values, mapping: ContextMapping) -> Self {
        Self { tiers: Tiers { session, user, agent: mapping.constants(), project }, mapping }
    }

    /// Returns the SHA-256 of everything that it resolves from.
    pub fn hash(&self) -> String {
        sha256_hex(&serde_json::to_vec(self).expect("values serialise"))
    }

    /// Returns the value of a key and its tier. A row owns its key and all keys below it (`customer` owns
    /// `customer.name`): what the row doesn't find is not searched elsewhere, so that no caller's value replaces one
    /// that the configuration has bound. A key without a row is searched in all tiers.
    pub fn lookup(&self, key: &str) -> Option<(Value, Tier)> {
        self.find(key).map(|found| (found.value, found.tier))
    }

    /// Returns the value of a key as [`Self::lookup`] does, with its place in the tier.
    pub fn find(&self, key: &str) -> Option<FoundValue> {
        let mut owner = Some(key);
        while let Some(candidate) = owner {
            if self.mapping.rows_of(candidate).next().is_some() {
                return self.find_mapped(candidate)?.descend(&key[candidate.len()..]);
            }
            owner = candidate.rsplit_once('.').map(|(parent, _)| parent);
        }
        let found = self.tiers.find_from(Tier::Session, key);
        found.map(|(value, tier, place)| FoundValue::new(value, tier, place))
    }

    /// Returns the value of a key with rows: values first, in the order of precedence, then fallbacks.
    fn find_mapped(&self, key: &str) -> Option<FoundValue> {
        let rows = || self.mapping.rows_of(key);
        let value = rows().find_map(|row| self.find_source(&row.key, &row.source));
        value.or_else(|| rows().find_map(|row| Some(FoundValue::without_place(row.fallback.clone()?, Tier::Fallback))))
    }

    /// Returns the value of a source; `key` is the one that `_global` and `_auto` read.
    pub(super) fn value(&self, key: &str, source: &RowSource) -> Option<(Value, Tier)> {
        self.find_source(key, source).map(|found| (found.value, found.tier))
    }

    fn find_source(&self, key: &str, source: &RowSource) -> Option<FoundValue> {
        let find_from = |tier, key: &str| self.tiers.find_from(tier, key);
        let found = match source {
            RowSource::Constant(value) => {
                return (!value.is_null()).then(|| FoundValue::without_place(value.clone(), Tier::Agent));
            }
            // The source `user.name` also means the claim of that name.
            RowSource::From(Tier::User, name) => {
                let claim = crate::values::find(&self.tiers.user, &format!("user.{name}"));
                claim.map(|(value, place)| (value, Tier::User, place)).or_else(|| find_from(Tier::User, name))
            }
            RowSource::From(tier, name) => find_from(*tier, name),
            RowSource::Walk(name) => find_from(Tier::Session, name),
            RowSource::Global => find_from(Tier::Project, key),
            RowSource::Auto => find_from(Tier::Session, key).or_else(|| self.tiers.find_alias(key)),
            RowSource::Llm => None,
        };
        found.map(|(value, tier, place)| FoundValue::new(value, tier, place))
    }

    /// Returns the keys that may be injected by the name of an argument, and have a value.
    pub fn auto_keys(&self) -> Vec<&str> {
        self.mapping.auto_keys().filter(|key| self.lookup(key).is_some()).collect()
    }

    /// Returns the rows of a key.
    pub fn rows<'r>(&'r self, key: &'r str) -> impl Iterator<Item = &'r MappingRow> + 'r {
        self.mapping.rows_of(key)
    }
}

impl Tiers {
    /// Returns the value of another spelling of `name` (`user_id` for `userId`) from the first tier that has one.
    fn find_alias(&self, name: &str) -> Option<(&Value, Tier, Vec<String>)> {
        if !auto::has_aliases(name) {
            return None;
        }
        let tiers = [
            (&self.session, Tier::Session),
            (&self.user, Tier::User),
            (&self.agent, Tier::Agent),
            (&self.project, Tier::Project),
        ];
        for (values, tier) in tiers {
            let mut spelt = values.iter().filter(|(key, value)| auto::is_same_name(key, name) && !value.is_null());
            if let Some((key, value)) = spelt.next() {
                // Of two spellings with two values neither is meant more than the other.
                return spelt.all(|(_, other)| other == value).then(|| (value, tier, vec![key.clone()]));
            }
        }
        None
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

    fn resolver(rows: &Value) -> Resolver {
        Resolver::new(
            values(json!({"user_id": "s", "only_session": 1, "city.name": "sneaked", "session": "x"})),
            values(json!({"user_id": "u", "user.name": "Ada", "name": "plain", "email": "e"})),
            values(json!({"user_id": "p", "city": {"zip": 7}, "only_project": true})),
            ContextMapping::parse("contextMapping", rows).unwrap(),
        )
    }

    #[test]
    fn a_declared_key_has_the_value_of_its_other_spelling() {
        for (session, user, key, expected) in [
            (json!({"user_id": "S1"}), json!({}), "userId", Some("S1")),
            (json!({"userId": "S1"}), json!({}), "user_id", Some("S1")),
            (json!({"uid": "S1"}), json!({}), "user.id", Some("S1")),
            (json!({"user_id": "S1", "userId": "S2"}), json!({}), "userId", Some("S2")),
            (json!({"user_id": "S1", "USER_ID": "S2"}), json!({}), "userId", None),
            (json!({"user_id": null}), json!({"user_id": "U1", "user.id": "U1"}), "userId", Some("U1")),
            (json!({"user_id": "S1"}), json!({"userId": "U1"}), "userId", Some("U1")),
            (json!({"Name": "x", "ID": "y"}), json!({}), "name", None),
            (json!({"Name": "x", "ID": "y"}), json!({}), "id", None),
            (json!({"customer_id": "x"}), json!({}), "id", None),
        ] {
            let mapping = ContextMapping::parse("contextMapping", &json!({key: "_auto"})).unwrap();
            let all = Resolver::new(values(session.clone()), values(user), Values::new(), mapping);
            assert_eq!(all.lookup(key).map(|(value, _)| value), expected.map(Value::from), "{session} {key}");
            let other = Resolver { mapping: ContextMapping::default(), ..all };
            assert_eq!(other.value(key, &RowSource::Auto).map(|(value, _)| value), expected.map(Value::from));
        }
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
    fn constants_then_session_global_auto_and_fallbacks_win() {
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
    fn a_value_is_found_with_its_place() {
        let rows = json!({
            "town": "project.city",
            "me": "user.name",
            "city": {"source": "project.gone", "fallback": {"zip": 0}},
            "fixed": "CONSTANT:{\"a\":1}",
        });
        for (key, expected) in [
            ("only_project", Some((Tier::Project, vec!["only_project"]))),
            ("town.zip", Some((Tier::Project, vec!["city", "zip"]))),
            ("me", Some((Tier::User, vec!["user.name"]))),
            ("city.zip", Some((Tier::Fallback, vec![]))),
            ("fixed.a", Some((Tier::Agent, vec![]))),
            ("none", None),
        ] {
            let found = resolver(&rows).find(key);
            let found = found.as_ref().map(|found| (found.tier, found.place.iter().map(String::as_str).collect()));
            assert_eq!(found, expected, "{key}");
        }
    }

    #[test]
    fn an_origin_is_kept_as_json_and_may_be_empty() {
        assert_eq!(serde_json::to_value(Resolver::default()).unwrap(), json!({"tiers": {}}));
        let first = resolver(&json!([{"key": "a", "source": "CONSTANT:{\"b\":1}", "fallback": 2}]));
        let again: Resolver = serde_json::from_value(serde_json::to_value(&first).unwrap()).unwrap();
        assert_eq!(again, first);
        assert_eq!(Resolver::default().lookup("a"), None);
    }
}
