//! Templates of manifests: `{{path}}` and blocks `{{#if condition}} … {{/if}}`.
//!
//! The renderer is written here because the syntax is that of existing manifests, which no maintained crate without
//! loaders, helpers and loops reads: `minijinja` has another one. Texts that were inserted are never read as templates.

use super::condition::{Condition, ConditionError};
use super::path::{StatePath, get};
use crate::limits::pipeline::PIPELINE_TEXT_BYTES;
use crate::visible::quote_foreign;
use serde_json::{Map, Value};

const OPEN_BLOCK: &str = "{{#if ";
const CLOSE_BLOCK: &str = "{{/if}}";

/// Why a template can't be read or rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepTemplateError {
    /// A block has no end, or an end has no block.
    #[error("expected a `{{{{/if}}}}` for each `{{{{#if …}}}}`, and no other")]
    Unbalanced,
    /// A block is of another kind.
    #[error("`{}`: expected `{{{{#if …}}}}` or `{{{{/if}}}}`; there are no other blocks", quote_foreign(.0))]
    Block(String),
    /// The text between braces is no path.
    #[error("`{{{{{}}}}}` is no path: expected names with dots between them", quote_foreign(.0))]
    Path(String),
    /// The condition of a block is illegal.
    #[error("`{{{{#if …}}}}`: {0}")]
    Condition(#[from] ConditionError),
    /// The rendered values are too long.
    #[error("what is filled in comes to more than {PIPELINE_TEXT_BYTES} bytes")]
    TooLong,
}

/// A piece of a template.
#[derive(Debug, PartialEq)]
enum StepPiece<'t> {
    Text(&'t str),
    /// A placeholder, with its text.
    Value(&'t str, &'t str),
    If(&'t str),
    End,
    /// A tag of another kind, whole.
    Unknown(&'t str),
}

/// Splits a template at its tags. Braces that are never closed are text.
fn pieces(text: &str) -> Vec<StepPiece<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find("{{") {
        let Some(length) = rest[open..].find("}}").map(|end| end + 2) else { break };
        if open > 0 {
            found.push(StepPiece::Text(&rest[..open]));
        }
        let tag = &rest[open..open + length];
        let inner = tag[2..length - 2].trim();
        found.push(match inner {
            "/if" => StepPiece::End,
            _ if inner.starts_with("#if ") => StepPiece::If(inner["#if ".len()..].trim()),
            _ if inner.starts_with(['#', '/']) => StepPiece::Unknown(tag),
            _ => StepPiece::Value(inner, tag),
        });
        rest = &rest[open + length..];
    }
    if !rest.is_empty() {
        found.push(StepPiece::Text(rest));
    }
    found
}

/// Checks a template and returns the paths that it reads.
pub fn check(text: &str) -> Result<Vec<StatePath>, StepTemplateError> {
    let (mut open, mut paths) = (0_usize, Vec::new());
    for piece in pieces(text) {
        match piece {
            StepPiece::Text(_) => {}
            StepPiece::Value(inner, _) => {
                paths.push(StatePath::parse(inner).ok_or_else(|| StepTemplateError::Path(inner.to_owned()))?);
            }
            StepPiece::If(condition) => {
                open += 1;
                paths.extend(Condition::parse_block(condition)?.paths().cloned());
            }
            StepPiece::End => open = open.checked_sub(1).ok_or(StepTemplateError::Unbalanced)?,
            StepPiece::Unknown(tag) => return Err(StepTemplateError::Block(tag.to_owned())),
        }
    }
    if open > 0 { Err(StepTemplateError::Unbalanced) } else { Ok(paths) }
}

/// Whether a text has blocks.
pub fn has_blocks(text: &str) -> bool {
    text.contains(OPEN_BLOCK) || text.contains(CLOSE_BLOCK)
}

/// Checks the blocks of a text whose other placeholders are filled in elsewhere, and returns the paths that their
/// conditions read.
pub fn check_blocks(text: &str) -> Result<Vec<StatePath>, StepTemplateError> {
    let (mut open, mut paths) = (0_usize, Vec::new());
    for piece in pieces(text) {
        match piece {
            StepPiece::If(condition) => {
                open += 1;
                paths.extend(Condition::parse_block(condition)?.paths().cloned());
            }
            StepPiece::End => open = open.checked_sub(1).ok_or(StepTemplateError::Unbalanced)?,
            StepPiece::Text(_) | StepPiece::Value(..) | StepPiece::Unknown(_) => {}
        }
    }
    if open > 0 { Err(StepTemplateError::Unbalanced) } else { Ok(paths) }
}

/// Returns a text without the blocks whose conditions don't hold; placeholders stay. A text whose blocks are illegal
/// stays as it is.
pub fn resolve_blocks(text: &str, values: &Map<String, Value>) -> String {
    if !has_blocks(text) || check_blocks(text).is_err() {
        return text.to_owned();
    }
    let keep = |piece: &StepPiece<'_>, out: &mut String| match piece {
        StepPiece::Text(text) | StepPiece::Value(_, text) | StepPiece::Unknown(text) => out.push_str(text),
        StepPiece::If(_) | StepPiece::End => {}
    };
    let mut out = String::with_capacity(text.len());
    for piece in shown_pieces(text, values) {
        keep(&piece, &mut out);
    }
    out
}

/// Returns the pieces outside of blocks whose conditions don't hold.
fn shown_pieces<'t>(text: &'t str, values: &Map<String, Value>) -> Vec<StepPiece<'t>> {
    let mut blocks: Vec<bool> = Vec::new();
    let mut shown = Vec::new();
    for piece in pieces(text) {
        let is_shown = blocks.last().copied().unwrap_or(true);
        match piece {
            StepPiece::If(condition) => {
                blocks.push(is_shown && Condition::parse_block(condition).is_ok_and(|it| it.is_met(values)));
            }
            StepPiece::End => {
                blocks.pop();
            }
            piece if is_shown => shown.push(piece),
            StepPiece::Text(_) | StepPiece::Value(..) | StepPiece::Unknown(_) => {}
        }
    }
    shown
}

/// Renders templates with the values of a State; everything that one renderer fills in counts against one limit.
#[derive(Debug)]
pub struct StepRenderer<'v> {
    values: &'v Map<String, Value>,
    /// Bytes that may still be filled in.
    left: usize,
    /// Placeholders of rendered texts that lead to no value, each once; a null is one.
    missed: Vec<String>,
}

impl<'v> StepRenderer<'v> {
    /// Makes a renderer of these values.
    pub const fn new(values: &'v Map<String, Value>) -> Self {
        Self { values, left: PIPELINE_TEXT_BYTES, missed: Vec::new() }
    }

    /// Returns the placeholders of the rendered texts that lead to no value, each once.
    pub fn into_missed(self) -> Vec<String> {
        self.missed
    }

    /// Renders a text. Null is nothing, a text is itself, any other value is its JSON.
    pub fn render(&mut self, template: &str) -> Result<String, StepTemplateError> {
        let mut out = String::with_capacity(template.len());
        for piece in shown_pieces(template, self.values) {
            match piece {
                StepPiece::Text(text) | StepPiece::Unknown(text) => out.push_str(text),
                StepPiece::Value(inner, tag) => match StatePath::parse(inner) {
                    None => out.push_str(tag),
                    Some(path) => match get(self.values, &path) {
                        None => self.note_missed(&path),
                        Some(Value::Null) => {}
                        Some(Value::String(text)) => self.fill(&mut out, text)?,
                        Some(value) => self.fill(&mut out, &value.to_string())?,
                    },
                },
                StepPiece::If(_) | StepPiece::End => {}
            }
        }
        Ok(out)
    }

    /// Maps a value: a text that is one placeholder becomes its value, any other text is rendered; lists and maps are
    /// mapped part by part.
    pub fn map(&mut self, template: &Value) -> Result<Value, StepTemplateError> {
        match template {
            Value::String(text) => match whole_path(text) {
                Some(path) => {
                    let value = get(self.values, &path).cloned().unwrap_or(Value::Null);
                    let bytes = value.as_str().map_or_else(|| value.to_string().len(), str::len);
                    self.take(bytes)?;
                    Ok(value)
                }
                None => Ok(Value::String(self.render(text)?)),
            },
            Value::Array(items) => items.iter().map(|item| self.map(item)).collect(),
            Value::Object(map) => Ok(Value::Object(self.map_all(map)?)),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(template.clone()),
        }
    }

    /// Maps each value of a map.
    pub fn map_all(&mut self, map: &Map<String, Value>) -> Result<Map<String, Value>, StepTemplateError> {
        map.iter().map(|(key, value)| Ok((key.clone(), self.map(value)?))).collect()
    }

    /// Records a path without a value. Below a null there is nothing to miss.
    fn note_missed(&mut self, path: &StatePath) {
        let path_text = path.to_string();
        let is_null = self.values.get(path.head()).is_some_and(Value::is_null);
        if !is_null && !self.missed.contains(&path_text) {
            self.missed.push(path_text);
        }
    }

    fn fill(&mut self, out: &mut String, text: &str) -> Result<(), StepTemplateError> {
        self.take(text.len())?;
        out.push_str(text);
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<(), StepTemplateError> {
        self.left = self.left.checked_sub(bytes).ok_or(StepTemplateError::TooLong)?;
        Ok(())
    }
}

/// Returns the path of a text that is one placeholder and nothing else.
fn whole_path(text: &str) -> Option<StatePath> {
    let inner = text.strip_prefix("{{")?.strip_suffix("}}")?;
    StatePath::parse(inner)
}

/// Checks all templates of a value and returns the paths that they read.
pub fn check_all(template: &Value) -> Result<Vec<StatePath>, StepTemplateError> {
    match template {
        Value::String(text) => check(text),
        Value::Array(items) => items.iter().map(check_all).collect::<Result<Vec<_>, _>>().map(|all| all.concat()),
        Value::Object(map) => map.values().map(check_all).collect::<Result<Vec<_>, _>>().map(|all| all.concat()),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn values() -> Map<String, Value> {
        let values = json!({
            "topic": "bees", "none": null, "n": 3, "plan": {"steps": ["a", "b"]}, "sly": "{{topic}} {{#if topic}}",
            "feedback": "shorter", "language": "de"
        });
        values.as_object().unwrap().clone()
    }

    #[test]
    fn texts_are_rendered_with_values_and_blocks() {
        for (template, expected) in [
            ("About {{topic}}, {{ n }} times", "About bees, 3 times"),
            ("{{none}}{{missing}}{{topic.deep}}|", "|"),
            ("{{plan}} {{plan.steps.1}}", "{\"steps\":[\"a\",\"b\"]} b"),
            ("{{sly}}", "{{topic}} {{#if topic}}"),
            ("a{{#if feedback}} b {{feedback}}{{/if}} c", "a b shorter c"),
            ("a{{#if none}} b {{feedback}}{{/if}} c", "a c"),
            ("{{#if topic}}x{{#if none}}y{{/if}}z{{/if}}", "xz"),
            ("{{#if none}}x{{#if topic}}y{{/if}}z{{/if}}|", "|"),
            ("{{#if language != en}}In {{language}}.{{/if}}", "In de."),
            ("{{#if language == en}}In {{language}}.{{/if}}", ""),
            ("{{ a b }} {{", "{{ a b }} {{"),
            ("plain }} text", "plain }} text"),
        ] {
            assert_eq!(StepRenderer::new(&values()).render(template).unwrap(), expected, "{template}");
        }
    }

    #[test]
    fn placeholders_without_a_value_are_recorded() {
        for (template, expected) in [
            ("{{topic}} {{none}} {{none.deep}} {{plan.steps.0}}", vec![]),
            ("{{topc}} {{topic}} {{topc}} {{plan.step}} {{topic.deep}}", vec!["topc", "plan.step", "topic.deep"]),
            ("{{#if topc}}{{toopic}}{{/if}}{{#if topic}}{{n.x}}{{/if}}", vec!["n.x"]),
        ] {
            let values = values();
            let mut renderer = StepRenderer::new(&values);
            renderer.render(template).unwrap();
            assert_eq!(renderer.into_missed(), expected, "{template}");
        }
    }

    #[test]
    fn a_placeholder_alone_keeps_its_type() {
        let template = json!({
            "plan": "{{plan}}", "n": "{{ n }}", "text": "n={{n}}", "gone": "{{missing}}", "list": ["{{topic}}", 5], "flag": true
        });
        let expected = json!({
            "plan": {"steps": ["a", "b"]}, "n": 3, "text": "n=3", "gone": null, "list": ["bees", 5], "flag": true
        });
        assert_eq!(StepRenderer::new(&values()).map(&template), Ok(expected));
    }

    #[test]
    fn blocks_alone_are_resolved_and_placeholders_stay() {
        for (text, expected) in [
            ("Write. {{#if feedback}}Mind {{feedback}}.{{/if}}", "Write. Mind {{feedback}}."),
            ("Write.{{#if none}} Mind {{feedback}}.{{/if}}", "Write."),
            ("{{#each x}}{{#if none}}a{{/if}}", "{{#each x}}"),
            ("{{#if none}} never closed", "{{#if none}} never closed"),
        ] {
            assert_eq!(resolve_blocks(text, &values()), expected, "{text}");
        }
    }

    #[test]
    fn illegal_templates_are_refused() {
        for (template, expected) in [
            ("{{#if a}}", "expected a `{{/if}}` for each"),
            ("{{/if}}", "expected a `{{/if}}` for each"),
            ("{{#each a}}", "there are no other blocks"),
            ("{{a + b}}", "`{{a + b}}` is no path"),
            ("{{}}", "is no path"),
            ("{{#if a b}}{{/if}}", "is no path"),
        ] {
            let error = check(template).unwrap_err().to_string();
            assert!(error.contains(expected), "{template}: {error}");
        }
        let heads: Vec<_> = check_all(&json!({"a": ["{{x.y}}", {"b": "{{#if z == 1}}{{w}}{{/if}}"}], "c": 1})).unwrap();
        assert_eq!(heads.iter().map(StatePath::head).collect::<Vec<_>>(), ["x", "z", "w"]);
    }

    #[test]
    fn what_is_filled_in_is_bounded() {
        let values = json!({"big": "x".repeat(PIPELINE_TEXT_BYTES / 2), "list": ["y".repeat(PIPELINE_TEXT_BYTES)]});
        let values = values.as_object().unwrap();
        assert!(StepRenderer::new(values).render("{{big}}{{big}}").is_ok());
        assert_eq!(StepRenderer::new(values).render("{{big}}{{big}}{{big}}"), Err(StepTemplateError::TooLong));
        assert_eq!(StepRenderer::new(values).map(&json!({"a": "{{list}}"})), Err(StepTemplateError::TooLong));
        let often = json!({"a": "{{big}}", "b": ["{{big}}", "{{big}}"]});
        assert_eq!(StepRenderer::new(values).map(&often), Err(StepTemplateError::TooLong));
    }
}
