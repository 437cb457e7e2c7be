//! `a2a` of an agent: whether other programs reach it by the Agent2Agent protocol, and what its card says.

use serde::{Deserialize, Serialize};

/// Skills of one card at most: a card is read before every first call.
const SKILLS: usize = 50;

/// Bytes of one text of a card at most.
const TEXT_BYTES: usize = 4_096;

/// Tags, or examples, of one skill at most.
const WORDS: usize = 50;

/// Publication of an agent by the Agent2Agent protocol; an agent without it has no card and takes no messages there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct A2aSettings {
    /// Name on the card; absent = the agent's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Skills on the card; empty = one skill, which is the agent's description.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<A2aSkill>,
    /// Whether the agent reads whole messages as JSON, and gives parts and messages as its output. Otherwise it reads
    /// and gives texts and values.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole_messages: bool,
}

/// A skill on the card of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct A2aSkill {
    /// Name for programs.
    pub id: String,
    /// Name for people; absent = the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Description for people and models.
    pub description: String,
    /// Words by which the skill is found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Requests that the skill would answer, as examples for people and models.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// Rule that the settings of a card break.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum A2aSettingsError {
    /// There are too many skills.
    #[error("`a2a.skills`: expected at most {SKILLS}, got {found}")]
    Skills {
        /// Number of skills.
        found: usize,
    },
    /// Two skills have one id.
    #[error("`a2a.skills[{at}].id`: `{id}` is taken by another skill")]
    TakenId {
        /// Index of the later skill.
        at: usize,
        /// Id of both skills.
        id: String,
    },
    /// A text is empty or too long.
    #[error("`{place}`: expected 1 to {TEXT_BYTES} bytes, got {bytes}")]
    Text {
        /// Place of the text in the configuration.
        place: String,
        /// Bytes of the text.
        bytes: usize,
    },
    /// A skill has too many tags or examples.
    #[error("`{place}`: expected at most {WORDS}, got {found}")]
    Words {
        /// Place of the list in the configuration.
        place: String,
        /// Number of its texts.
        found: usize,
    },
}

impl A2aSettings {
    /// Checks the texts of the card and their number.
    pub(super) fn check(&self) -> Result<(), A2aSettingsError> {
        if let Some(name) = &self.name {
            check_text("a2a.name", name)?;
        }
        if self.skills.len() > SKILLS {
            return Err(A2aSettingsError::Skills { found: self.skills.len() });
        }
        for (at, skill) in self.skills.iter().enumerate() {
            if self.skills[..at].iter().any(|other| other.id == skill.id) {
                return Err(A2aSettingsError::TakenId { at, id: skill.id.clone() });
            }
            skill.check(&format!("a2a.skills[{at}]"))?;
        }
        Ok(())
    }
}

impl A2aSkill {
    fn check(&self, place: &str) -> Result<(), A2aSettingsError> {
        check_text(&format!("{place}.id"), &self.id)?;
        check_text(&format!("{place}.description"), &self.description)?;
        if let Some(name) = &self.name {
            check_text(&format!("{place}.name"), name)?;
        }
        for (key, texts) in [("tags", &self.tags), ("examples", &self.examples)] {
            let place = format!("{place}.{key}");
            if texts.len() > WORDS {
                return Err(A2aSettingsError::Words { place, found: texts.len() });
            }
            texts.iter().try_for_each(|text| check_text(&place, text))?;
        }
        Ok(())
    }
}

fn check_text(place: &str, text: &str) -> Result<(), A2aSettingsError> {
    if (1..=TEXT_BYTES).contains(&text.len()) {
        return Ok(());
    }
    Err(A2aSettingsError::Text { place: place.to_owned(), bytes: text.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(settings: Value) -> Result<(), String> {
        let settings: A2aSettings = serde_json::from_value(settings).map_err(|error| error.to_string())?;
        settings.check().map_err(|error| error.to_string())
    }

    #[test]
    fn a_card_has_unique_skills_with_short_texts() {
        let skill = |id: &str| json!({"id": id, "description": "does it"});
        for (settings, error) in [
            (json!({}), ""),
            (json!({"name": "Clerk", "wholeMessages": true, "skills": [skill("a"), skill("b")]}), ""),
            (json!({"name": ""}), "`a2a.name`: expected 1 to 4096 bytes, got 0"),
            (json!({"skills": [skill("a"), skill("a")]}), "`a2a.skills[1].id`: `a` is taken by another skill"),
            (json!({"skills": vec![skill("a"); 51]}), "`a2a.skills`: expected at most 50, got 51"),
            (json!({"skills": [{"id": "a", "description": "x".repeat(5_000)}]}), "got 5000"),
            (json!({"skills": [{"id": "a", "description": "b", "tags": vec!["t"; 51]}]}), "`a2a.skills[0].tags`"),
            (json!({"skills": [{"id": "a", "description": "b", "examples": [""]}]}), "`a2a.skills[0].examples`"),
            (json!({"skill": []}), "unknown field `skill`"),
        ] {
            let found = check(settings.clone()).err().unwrap_or_default();
            assert!(found.contains(error) && found.is_empty() == error.is_empty(), "{settings}: {found}");
        }
    }
}
