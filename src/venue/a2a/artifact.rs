//! Outputs of jobs as artifacts, and assets as files.

use super::has_whole_messages;
use super::reader::TaskReader;
use crate::domain::asset::AssetRecord;
use crate::domain::authority::ResourcePath;
use crate::domain::decode;
use crate::domain::ids::AssetId;
use crate::domain::job::Job;
use crate::domain::media::KEY as ASSET_KEY;
use crate::store::StoreError;
use crate::venue::assets;
use crate::view::a2a::{A2aArtifact, A2aMessage, A2aPart, A2aRole};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// Id of the one artifact of a task.
const OUTPUT: &str = "output";

/// Bytes of a file that is sent in a part; a larger one is sent as a link.
const INLINE_BYTES: usize = 1024 * 1024;

/// Bytes of all files that are sent in one answer; further ones are sent as links. A message of a few kilobytes may
/// refer to one file a hundred times.
const ANSWER_FILE_BYTES: usize = 4 * INLINE_BYTES;

/// Room for files in one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileRoom {
    bytes_left: usize,
}

impl FileRoom {
    /// Returns the room of an answer without files.
    pub(super) const fn of_answer() -> Self {
        Self { bytes_left: ANSWER_FILE_BYTES }
    }

    /// Takes room for a file of this size; `false` if the file is to be a link.
    fn take(&mut self, size: usize) -> bool {
        let is_inline = size <= INLINE_BYTES && size <= self.bytes_left;
        if is_inline {
            self.bytes_left -= size;
        }
        is_inline
    }
}

/// Output of an agent that writes parts itself.
enum OwnOutput {
    /// Parts of the artifact.
    Parts(Vec<A2aPart>),
    /// Parts of a message, which is the answer where nobody needs a task.
    Message(Vec<A2aPart>),
}

/// Reads parts, or a message, that an agent has written: as a value or as a text. `None` if it is neither.
fn own_output(output: &Value) -> Option<OwnOutput> {
    let read;
    let value = match output {
        Value::String(text) if text.trim_start().starts_with('{') => {
            read = decode::lenient_json(text.as_bytes()).ok()?;
            &read
        }
        value => value,
    };
    let map = value.as_object()?;
    let parts = |value: &Value| -> Option<Vec<A2aPart>> {
        let parts: Vec<A2aPart> = decode::into_type(value.get("parts")?.clone()).ok()?;
        (!parts.is_empty() && parts.iter().all(|part| part.contents() == 1)).then_some(parts)
    };
    match (map.get("message"), map.len()) {
        (Some(message), 1) => parts(message).map(OwnOutput::Message),
        (None, 1) => parts(value).map(OwnOutput::Parts),
        (Some(_) | None, _) => None,
    }
}

/// Returns the asset that a value refers to, if it is a reference and nothing else.
pub(super) fn referenced_asset(value: &Value) -> Option<AssetId> {
    let map = value.as_object().filter(|map| map.len() == 1)?;
    AssetId::from_name(map.get(ASSET_KEY)?.as_str()?).ok()
}

impl TaskReader<'_> {
    /// Returns the artifacts of a job: its output, once it is complete.
    pub(super) async fn artifacts(&self, job: &Job, room: &mut FileRoom) -> Result<Vec<A2aArtifact>, StoreError> {
        let output = job.result.as_ref().and_then(|result| result.output.as_ref());
        let Some(output) = output.filter(|_| self.sees_whole(job)) else { return Ok(Vec::new()) };
        let parts = self.output_parts(output, room).await?;
        Ok(vec![A2aArtifact { artifact_id: OUTPUT.to_owned(), name: None, parts, metadata: None }])
    }

    /// Returns the message with which an agent answers where it wants no task; `None` for any other output.
    pub async fn direct_message(&self, job: &Job) -> Result<Option<A2aMessage>, StoreError> {
        let output = job.result.as_ref().and_then(|result| result.output.as_ref());
        let Some(output) = output.filter(|_| self.sees_whole(job) && has_whole_messages(self.agent)) else {
            return Ok(None);
        };
        let Some(OwnOutput::Message(parts)) = own_output(output) else { return Ok(None) };
        Ok(Some(A2aMessage {
            message_id: format!("{}-{OUTPUT}", job.head.id),
            context_id: Some(job.head.session.to_string()),
            task_id: None,
            role: A2aRole::Agent,
            parts: self.resolve_files(parts, &mut FileRoom::of_answer()).await?,
            metadata: None,
            extensions: None,
            reference_task_ids: None,
        }))
    }

    async fn output_parts(&self, output: &Value, room: &mut FileRoom) -> Result<Vec<A2aPart>, StoreError> {
        if has_whole_messages(self.agent)
            && let Some(OwnOutput::Parts(parts) | OwnOutput::Message(parts)) = own_output(output)
        {
            return self.resolve_files(parts, room).await;
        }
        let part = match output {
            Value::String(text) => A2aPart { media_type: Some("text/plain".into()), ..A2aPart::of_text(text.as_str()) },
            value => A2aPart { media_type: Some("application/json".into()), ..A2aPart::of_data(value.clone()) },
        };
        self.resolve_files(vec![part], room).await
    }

    /// Replaces references to assets by files, as far as the reader may read them.
    pub(super) async fn resolve_files(
        &self,
        parts: Vec<A2aPart>,
        room: &mut FileRoom,
    ) -> Result<Vec<A2aPart>, StoreError> {
        let mut resolved = Vec::with_capacity(parts.len());
        for part in parts {
            let asset = part.data.as_ref().and_then(referenced_asset);
            let file = match asset {
                Some(asset) => self.file_part(&asset, &part, room).await?,
                None => None,
            };
            resolved.push(file.unwrap_or(part));
        }
        Ok(resolved)
    }

    /// Returns an asset as a file: its bytes, or a link where there is no room for them. `None` if the reader may not
    /// read it.
    async fn file_part(
        &self,
        id: &AssetId,
        part: &A2aPart,
        room: &mut FileRoom,
    ) -> Result<Option<A2aPart>, StoreError> {
        if self.caller.authority.permits("crud/read", ResourcePath::asset(id)).is_err() {
            return Ok(None);
        }
        let (venue, owner) = (self.venue, &self.caller.owner);
        let Some(record) = assets::get(venue, owner, id).await? else { return Ok(None) };
        let AssetRecord { name, content_type, size, .. } = record;
        let mut file = A2aPart {
            filename: part.filename.clone().or(name),
            media_type: Some(content_type),
            metadata: part.metadata.clone(),
            ..A2aPart::default()
        };
        if room.take(size) {
            let Some(asset) = assets::read_content(venue, owner, id).await? else { return Ok(None) };
            file.raw = Some(BASE64_STANDARD.encode(asset.bytes));
            return Ok(Some(file));
        }
        let Some(url) = self.url else { return Ok(None) };
        file.url = Some(format!("{}/api/v1/assets/0x{id}/content", url.trim_end_matches('/')));
        Ok(Some(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_agent_may_write_parts_or_a_message_itself() {
        let kind = |output: Value| match own_output(&output) {
            None => "value",
            Some(OwnOutput::Parts(_)) => "parts",
            Some(OwnOutput::Message(_)) => "message",
        };
        let parts = json!({"parts": [{"text": "hi"}, {"url": "https://x", "filename": "a.txt"}]});
        for (output, expected) in [
            (parts.clone(), "parts"),
            (parts.to_string().into(), "parts"),
            (json!({"message": parts}), "message"),
            (json!({"message": parts, "more": 1}), "value"),
            (json!({"parts": []}), "value"),
            (json!({"parts": [{"text": "a", "url": "b"}]}), "value"),
            (json!({"parts": [{"filename": "a"}]}), "value"),
            (json!({"message": "hi"}), "value"),
            (json!("{not json"), "value"),
            (json!("hi"), "value"),
            (json!(null), "value"),
        ] {
            assert_eq!(kind(output.clone()), expected, "{output}");
        }
    }

    #[test]
    fn files_beyond_the_room_of_an_answer_are_links() {
        let mut room = FileRoom::of_answer();
        for (size, is_inline) in
            [(INLINE_BYTES + 1, false), (INLINE_BYTES, true), (INLINE_BYTES, true), (INLINE_BYTES, true)]
        {
            assert_eq!(room.take(size), is_inline, "{size}");
        }
        assert!(room.take(INLINE_BYTES - 1) && !room.take(2) && room.take(1) && !room.take(1));
        assert!(room.take(0), "an empty file is no link");
    }

    #[test]
    fn a_reference_to_an_asset_stands_alone() {
        let name = format!("a/{}", "1".repeat(64));
        assert!(referenced_asset(&json!({"$asset": name})).is_some());
        for value in [json!({"$asset": name, "more": 1}), json!({"$asset": "w/x"}), json!({"$asset": 1}), json!(name)] {
            assert_eq!(referenced_asset(&value), None, "{value}");
        }
    }
}
