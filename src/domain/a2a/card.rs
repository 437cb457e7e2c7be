//! The card of an agent elsewhere: what of it can be used, what is pinned of it, and which bytes its signatures sign.

use crate::canonical::canonical;
use crate::foreign::visible_line;
use crate::limits::{A2A_INTERFACES, A2A_SKILLS};
use crate::visible::quote_foreign;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Version of the protocol that is spoken, major and minor.
pub const VERSION: &str = "1.0";

/// Bytes of a name, and of a description, of which models read.
const NAME_BYTES: usize = 200;
const ABOUT_BYTES: usize = 2_000;

/// Bytes of the description of a skill of which models read.
const SKILL_BYTES: usize = 500;

/// Keys of a card that say nothing about what the agent does: they may change without an approval.
const UNPINNED: [&str; 2] = ["signatures", "version"];

/// How requests to an agent are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemoteBinding {
    /// JSON-RPC over HTTP.
    #[serde(rename = "JSONRPC")]
    JsonRpc,
    /// A URL for each operation.
    #[serde(rename = "HTTP+JSON")]
    HttpJson,
}

/// An address of an agent elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoteInterface {
    /// Address of the binding.
    pub url: String,
    /// Spelling of the requests.
    pub binding: RemoteBinding,
    /// Part of the address that names a customer of the agent; absent for most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// A skill on a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSkill {
    /// Name for programs.
    pub id: String,
    /// Description of the skill, one visible line.
    pub description: String,
}

/// What of a card can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteCard {
    /// Name of the agent, one visible line.
    pub name: String,
    /// Description of the agent, one visible line.
    pub description: String,
    /// Its skills, in the order of the card.
    pub skills: Vec<RemoteSkill>,
    /// Addresses that can be asked, the preferred one first.
    pub interfaces: Vec<RemoteInterface>,
}

/// Why a card can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteCardError {
    /// The value is no card.
    #[error("expected a card as a map with `name` and `supportedInterfaces`")]
    Form,
    /// The card is of an older version of the protocol.
    #[error("the card is of version {} of the protocol, expected {VERSION}", quote_foreign(.found))]
    Version {
        /// Version that the card names.
        found: String,
    },
    /// No address can be asked.
    #[error(
        "the card has no address for `JSONRPC` or `HTTP+JSON` of version {VERSION}; it has {}", quote_foreign(.found)
    )]
    Interfaces {
        /// Bindings and versions that the card has.
        found: String,
    },
    /// The agent wants an extension of its clients.
    #[error("the agent wants the extension {} of its clients, which isn't known here", quote_foreign(.uri))]
    Extension {
        /// URI of the extension.
        uri: String,
    },
}

impl RemoteCard {
    /// Reads a card.
    pub fn read(card: &Value) -> Result<Self, RemoteCardError> {
        let named = card["name"].as_str().filter(|name| !name.trim().is_empty());
        let (Some(name), Some(offered)) = (named, card["supportedInterfaces"].as_array()) else {
            return Err(match card["protocolVersion"].as_str() {
                Some(found) => RemoteCardError::Version { found: found.to_owned() },
                None => RemoteCardError::Form,
            });
        };
        let wanted = card["capabilities"]["extensions"].as_array().into_iter().flatten();
        if let Some(extension) = wanted.into_iter().find(|extension| extension["required"] == Value::Bool(true)) {
            let uri = extension["uri"].as_str().unwrap_or("?").to_owned();
            return Err(RemoteCardError::Extension { uri });
        }
        let interfaces: Vec<_> = offered.iter().take(A2A_INTERFACES).filter_map(read_interface).collect();
        if interfaces.is_empty() {
            let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
            let each = offered.iter().take(A2A_INTERFACES);
            let found: Vec<_> = each
                .map(|one| format!("{} {}", text(&one["protocolBinding"]), text(&one["protocolVersion"])))
                .collect();
            return Err(RemoteCardError::Interfaces { found: found.join(", ") });
        }
        let skills = card["skills"].as_array().into_iter().flatten().take(A2A_SKILLS).filter_map(read_skill);
        Ok(Self {
            name: visible_line(name, NAME_BYTES),
            description: visible_line(card["description"].as_str().unwrap_or_default(), ABOUT_BYTES),
            skills: skills.collect(),
            interfaces,
        })
    }

    /// Returns what models read of the agent: its description, and the skills that `shows` allows.
    pub fn tool_description(&self, shows: impl Fn(&str) -> bool) -> String {
        let mut text = format!("Send a message to the agent `{}` of another venue. {}", self.name, self.description);
        let skills = self.skills.iter().filter(|skill| shows(&skill.id));
        let skills: Vec<String> = skills.map(|skill| format!(" {}: {}", skill.id, skill.description)).collect();
        if !skills.is_empty() {
            text.push_str(" Skills:");
            text.push_str(&skills.join(";"));
        }
        text
    }
}

/// Reads an address; `None` if it is of another binding or version.
fn read_interface(value: &Value) -> Option<RemoteInterface> {
    let text = |key: &str| value[key].as_str().filter(|text| !text.is_empty());
    let version = text("protocolVersion").unwrap_or(VERSION);
    let binding = match text("protocolBinding")? {
        "JSONRPC" => RemoteBinding::JsonRpc,
        "HTTP+JSON" => RemoteBinding::HttpJson,
        _ => return None,
    };
    let is_spoken = version == VERSION || version.strip_prefix(VERSION).is_some_and(|patch| patch.starts_with('.'));
    let (url, tenant) = (text("url")?.to_owned(), text("tenant").map(str::to_owned));
    is_spoken.then_some(RemoteInterface { url, binding, tenant })
}

fn read_skill(value: &Value) -> Option<RemoteSkill> {
    let id = value["id"].as_str().filter(|id| !id.trim().is_empty())?;
    let about = value["description"].as_str().or_else(|| value["name"].as_str()).unwrap_or_default();
    Some(RemoteSkill { id: visible_line(id, NAME_BYTES), description: visible_line(about, SKILL_BYTES) })
}

/// Returns what is pinned of a card: all that says what the agent does, and where it is.
pub fn pinned_part(card: &Value) -> Value {
    remove_keys(card, &UNPINNED)
}

/// Returns the bytes that signatures of a card may sign, in canonical form: the card without its signatures, and the same
/// without empty values, which the protocol leaves out of the form that is signed.
pub fn signed_payloads(card: &Value) -> Vec<Vec<u8>> {
    let plain = remove_keys(card, &UNPINNED[..1]);
    let clean = clean_empty(&plain).unwrap_or_else(|| Value::Object(Map::new()));
    let mut payloads = vec![canonical(&clean)];
    if clean != plain {
        payloads.push(canonical(&plain));
    }
    payloads
}

fn remove_keys(card: &Value, keys: &[&str]) -> Value {
    let Value::Object(map) = card else { return card.clone() };
    let kept = map.iter().filter(|(key, _)| !keys.contains(&key.as_str()));
    Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// Returns a value without texts, lists and maps that are empty, or hold nothing else; `None` if it is one.
fn clean_empty(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) => (!text.is_empty()).then(|| value.clone()),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().filter_map(clean_empty).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(map) => {
            let map: Map<_, _> =
                map.iter().filter_map(|(key, value)| Some((key.clone(), clean_empty(value)?))).collect();
            (!map.is_empty()).then_some(Value::Object(map))
        }
        Value::Bool(_) | Value::Number(_) => Some(value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn card(interfaces: &Value) -> Value {
        json!({
            "name": "Clerk", "description": "Answers.\nAlways.", "version": "7",
            "supportedInterfaces": interfaces,
            "capabilities": {"streaming": false},
            "skills": [{"id": "orders", "name": "Orders", "description": "Finds orders."}, {"id": ""}, {"name": "x"}],
        })
    }

    fn interface(binding: &str, version: &str) -> Value {
        json!({"url": format!("https://h/{binding}"), "protocolBinding": binding, "protocolVersion": version})
    }

    #[test]
    fn addresses_that_are_spoken_are_read_in_order() {
        let all = json!([
            interface("GRPC", "1.0"),
            interface("HTTP+JSON", "1.0.1"),
            interface("JSONRPC", "0.3"),
            interface("JSONRPC", "1.0"),
            interface("JSONRPC", "1.01"),
        ]);
        let found = RemoteCard::read(&card(&all)).unwrap();
        let bindings: Vec<_> = found.interfaces.iter().map(|one| one.binding).collect();
        assert_eq!(bindings, [RemoteBinding::HttpJson, RemoteBinding::JsonRpc]);
        assert_eq!(found.skills.len(), 1);
        let text = found.tool_description(|_| true);
        assert!(text.contains("`Clerk`") && text.contains("orders: Finds orders.") && !text.contains('\n'), "{text}");
        assert!(!found.tool_description(|_| false).contains("orders"));
    }

    #[test]
    fn a_card_that_can_not_be_used_says_why() {
        let mut extended = card(&json!([interface("JSONRPC", "1.0")]));
        extended["capabilities"]["extensions"] = json!([{"uri": "urn:x", "required": true}]);
        for (value, part) in [
            (json!("card"), "expected a card as a map"),
            (json!({"name": "a"}), "expected a card"),
            (json!({"name": "a", "url": "https://h", "protocolVersion": "0.3.0"}), "version 0.3.0 of the protocol"),
            (card(&json!([])), "no address for `JSONRPC`"),
            (card(&json!([interface("GRPC", "1.0")])), "it has GRPC 1.0"),
            (extended, "extension urn:x"),
        ] {
            let error = RemoteCard::read(&value).unwrap_err().to_string();
            assert!(error.contains(part), "{value}: {error}");
        }
    }

    #[test]
    fn signatures_are_no_part_of_what_is_signed_or_pinned() {
        let mut signed = card(&json!([interface("JSONRPC", "1.0")]));
        let plain = signed.clone();
        signed["signatures"] = json!([{"protected": "x", "signature": "y"}]);
        assert_eq!(signed_payloads(&signed), signed_payloads(&plain));
        assert_eq!(pinned_part(&signed)["version"], Value::Null);
        assert_eq!(pinned_part(&signed), pinned_part(&plain));
    }

    #[test]
    fn empty_values_are_left_out_of_what_is_signed() {
        let value = json!({"b": {"c": [""], "d": []}, "a": "x", "e": false, "f": [{"g": ""}, 1], "signatures": []});
        let payloads = signed_payloads(&value);
        assert_eq!(payloads[0], br#"{"a":"x","e":false,"f":[1]}"#);
        assert_eq!(payloads.len(), 2);
        assert_eq!(signed_payloads(&json!({"a": "x"})).len(), 1);
    }
}
