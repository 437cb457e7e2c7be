//! The result of a call from a server's answer, with the pictures, sounds and files of it as assets.

use crate::domain::asset::AssetForm;
use crate::domain::authority::ResourcePath;
use crate::domain::lattice::Namespace;
use crate::domain::limits::MCP_MEDIA;
use crate::domain::mcp::definition::ToolDefinition;
use crate::domain::mcp::result::{MediaContent, ToolAnswer, read_answer};
use crate::venue::Venue;
use crate::venue::assets;
use crate::venue::operation::{Caller, OpError, OpOutput};
use serde_json::{Map, Value};

/// For whom a result is read, and of which tool it is.
pub(super) struct ResultReader<'a> {
    pub(super) venue: &'a Venue,
    pub(super) caller: &'a Caller,
    /// Name of the server for errors.
    pub(super) shown: &'a str,
    pub(super) definition: &'a ToolDefinition,
}

impl ResultReader<'_> {
    /// Returns the result for the caller.
    ///
    /// # Errors
    /// The tool has failed, or its answer can't be used.
    pub(super) async fn read(&self, result: Value) -> Result<OpOutput, OpError> {
        let (name, shown) = (&self.definition.name, self.shown);
        match read_answer(result, self.definition) {
            Ok(ToolAnswer::Value { mut value, media }) => {
                let may_store = !media.is_empty() && self.may_store();
                for (at, found) in media.into_iter().enumerate() {
                    if let Some(shown) = show_media(&mut value, &found).filter(|_| may_store) {
                        self.keep_media(shown, found, at).await;
                    }
                }
                Ok(value.into())
            }
            Ok(ToolAnswer::Failure(text)) => Err(OpError::Failed(format!("`{name}` of the {shown} failed: {text}"))),
            Err(error) => Err(OpError::Upstream(format!("`{name}` of the {shown} was called; {error}"))),
        }
    }

    fn may_store(&self) -> bool {
        let assets = ResourcePath::whole_namespace(Namespace::Assets);
        self.caller.authority.permits("asset/store", assets).is_ok()
    }

    /// Stores bytes of the content as an asset, and writes into their item where they are. Each takes a write, so that only
    /// the first ones of a result are stored: `at` counts them.
    async fn keep_media(&self, shown: &mut Map<String, Value>, found: MediaContent, at: usize) {
        if at >= MCP_MEDIA {
            shown.insert("notKept".to_owned(), format!("expected at most {MCP_MEDIA} of a result").into());
            return;
        }
        let MediaContent { mime_type, base64, .. } = found;
        let form = AssetForm { content_base64: Some(base64), content_type: Some(mime_type), ..AssetForm::default() };
        match self.store(form).await {
            KeptBytes::Asset(path) => drop(shown.insert("asset".to_owned(), path.into())),
            // The call was made: an owner without room gets the rest of its result.
            KeptBytes::Lost(why) => drop(shown.insert("notKept".to_owned(), why.into())),
        }
    }

    /// Stores bytes of a result as an asset.
    pub(super) async fn store(&self, form: AssetForm) -> KeptBytes {
        if !self.may_store() {
            return KeptBytes::Lost("`asset/store` is not permitted".to_owned());
        }
        let draft = match form.draft(self.venue.now()) {
            Ok(draft) => draft,
            Err(error) => return KeptBytes::Lost(error.to_string()),
        };
        match assets::put(self.venue, &self.caller.owner, &draft).await {
            Ok((id, ..)) => KeptBytes::Asset(format!("a/{id}")),
            Err(error) => KeptBytes::Lost(error.to_string()),
        }
    }
}

/// What has become of bytes of a result.
pub(super) enum KeptBytes {
    /// They are the asset at this path.
    Asset(String),
    /// They aren't stored, for this reason.
    Lost(String),
}

/// Writes the size of bytes into their item of the content, and returns the item.
fn show_media<'v>(value: &'v mut Value, found: &MediaContent) -> Option<&'v mut Map<String, Value>> {
    let shown = value.get_mut("content")?.get_mut(found.item)?.as_object_mut()?;
    shown.insert("base64Bytes".to_owned(), found.base64.len().into());
    Some(shown)
}
