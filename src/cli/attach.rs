//! `--attach FILE`: stores files as assets and adds references to the input.

use super::client::{Client, encode};
use super::exit::Failure;
use crate::config::files::read_file;
use crate::domain::ids::AssetId;
use crate::domain::limits::{ATTACHMENT_BYTES, ATTACHMENTS};
use crate::domain::media::{reference, sniff};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Key of the references in an input.
const KEY: &str = "attachments";

/// Stores the files and returns the input with references to them.
pub(crate) async fn attach_files(client: &Client, input: Value, files: &[PathBuf]) -> Result<Value, Failure> {
    if files.len() > ATTACHMENTS {
        return Err(Failure::usage(format!(
            "expected at most {ATTACHMENTS} files after `--attach`, got {}",
            files.len()
        )));
    }
    let mut references = Vec::with_capacity(files.len());
    for file in files {
        references.push(store(client, file).await?);
    }
    add_references(input, references)
}

async fn store(client: &Client, file: &Path) -> Result<Value, Failure> {
    let shown = file.display();
    let bad = |why: String| Failure::usage(format!("file `{shown}` can't be attached: {why}"));
    let bytes = read_file(file, ATTACHMENT_BYTES as u64).map_err(|e| bad(e.to_string()))?;
    let Some(found) = sniff(&bytes, true) else {
        return Err(bad("expected png, jpeg, webp, gif, pdf or text, and its bytes are none of these".into()));
    };
    let asset = AssetId::of_content(&bytes);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let path = format!("assets/{asset}/content?name={}", encode(&name));
    client.put_content(&path, found.media.as_str(), bytes).await?;
    Ok(reference(&asset))
}

/// Adds references to an input: a map gets them as a key, any other input is wrapped in a map with them.
fn add_references(input: Value, references: Vec<Value>) -> Result<Value, Failure> {
    Ok(match input {
        Value::Null => json!({KEY: references}),
        Value::Object(mut map) => {
            if map.contains_key(KEY) {
                return Err(Failure::usage(format!("the input has `{KEY}` already; refer to the assets in it")));
            }
            map.insert(KEY.to_owned(), references.into());
            map.into()
        }
        Value::String(text) => json!({"text": text, KEY: references}),
        other => json!({"input": other, KEY: references}),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_keeps_its_form_beside_references() {
        let check =
            |input: Value, expected: Result<Value, &str>| match (add_references(input, vec![json!("r")]), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(failure), Err(part)) => assert!(failure.text.contains(part), "{failure}"),
                (found, expected) => panic!("got {found:?}, expected {expected:?}"),
            };
        check(json!(null), Ok(json!({"attachments": ["r"]})));
        check(json!("what?"), Ok(json!({"text": "what?", "attachments": ["r"]})));
        check(json!({"id": 7}), Ok(json!({"id": 7, "attachments": ["r"]})));
        check(json!([1]), Ok(json!({"input": [1], "attachments": ["r"]})));
        check(json!({"attachments": []}), Err("has `attachments` already"));
    }
}
