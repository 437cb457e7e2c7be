//! Captures the sections of a prompt that its calls may hand on, from what the model was shown.

use super::choose::without_group;
use crate::authority::{Authority, ResourcePath};
use crate::context::assemble::AssembledPrompt;
use crate::context::fill::fill;
use crate::context::inputs::{Inputs, ServedEvents};
use crate::context::item::{Absence, HandOffTags, ItemContent, PromptItem, Section, StoredBy};
use crate::event::{Event, Payload};
use crate::limits::HAND_OFF_BYTES;
use crate::origin::{Origin, SourceRead, reads_to_hand_on};
use crate::scope::{DelegateContext, INSTANCE, INSTANCES, ScopedSection, Scopes, check_instance, is_secret};
use serde_json::{Value, json};

/// The sections that the calls of one reply can hand on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sections {
    pub(super) parts: Vec<SectionPart>,
    /// Instances of the turn, in the order of the prompt.
    pub(super) instances: Vec<String>,
}

/// One section, or one instance's part of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SectionPart {
    /// Key of the section.
    pub(super) key: String,
    /// All names by which a call can ask for it.
    pub(super) names: Vec<String>,
    pub(super) instance: Option<String>,
    pub(super) source: Option<String>,
    pub(super) needs: Vec<(String, ResourcePath)>,
    pub(super) received: bool,
    pub(super) under: Option<Authority>,
    /// Sources that were read for it, besides its own source.
    pub(super) reads: Vec<SourceRead>,
    pub(super) content: ItemContent,
}

/// Returns the instances of a turn, each once: those of its entries, its task and its messages. They stand in the
/// schemas of tools, so a name that is too long is ignored, and its sections go with no call.
pub fn instances(items: &[PromptItem], served: &ServedEvents) -> Vec<String> {
    let of_items = items.iter().filter_map(|item| item.tags.instance.clone());
    let task = served.task.iter().flat_map(|task| inputs_of(&task.payload)).filter_map(|(instance, _)| instance);
    let messages = served.messages.iter().filter_map(|(_, event)| instance_name(event_input(event)));
    let mut known: Vec<String> = Vec::new();
    for name in of_items.chain(task).chain(messages) {
        if known.len() < INSTANCES && !known.contains(&name) && check_instance(&name).is_ok() {
            known.push(name);
        }
    }
    known
}

impl Sections {
    /// Captures the sections that the tools of a prompt can hand on.
    pub fn capture(inputs: &Inputs, assembled: &AssembledPrompt) -> Self {
        let scopes = inputs.tools.reaches.iter().filter_map(|reach| reach.scopes.as_ref());
        let wanted: Vec<&String> = scopes.flat_map(Scopes::names).collect();
        let instances = instances(&inputs.items, &inputs.served);
        if wanted.is_empty() {
            return Self { parts: Vec::new(), instances };
        }
        let filled = fill(inputs);
        let (mut own, mut received) = (Vec::new(), Vec::new());
        for item in &filled.items {
            let part = item_part(item);
            if let Some(part) = part.filter(|part| part.names.iter().any(|name| wanted.contains(&name))) {
                if part.received { received.push(part) } else { own.push(part) }
            }
        }
        let others = [transcript(inputs, assembled), pending_part(inputs, assembled)]
            .into_iter()
            .chain(inbox(inputs, assembled));
        own.extend(others.filter(|part| wanted.contains(&&part.key)));
        own.append(&mut received);
        let task = inputs.served.task.iter().flat_map(|task| inputs_of(&task.payload));
        let input = task.map(|(instance, value)| SectionPart::from_turn("input", instance, value));
        own.extend(input.filter(|part| wanted.contains(&&part.key)));
        own.retain(|part| !matches!(&part.content, ItemContent::Value(Value::Array(list)) if list.is_empty()));
        Self { parts: own, instances }
    }
}

impl SectionPart {
    /// Makes a part whose only origin is the turn itself.
    fn from_turn(key: &str, instance: Option<String>, value: Value) -> Self {
        let content = match value {
            Value::String(text) => ItemContent::Text(text),
            value => ItemContent::Value(value),
        };
        let (names, needs) = (vec![key.to_owned()], Vec::new());
        let (source, reads) = (None, Vec::new());
        Self { key: key.to_owned(), names, instance, source, needs, received: false, under: None, reads, content }
    }
}

fn item_part(item: &PromptItem) -> Option<SectionPart> {
    let HandOffTags { instance, kept, needs, under } = &item.tags;
    let (key, received) = match item.section {
        Section::Context | Section::Loads | Section::Resource => {
            let suffix = instance.as_ref().map(|instance| format!("@{instance}")).unwrap_or_default();
            (item.key.strip_suffix(&suffix).unwrap_or(&item.key), false)
        }
        // A missing section of the giver is not passed on.
        Section::Scope if is_empty(item) => return None,
        Section::Scope => (item.key.strip_prefix("scope/")?, true),
        Section::System
        | Section::Tools
        | Section::Map
        | Section::Transcript
        | Section::Pending
        | Section::Inbox
        | Section::Input => return None,
    };
    let mut names = vec![key.to_owned()];
    let kind = (item.section == Section::Context)
        .then(|| without_group(key))
        .filter(|name| ["state", "session", "input"].contains(name));
    let group = match kept {
        Some(StoredBy::Agent) => Some("state"),
        Some(StoredBy::Session) => Some("session"),
        None => None,
    };
    names.extend(kind.into_iter().chain(group).map(str::to_owned));
    let mut content = item.content.clone();
    if item.source.as_deref().is_some_and(is_secret) {
        content = ItemContent::Absent(Absence::Denied, "secrets can't be handed on".into());
    }
    Some(SectionPart {
        key: kind.unwrap_or(key).to_owned(),
        names,
        instance: instance.clone(),
        source: item.source.clone(),
        needs: needs.clone(),
        received,
        under: under.clone(),
        reads: reads_to_hand_on(&item.origin.reads),
        content,
    })
}

fn is_empty(item: &PromptItem) -> bool {
    let is_named = item.label.as_deref().is_some_and(|label| crate::scope::empty::receiver_reason(label).is_some());
    is_named && matches!(item.content, ItemContent::Absent(Absence::Missing, _))
}

/// Captures the conversation before this turn as the prompt shows it.
fn transcript(inputs: &Inputs, assembled: &AssembledPrompt) -> SectionPart {
    let messages = &assembled.request.messages;
    let between: Vec<_> = assembled.conversation.iter().filter_map(|at| messages.get(*at)).collect();
    let under = Some(inputs.frame.authority.clone());
    let calls = inputs.transcript.iter().flat_map(|record| &record.calls);
    let read: Vec<SourceRead> = calls.flat_map(|call| call.reads.iter().flatten().cloned()).collect();
    SectionPart { under, reads: reads_to_hand_on(&read), ..SectionPart::from_turn("transcript", None, json!(between)) }
}

fn is_shown(assembled: &AssembledPrompt, key: &str) -> bool {
    assembled.shown.iter().any(|shown| shown.key == key)
}

fn pending_part(inputs: &Inputs, assembled: &AssembledPrompt) -> SectionPart {
    let shown = inputs.served.results.iter().filter(|(key, _)| is_shown(assembled, key));
    let results = shown.filter_map(|(_, event)| match &event.payload {
        Payload::Result { job, result } => {
            Some(json!({"job": job, "status": result.status, "output": result.output, "error": result.error}))
        }
        Payload::Task { .. } | Payload::Message { .. } | Payload::Decision { .. } => None,
    });
    let read = inputs.served.results.iter().filter(|(key, _)| is_shown(assembled, key));
    let read = read.filter_map(|(_, event)| Some(SourceRead::new(format!("j/{}/output", event.job()?)))).collect();
    let running = inputs.served.pending.iter();
    let running = running.map(|(job, child)| json!({"job": job, "status": "STARTED", "agent": child.agent}));
    SectionPart { reads: read, ..SectionPart::from_turn("pending", None, results.chain(running).collect()) }
}

/// Captures the messages, each as a part of its own.
fn inbox(inputs: &Inputs, assembled: &AssembledPrompt) -> Vec<SectionPart> {
    let shown = inputs.served.messages.iter().filter(|(key, _)| is_shown(assembled, key));
    let part = |(_, event): &(String, Event)| {
        let message = json!({"from": event.caller, "message": without_instance(event_input(event))});
        SectionPart::from_turn("inbox", instance_name(event_input(event)), message)
    };
    shown.map(part).collect()
}

const fn event_input(event: &Event) -> &Value {
    match &event.payload {
        Payload::Task { input, .. } | Payload::Message { input, .. } => input,
        Payload::Result { .. } | Payload::Decision { .. } => &Value::Null,
    }
}

/// Returns the instance that an object names.
fn instance_name(value: &Value) -> Option<String> {
    value.get(INSTANCE).and_then(Value::as_str).map(str::to_owned)
}

fn without_instance(value: &Value) -> Value {
    let mut value = value.clone();
    if instance_name(&value).is_some()
        && let Value::Object(map) = &mut value
    {
        map.shift_remove(INSTANCE);
    }
    value
}

/// Returns the inputs of a task with their instances: one, or if any item of a list names an instance, one for each of
/// these and one for all others together.
fn inputs_of(payload: &Payload) -> Vec<(Option<String>, Value)> {
    let Payload::Task { input, .. } = payload else { return Vec::new() };
    match input {
        Value::Array(list) if list.iter().any(|value| instance_name(value).is_some()) => {
            let (own, mut shared): (Vec<_>, Vec<_>) =
                list.iter().cloned().partition(|value| instance_name(value).is_some());
            let shared = if shared.len() == 1 { shared.pop() } else { Some(shared.into()) };
            let shared = shared.filter(|shared| shared.as_array().is_none_or(|list| !list.is_empty()));
            let own = own.into_iter().map(|value| (instance_name(&value), without_instance(&value)));
            shared.map(|shared| (None, shared)).into_iter().chain(own).collect()
        }
        value => vec![(instance_name(value), without_instance(value))],
    }
}

/// Makes context items of the sections that a job was handed; a revoked section is absent.
pub fn handed_items(handed: &DelegateContext, authority: &Authority) -> Vec<PromptItem> {
    handed.scoped.iter().map(|scoped| handed_item(scoped, authority)).collect()
}

fn handed_item(scoped: &ScopedSection, authority: &Authority) -> PromptItem {
    let ScopedSection { key, source, needs, received: _, under, reads, content, bytes: _, of: _, missing, empty: _ } =
        scoped;
    let content = match (scoped.check_authority(authority), missing, content) {
        (Err(error), _, _) => ItemContent::Absent(Absence::Denied, error.to_string()),
        (Ok(()), Some(reason), _) => ItemContent::Absent(Absence::Missing, reason.clone()),
        (Ok(()), None, Value::String(text)) => ItemContent::Text(text.clone()),
        (Ok(()), None, value) => ItemContent::Value(value.clone()),
    };
    PromptItem {
        section: Section::Scope,
        key: format!("scope/{key}"),
        label: Some(key.clone()),
        source: source.clone(),
        allowed: None,
        asked: Some(HAND_OFF_BYTES),
        priority: Section::Scope.priority(),
        required: false,
        unresolved: Vec::new(),
        tags: HandOffTags { needs: needs.clone(), under: under.clone(), ..HandOffTags::default() },
        origin: Origin { reads: reads.clone(), ..Origin::default() },
        content,
        attachments: Vec::new(),
    }
}
