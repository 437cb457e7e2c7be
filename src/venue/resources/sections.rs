//! Sections of resources in a prompt.

use super::ResourceAccess;
use crate::domain::agent::AgentConfig;
use crate::domain::authority::ResourcePath;
use crate::domain::context::item::{Absence, HandOffTags, ItemContent, PromptItem, Section};
use crate::domain::origin::Origin;
use crate::domain::resource::{Ability, HeldNamespaces, NamedResource, prefix};
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::workspace::Workspace;
use futures::future::join_all;

/// Returns the resources' sections of a prompt, one item each; an item without content says why.
pub async fn context_items(
    venue: &Venue,
    config: &AgentConfig,
    held: &HeldNamespaces,
    workspace: &Workspace,
) -> Result<Vec<PromptItem>, StoreError> {
    // Some providers call other servers: all are called at once, so that their times don't add up.
    let contents = config.resources.declarations().map(|declared| async move {
        let content = context_content(venue, declared, held, workspace).await?;
        Ok(content.map(|content| context_item(declared.name, held, content)))
    });
    let items: Result<Vec<_>, StoreError> = join_all(contents).await.into_iter().collect();
    Ok(items?.into_iter().flatten().collect())
}

async fn context_content(
    venue: &Venue,
    declared: NamedResource<'_>,
    held: &HeldNamespaces,
    workspace: &Workspace,
) -> Result<Option<ItemContent>, StoreError> {
    let providers = &venue.catalog.resources;
    let Some(found) = providers.find(declared.kind) else {
        return Ok(Some(ItemContent::Absent(Absence::Failed, providers.no_provider(declared).to_string())));
    };
    if held.with_ability(Ability::Read).is_empty() {
        let reason = "no grant of this request names a resource namespace that can be read";
        return Ok(Some(ItemContent::Absent(Absence::Denied, reason.into())));
    }
    let prefix = prefix(declared.name);
    let (settings, resource) = (&declared.resource.settings, declared.name);
    let access =
        ResourceAccess { workspace, held, settings, resource, prefix: &prefix, key: &venue.key, now: venue.now() };
    found.provider.context(&access).await
}

fn context_item(name: &str, held: &HeldNamespaces, content: ItemContent) -> PromptItem {
    let (source, allowed) = held.ledger_source();
    // An agent that gets the section must be granted all that it was read from.
    let needs = held
        .with_ability(Ability::Read)
        .iter()
        .map(|namespace| ("read".to_owned(), ResourcePath::namespace(namespace)))
        .collect();
    let has = |text: String| Some(text).filter(|text| !text.is_empty());
    PromptItem {
        section: Section::Resource,
        key: format!("resource/{name}"),
        label: Some(name.to_owned()),
        // An item always has a source: fetched content is data, and its placeholders are not filled in.
        source: has(source).or_else(|| Some("r".into())),
        allowed: has(allowed),
        asked: None,
        priority: Section::Resource.priority(),
        required: false,
        unresolved: Vec::new(),
        tags: HandOffTags { needs, ..HandOffTags::default() },
        origin: Origin::default(),
        content,
        attachments: Vec::new(),
    }
}
