//! Seam 4, `Operation`: what agents and callers can do, by catalog path.
//!
//! An operation is the struct of its arguments, with what it needs and its effect; [`dispatch`] checks all of that in
//! one place before any operation runs. The operations themselves are in [`crate::ops`]; others are
//! [published](Publication) while the process runs.
//!
//! ```text
//! arguments ─▶ validated by the schema ─▶ parsed, once ─▶ needs permitted ─▶ secrets filled in ─▶ run
//! ```

mod catalog;
mod copies;
pub mod dispatch;
mod fill;
mod marks;
pub mod offers;
pub mod pin;
mod publication_error;
mod published;
mod reads;
mod schema;
mod sources;
mod validators;

pub use crate::venue::failure::OpError;
pub use catalog::{
    Catalog, CatalogView, JobCalls, PublicationKey, RegisteredOperation, RemoteCalls, Spec, StaleOperationError,
    operation,
};
pub(crate) use fill::fill_references;
pub use marks::turn_root;
pub use publication_error::{PublicationError, PublicationRule};
pub use published::{Publication, RuntimeCall, RuntimeOperation, ViewOperation, check_runtime_operation};
pub use reads::{READ, Reads};

use crate::domain::authority::envelope::Envelope;
use crate::domain::authority::trail::{MakerAuthority, Trail};
use crate::domain::authority::{Authority, Capability, ResourcePath};
use crate::domain::call::ReplyStart;
use crate::domain::event::Mandate;
use crate::domain::ids::{EventId, JobId, Owner, VenueIdSubject, sha256_hex};
use crate::domain::invocation::OperationCaller;
use crate::domain::job::Parent;
use crate::domain::limits::OPERATION_TIME;
use crate::domain::principal::Principal;
use crate::domain::reader::JobReader;
use crate::domain::scope::ScopedSection;
use crate::domain::secret::Destination;
use crate::store::Lease;
use crate::venue::Venue;
use crate::venue::workspace::Workspace;
use crate::view;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

/// Hexadecimal digits of an `Idempotency-Key`: 128 bits.
const IDEMPOTENCY_KEY_DIGITS: usize = 32;

/// Effect of an operation on the world, which decides what may happen after a crash.
///
/// It also decides what happens after a standstill, when the turn's lease has gone to another worker that makes the
/// same calls again. Buffered writes are fenced by the commit. An intent without an outcome is unknown, whether the
/// call happens late or never. After an immediate write the turn checks its lease before it continues, and a document
/// is changed only if it is as this call has read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// No effect: the operation is run again.
    Read,
    /// Writes are kept in the turn until its commit: the operation is run again.
    Buffered,
    /// Written at once under an id that is a function of the turn: running it again changes nothing.
    Idempotent,
    /// The operation must not be repeated: the intent is recorded before it. An intent without an outcome is
    /// `outcome_unknown`, as is a request that left and got no complete answer.
    Once,
}

/// A capability that a call needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Ability, e.g. `crud/read`.
    pub ability: &'static str,
    /// Resource of the ability.
    pub resource: ResourcePath,
}

impl Need {
    /// Makes the need of an ability on a resource.
    pub fn new(ability: &'static str, resource: impl Into<ResourcePath>) -> Self {
        Self { ability, resource: resource.into() }
    }

    /// Returns this one need, for [`Operation::needs`].
    pub fn only(ability: &'static str, resource: impl Into<ResourcePath>) -> Result<Vec<Self>, OpError> {
        Ok(vec![Self::new(ability, resource)])
    }

    /// Returns no needs, for [`Operation::needs`].
    pub fn none() -> Result<Vec<Self>, OpError> {
        Ok(Vec::new())
    }
}

/// Identity and authority of a caller.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Owner whose data the call is about.
    pub owner: Owner,
    /// Name for records: the owner, or `agent:<id>`.
    pub name: String,
    /// Authority of the caller.
    pub authority: Authority,
    /// Whether the caller may also write what users can't, and act for other owners.
    pub operator: bool,
    /// Envelope of the request that the caller acts for: ids of grants, claims, modes.
    pub envelope: Envelope,
    /// Principal whose request ids the caller gives.
    pub principal: Principal,
}

impl Caller {
    /// Makes a caller who acts for no other request.
    pub fn new(owner: Owner, name: String, authority: Authority) -> Self {
        Self { owner, name, authority, operator: false, envelope: Envelope::default(), principal: Principal::ANYBODY }
    }

    /// Returns the caller as it is kept with an operation that runs later; `token_owner` is the owner that its token names.
    pub fn asker(&self, token_owner: Option<&Owner>) -> OperationCaller {
        let Self { owner: _, name, authority, operator, envelope, principal } = self.clone();
        OperationCaller { name, operator, authority, envelope, principal, token_owner: token_owner.cloned() }
    }

    /// Returns the envelope of a request of this caller, who is no turn.
    pub fn request_envelope(&self) -> Envelope {
        let mut envelope = self.envelope.clone();
        envelope.bound = envelope.bound.intersect(&self.authority).without_home();
        envelope.holders.push(self.name.clone());
        envelope
    }

    /// Returns the authority that decides what the caller may read of what others said and did: operators read
    /// everything.
    pub fn reading_authority(&self) -> Cow<'_, Authority> {
        if self.operator { Cow::Owned(Authority::without_limits()) } else { Cow::Borrowed(&self.authority) }
    }

    /// Returns the caller as a reader of jobs.
    pub fn reader(&self) -> JobReader {
        let mark = self.principal.mark().map(str::to_owned);
        JobReader { authority: self.authority.clone(), mark, operator: self.operator }
    }

    /// Whether the caller may read `place`, where a thing is listed, and so may know that the thing exists.
    pub fn may_see(&self, place: ResourcePath) -> bool {
        self.reading_authority().permits("crud/read", place).is_ok()
    }

    /// Returns the refusal of what the caller may not do to a thing. A caller who may not [see](Self::may_see) it at
    /// `place` is answered as if it didn't exist.
    pub fn hide_unseen(&self, denied: OpError, place: ResourcePath, missing: impl FnOnce() -> OpError) -> OpError {
        if self.may_see(place) { denied } else { missing() }
    }

    /// Returns the holders and grants under which the caller acts.
    pub fn trail(&self) -> Trail {
        let mut trail = self.envelope.trail();
        trail.holders.push(self.name.clone());
        trail.grants.extend(self.authority.home().job.as_ref().map(ToString::to_string));
        trail
    }

    /// Whether the caller is an agent, not a person or a service: the name of an owner contains a slash, that of an
    /// agent doesn't.
    pub fn is_agent(&self) -> bool {
        self.name.starts_with("agent:") && !self.name.contains('/')
    }
}

impl From<&Caller> for MakerAuthority {
    fn from(caller: &Caller) -> Self {
        Self { authority: caller.authority.clone(), trail: caller.trail() }
    }
}

/// Origin of a call.
#[derive(Debug, Clone)]
pub enum Site<'a> {
    /// A tool call of a running turn.
    Turn(TurnSite<'a>),
    /// A caller outside turns; `key` makes a submission idempotent.
    Api {
        /// Request id that the caller chose.
        key: Option<EventId>,
        /// Job of an operation that the caller has invoked.
        job: Option<JobId>,
    },
}

/// Origin of a tool call of a running turn.
#[derive(Debug, Clone)]
pub struct TurnSite<'a> {
    /// Lease of the turn, whose epoch fences effects.
    pub lease: &'a Lease,
    /// Number of the turn.
    pub turn: u64,
    /// Index of the call in its reply.
    pub call: u32,
    /// Instance that the call is about.
    pub instance: Option<&'a str>,
    /// When the turn of the reply began.
    pub start: ReplyStart,
    /// Sections of the turn's context that go with the call: a child job gets them as its own.
    pub handed: &'a [ScopedSection],
    /// Mandate of the request that the turn serves.
    pub mandate: &'a Mandate,
    /// Parent of a child job that the call starts.
    pub parent: &'a Parent,
    /// Children that the session waits for, with those that earlier calls of the reply start.
    pub children: usize,
    /// Children that the session's run has started, with those that earlier calls of the reply start.
    pub run_children: usize,
    /// Most that the agent may delegate; `None` is its own authority.
    pub delegable: Option<&'a [Capability]>,
    /// Longest time that the agent allows for one call; `None` is the venue's limit.
    pub time: Option<Duration>,
    /// Whether the agent has bound arguments, whose values must not be read by their paths.
    pub hides_values: bool,
    /// Whether the calls are steps of a pipeline, which has limits of its own.
    pub is_pipeline: bool,
}

impl TurnSite<'_> {
    /// Returns the place of the call, from which ids of what it sends are derived.
    pub fn id_of_call(&self) -> VenueIdSubject<'_> {
        let Self { lease, turn, call, instance, start, .. } = *self;
        let (owner, session, start) = (&lease.owner, &lease.session, start.time_in_ids());
        VenueIdSubject::Call { owner, session, turn, call, instance, start }
    }
}

/// What an operation may use while it runs.
#[derive(Clone)]
pub struct Invocation<'a> {
    /// The name by which the operation was called: of a tool, or a path as it was written. Denials contain it.
    pub named: &'a str,
    /// Shared parts of the process.
    pub venue: &'a Venue,
    /// The operations that the call, and what it runs, may name.
    pub catalog: &'a CatalogView,
    /// Identity and authority of the caller.
    pub caller: &'a Caller,
    /// The owner's tree as the caller sees it.
    pub workspace: &'a Workspace,
    /// Sections of the caller's context that go with the call, by key; no part of the arguments.
    pub scoped: &'a Map<String, Value>,
    /// Origin of the call.
    pub site: Site<'a>,
    /// Record of what the call reads.
    pub reads: &'a Reads,
    /// Whether the result becomes a piece of a prompt. Such a call makes no prompt itself: prompts that show each other
    /// would never end.
    pub fills_prompt: bool,
}

impl Invocation<'_> {
    /// Returns how long the operation may run.
    pub fn time_limit(&self) -> Duration {
        match &self.site {
            Site::Turn(TurnSite { time: Some(time), .. }) => OPERATION_TIME.min(*time),
            Site::Turn(_) | Site::Api { .. } => OPERATION_TIME,
        }
    }

    /// Returns the key by which another server recognises a repeated call: the same for the same call of a turn or the
    /// same run of an invoked operation, and a hash that discloses neither. `None` if a run has no id.
    pub fn idempotency_key(&self) -> Option<String> {
        let owner = &self.caller.owner;
        let place = match &self.site {
            Site::Turn(site) => site.id_of_call(),
            Site::Api { key, .. } => VenueIdSubject::Operation { owner, key: key.as_ref()? },
        };
        let id = EventId::of_venue(&self.venue.key, place);
        Some(sha256_hex(format!("idempotency-key {id}").as_bytes())[..IDEMPOTENCY_KEY_DIGITS].to_owned())
    }

    /// Checks that the caller may do this.
    pub fn permit(&self, ability: &str, resource: impl Into<ResourcePath>) -> Result<(), OpError> {
        let permitted = self.caller.authority.permits(ability, resource);
        permitted.map_err(|denied| OpError::Denied(denied.model_text(self.named)))
    }

    /// Refuses agents, whatever they may do: the operation is for `whom`.
    pub fn refuse_agents<T: Operation>(&self, whom: &str) -> Result<(), OpError> {
        if self.caller.is_agent() || matches!(self.site, Site::Turn(_)) {
            return Err(OpError::Denied(format!("`{}` is for {whom}; no agent may call it", T::PATH)));
        }
        Ok(())
    }

    /// Refuses all but operators; `why` is appended to the error.
    pub fn require_operator<T: Operation>(&self, why: &str) -> Result<(), OpError> {
        if self.caller.is_agent() || matches!(self.site, Site::Turn(_)) || !self.caller.operator {
            return Err(OpError::Denied(format!("`{}` is for operators alone{why}", T::PATH)));
        }
        Ok(())
    }
}

/// Sections of a call that gets none.
pub static NO_SECTIONS: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// Result of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct OpOutput {
    /// Value of the result.
    pub value: Value,
    /// A child job that is still running: its result arrives as an event.
    pub started: Option<JobId>,
}

impl OpOutput {
    /// Makes the result of an answer of [`crate::view`].
    pub fn of(view: &impl Serialize) -> Self {
        view::to_json(view).into()
    }
}

impl From<Value> for OpOutput {
    fn from(value: Value) -> Self {
        Self { value, started: None }
    }
}

/// One operation: the struct of its arguments. Its doc comment says what it does, and those of its fields what each
/// argument is, to models and people. Its schema is generated from them.
pub trait Operation: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// Catalog path, `v/ops/<group>/<name>`.
    const PATH: &'static str;
    /// Effect of the operation, which decides whether it may be repeated.
    const EFFECT: Effect;
    /// Whether a call does something with the sections of its caller's context. To any other operation none are handed.
    const TAKES_SECTIONS: bool = false;

    /// Returns the capabilities that the call needs.
    fn needs(&self) -> Result<Vec<Need>, OpError>;

    /// Returns the job that the call reads: a caller who submitted it needs nothing else.
    fn reads_job(&self) -> Option<JobId> {
        None
    }

    /// Returns the server that the call is sent to: a [secret](Self::secrets) may only go to a place that it is bound
    /// to. `None` if the call isn't sent anywhere and takes no secrets.
    fn destination(&self) -> Option<Destination> {
        None
    }

    /// Returns the arguments in which references to secrets are resolved.
    fn secrets(&mut self) -> Vec<&mut Value> {
        Vec::new()
    }

    /// Runs the call. Its needs are permitted by then, and secrets have replaced their references.
    fn run(self, call: &Invocation<'_>) -> impl Future<Output = Result<OpOutput, OpError>> + Send;
}

/// A parsed call of any [`Operation`].
#[async_trait]
pub trait ParsedCall: Send + Sync {
    /// Returns the capabilities that the call needs.
    fn needs(&self) -> Result<Vec<Need>, OpError>;
    /// Returns the job that the call reads.
    fn reads_job(&self) -> Option<JobId>;
    /// Returns the server that the call is sent to.
    fn destination(&self) -> Option<Destination>;
    /// Returns the arguments in which references to secrets are resolved.
    fn secrets(&mut self) -> Vec<&mut Value>;
    /// Runs the call.
    async fn run(self: Box<Self>, call: &Invocation<'_>) -> Result<OpOutput, OpError>;
}

#[async_trait]
impl<T: Operation> ParsedCall for T {
    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Operation::needs(self)
    }

    fn reads_job(&self) -> Option<JobId> {
        Operation::reads_job(self)
    }

    fn destination(&self) -> Option<Destination> {
        Operation::destination(self)
    }

    fn secrets(&mut self) -> Vec<&mut Value> {
        Operation::secrets(self)
    }

    async fn run(self: Box<Self>, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        Operation::run(*self, call).await
    }
}
