//! A resource kind that another server provides: each call is a message to it, and each answer is checked before it
//! counts. The server writes at once, under an idempotency key that is a function of the call.

use super::{ProviderSettingsError, ResourceAccess, ResourceCall, ResourceProvider, Tool};
use crate::domain::authority::envelope::AccessMode;
use crate::domain::call::SentMarks;
use crate::domain::context::item::{Absence, ItemContent};
use crate::domain::ids::Owner;
use crate::domain::limits::INPUT_BYTES;
use crate::domain::resource::Ability;
use crate::domain::resource::remote::{
    RemoteOperation, RemoteRequest, answer_items, context_section, message, namespaces_for, refusal_text,
};
use crate::store::StoreError;
use crate::venue::failure::OpError;
use crate::venue::outbound::endpoint::{Endpoint, EndpointAnswer};
use async_trait::async_trait;
use serde_json::{Map, Value, json};

/// Configuration of a kind.
pub struct RemoteSettings {
    /// Name of the kind in agents' configurations.
    pub kind: String,
    /// Description of the kind for models; may be empty.
    pub about: String,
    /// Verbs that the server supports.
    pub verbs: Vec<RemoteOperation>,
    /// Mode of a declaration that names none.
    pub mode: Option<AccessMode>,
}

/// Provider of a kind on another server.
pub struct RemoteProvider {
    settings: RemoteSettings,
    endpoint: Endpoint,
}

impl RemoteProvider {
    /// Makes the provider of a server.
    pub const fn new(settings: RemoteSettings, endpoint: Endpoint) -> Self {
        Self { settings, endpoint }
    }

    async fn ask(&self, asked: &RemoteRequest<'_>, marks: Option<&SentMarks>) -> Result<Value, OpError> {
        let answer = self.endpoint.send(&message(asked), marks).await.map_err(|error| self.describe_failure(error))?;
        self.accept_answer(answer, marks.is_some())
    }

    /// Returns the name of the server, for errors.
    fn name(&self) -> String {
        format!("the provider of the resource kind `{}` at `{}`", self.settings.kind, self.endpoint.host())
    }

    fn describe_failure(&self, error: OpError) -> OpError {
        let (name, kind) = (self.name(), &self.settings.kind);
        let advice = format!("try again later, or tell whoever runs this venue (`resources.kinds.{kind}`)");
        match error {
            OpError::Upstream(text) => {
                OpError::Upstream(format!("{name} gave no answer that can be used: {text}; {advice}"))
            }
            OpError::Timeout(text) => OpError::Timeout(format!("{name} is too slow: {text}; {advice}")),
            OpError::Denied(text) => OpError::Denied(format!("{name} is not called: {text}")),
            OpError::OutcomeUnknown(text) => OpError::OutcomeUnknown(format!("{name}: {text}")),
            other => other,
        }
    }

    /// Returns the body of a successful answer. After a 502 or 504 of a gateway, which got no answer, it is unknown
    /// whether the server behind it has written.
    fn accept_answer(&self, EndpointAnswer { status, body }: EndpointAnswer, writes: bool) -> Result<Value, OpError> {
        if (200..300).contains(&status) {
            return Ok(body);
        }
        let name = self.name();
        let reason = match refusal_text(&body) {
            text if text.is_empty() => "without a reason".to_owned(),
            text => format!("`{text}`"),
        };
        Err(match status {
            400 | 422 => OpError::Invalid(format!("{name} refuses the arguments: {reason}")),
            403 => OpError::Denied(format!("{name} denies it: {reason}")),
            404 | 410 => OpError::NotFound(format!("{name} has no such thing: {reason}")),
            409 | 412 => OpError::Conflict(format!("{name} has another state: {reason}")),
            502 | 504 if writes => OpError::OutcomeUnknown(format!("{name} answered {status} {reason}")),
            _ => OpError::Upstream(format!(
                "{name} answered {status} {reason}; try again later, or tell whoever runs this venue \
                 (`resources.kinds.{}`)",
                self.settings.kind
            )),
        })
    }

    fn unusable_answer(&self, problem: &str) -> OpError {
        OpError::Upstream(format!(
            "{} gave no answer that can be used: {problem}, at most as deep as values may be; tell whoever runs this \
             venue (`resources.kinds.{}`)",
            self.name(),
            self.settings.kind
        ))
    }
}

#[async_trait]
impl ResourceProvider for RemoteProvider {
    fn kind(&self) -> &str {
        &self.settings.kind
    }

    fn about(&self) -> Option<&str> {
        Some(self.settings.about.as_str()).filter(|about| !about.is_empty())
    }

    fn default_mode(&self) -> Option<AccessMode> {
        self.settings.mode
    }

    fn writes_at_once(&self) -> bool {
        true
    }

    fn tools(&self) -> Vec<Tool> {
        let tool = |verb: RemoteOperation| Tool {
            name: verb.as_str().into(),
            description: verb.description().into(),
            input: verb.input(),
            writes: verb.ability() == Ability::Write,
        };
        self.settings.verbs.iter().copied().filter(|verb| verb.is_tool()).map(tool).collect()
    }

    /// The server checks its settings; only `preload` is also read by the venue.
    fn check(&self, _settings: &Map<String, Value>) -> Result<(), ProviderSettingsError> {
        Ok(())
    }

    async fn call(&self, call: &ResourceCall<'_>, tool: &str, arguments: &Value) -> Result<Value, OpError> {
        let verb = RemoteOperation::from_name(tool).filter(|verb| verb.is_tool() && self.settings.verbs.contains(verb));
        let kind = &self.settings.kind;
        let verb = verb.ok_or_else(|| OpError::NotFound(format!("the resource kind `{kind}` has no tool `{tool}`")))?;
        let ResourceAccess { held, settings, resource, workspace, .. } = call.access;
        let namespaces = namespaces_for(held, call.name, verb, arguments["namespace"].as_str())
            .map_err(|error| OpError::Denied(error.to_string()))?;
        for namespace in &namespaces {
            call.note_use(verb.ability(), namespace).await;
        }
        let asked = RemoteRequest {
            verb,
            kind,
            resource,
            owner: workspace.owner(),
            source: Some(&call.source),
            namespaces: &namespaces,
            except: held.revoked_namespaces(),
            settings,
            arguments,
        };
        match verb.ability() {
            Ability::Read => {
                let answer = self.ask(&asked, None).await?;
                answer_items(answer, held, &namespaces).map_err(|problem| self.unusable_answer(&problem.to_string()))
            }
            Ability::Write => {
                let answer = self.ask(&asked, Some(&call.marks)).await?;
                let done = json!({"id": arguments["id"], "namespace": namespaces[0], "answer": answer});
                Ok(done)
            }
        }
    }

    async fn context(&self, access: &ResourceAccess<'_>) -> Result<Option<ItemContent>, StoreError> {
        let off = |key: &str| access.settings.get(key) == Some(&Value::Bool(false));
        if !self.settings.verbs.contains(&RemoteOperation::Context) || off("preload") || off("autoScan") {
            return Ok(None);
        }
        let namespaces = access.held.with_ability(Ability::Read);
        let asked = RemoteRequest {
            verb: RemoteOperation::Context,
            kind: &self.settings.kind,
            resource: access.resource,
            owner: access.workspace.owner(),
            source: None,
            namespaces,
            except: access.held.revoked_namespaces(),
            settings: access.settings,
            arguments: &json!({}),
        };
        let answer = self.ask(&asked, None).await.and_then(|answer| {
            context_section(answer, access.held, namespaces)
                .map_err(|problem| self.unusable_answer(&problem.to_string()))
        });
        Ok(match answer {
            Ok(text) => text.map(|text| ItemContent::from_value(text, INPUT_BYTES)),
            Err(error @ OpError::Denied(_)) => Some(ItemContent::Absent(Absence::Denied, error.to_string())),
            Err(error) => Some(ItemContent::Absent(Absence::Failed, error.to_string())),
        })
    }

    async fn purge(&self, owner: &Owner, namespace: &str, recursive: bool) -> Result<Option<usize>, OpError> {
        if !self.settings.verbs.contains(&RemoteOperation::Purge) {
            return Ok(None);
        }
        let (nothing, namespaces) = (Map::new(), [namespace.to_owned()]);
        let asked = RemoteRequest {
            verb: RemoteOperation::Purge,
            kind: &self.settings.kind,
            resource: "",
            owner,
            source: None,
            namespaces: &namespaces,
            except: &[],
            settings: &nothing,
            arguments: &json!({"recursive": recursive}),
        };
        let answer = self.ask(&asked, None).await?;
        let purged = answer["purged"].as_u64().and_then(|purged| usize::try_from(purged).ok());
        purged.map(Some).ok_or_else(|| self.unusable_answer("expected a map with `purged`, a number"))
    }
}
