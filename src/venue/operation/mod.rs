//! Seam 4, `Operation`: what agents and callers can do, by catalog path.
//!
//! An operation is the struct of its arguments, what it needs and what happens when it is repeated; [`dispatch`]
//! checks all of that in one place before any operation runs. The operations themselves are [`crate::ops`].
//!
//! ```text
//! arguments ─▶ validated by the schema ─▶ parsed, once ─▶ needs permitted ─▶ secrets put in ─▶ run
//! ```

mod catalog;
mod copies;
pub mod dispatch;
mod fill;
pub mod pin;
mod reads;
mod schema;

pub use crate::venue::failure::OpError;
pub use catalog::{Catalog, RegisteredOperation, Spec, operation};
pub use reads::{READ, Reads};

use crate::domain::authority::envelope::Envelope;
use crate::domain::authority::trail::{Maker, Trail};
use crate::domain::authority::{Authority, Capability, ResourcePath};
use crate::domain::call::ReplyStart;
use crate::domain::event::Mandate;
use crate::domain::ids::{EventId, IdOf, JobId, Owner, sha256_hex};
use crate::domain::job::Parent;
use crate::domain::limits::OPERATION_TIME;
use crate::domain::principal::Principal;
use crate::domain::reader::Reader;
use crate::domain::scope::ScopedSection;
use crate::domain::secret::Destination;
use crate::store::Lease;
use crate::venue::Venue;
use crate::venue::workspace::Workspace;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

/// Hexadecimal digits of an `Idempotency-Key`: 128 bits.
const IDEMPOTENCY_KEY_DIGITS: usize = 32;

/// What happens to the world when an operation runs, and so what may happen after a crash.
///
/// And after a standstill, when the turn's lease has gone to another worker, which makes the same calls again:
/// what is kept until the commit is fenced by it; an intent without an outcome is unknown, whether it comes to
/// pass late or never; what is written at once is not gone on with before the lease was asked for again, and
/// a document that is changed is written only as this very call has read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: it is simply run again.
    Read,
    /// Kept in the turn until its commit: it is simply run again.
    Buffered,
    /// Written at once under an id that is a function of the turn: running it again changes nothing.
    Idempotent,
    /// Not repeatable: intent is recorded before it, and an intent without an outcome is
    /// `outcome_unknown`, as is a request that left and got no whole answer.
    Once,
}

/// One thing that a call needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// An ability, e.g. `crud/read`.
    pub ability: &'static str,
    /// On what.
    pub resource: ResourcePath,
}

impl Need {
    /// An ability on something.
    pub fn new(ability: &'static str, resource: impl Into<ResourcePath>) -> Self {
        Self { ability, resource: resource.into() }
    }

    /// This and nothing else, for [`Operation::needs`].
    pub fn only(ability: &'static str, resource: impl Into<ResourcePath>) -> Result<Vec<Self>, OpError> {
        Ok(vec![Self::new(ability, resource)])
    }

    /// Nothing, for [`Operation::needs`].
    pub fn none() -> Result<Vec<Self>, OpError> {
        Ok(Vec::new())
    }
}

/// Who calls.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose data it is about.
    pub owner: Owner,
    /// Name for records: the owner, or `agent:<id>`.
    pub name: String,
    /// What it may do.
    pub authority: Authority,
    /// What it may do for others, too: write what users can't, act for other owners.
    pub operator: bool,
    /// The request that it acts for: ids of its grants, claims, modes.
    pub envelope: Envelope,
    /// Whose the ids are that it gives.
    pub principal: Principal,
}

impl Caller {
    /// Somebody who acts for no request but its own.
    pub fn new(owner: Owner, name: String, authority: Authority) -> Self {
        Self { owner, name, authority, operator: false, envelope: Envelope::default(), principal: Principal::ANYBODY }
    }

    /// What travels with a request of this caller, who is no turn.
    pub fn request(&self) -> Envelope {
        let mut envelope = self.envelope.clone();
        envelope.bound = envelope.bound.intersect(&self.authority).nowhere();
        envelope.holders.push(self.name.clone());
        envelope
    }

    /// By what it reads what was said and done under some authority: operators read all of it.
    pub fn reads(&self) -> Cow<'_, Authority> {
        if self.operator { Cow::Owned(Authority::unlimited()) } else { Cow::Borrowed(&self.authority) }
    }

    /// As a reader of jobs.
    pub fn reader(&self) -> Reader {
        let mark = self.principal.mark().map(str::to_owned);
        Reader { authority: self.authority.clone(), mark, operator: self.operator }
    }

    /// Under whom and under what it acts.
    pub fn trail(&self) -> Trail {
        let mut trail = self.envelope.trail();
        trail.holders.push(self.name.clone());
        trail.grants.extend(self.authority.home().job.as_ref().map(ToString::to_string));
        trail
    }

    /// An agent, not a person or a service: an owner's name has a slash in it, an agent's has none.
    pub fn is_agent(&self) -> bool {
        self.name.starts_with("agent:") && !self.name.contains('/')
    }
}

impl From<&Caller> for Maker {
    fn from(caller: &Caller) -> Self {
        Self { authority: caller.authority.clone(), trail: caller.trail() }
    }
}

/// Where a call comes from.
#[derive(Debug, Clone)]
pub enum Site<'a> {
    /// A tool call of a running turn.
    Turn(TurnSite<'a>),
    /// A caller outside turns; `key` makes a submission idempotent.
    Api {
        /// The caller's own id of the request.
        key: Option<EventId>,
    },
}

/// A tool call of a running turn.
#[derive(Debug, Clone)]
pub struct TurnSite<'a> {
    /// The turn's lease: effects are fenced by it.
    pub lease: &'a Lease,
    /// Number of the turn.
    pub turn: u64,
    /// Place of the call in its reply.
    pub call: u32,
    /// The instance that it is about.
    pub instance: Option<&'a str>,
    /// When the turn of the reply began.
    pub start: ReplyStart,
    /// What of the turn's context goes with it: a child job gets it as sections of its own.
    pub handed: &'a [ScopedSection],
    /// The request that the turn serves.
    pub mandate: &'a Mandate,
    /// What a child job of this call has as its parent.
    pub parent: &'a Parent,
    /// Children that the session waits for already, with those that calls before this one start.
    pub children: usize,
    /// Children that the session's run has started, with the same.
    pub run_children: usize,
    /// The most that the agent may hand on; absent = what it may do itself.
    pub delegable: Option<&'a [Capability]>,
    /// How long the agent lets one call run; absent = as long as the venue.
    pub time: Option<Duration>,
    /// Its agent binds arguments: what is filled in there is not read by its path.
    pub hides_values: bool,
}

impl TurnSite<'_> {
    /// The place of the call, as ids of what it sends are made from it.
    pub fn id_of_call(&self) -> IdOf<'_> {
        let Self { lease, turn, call, instance, start, .. } = *self;
        let (owner, session, start) = (&lease.owner, &lease.session, start.in_ids());
        IdOf::Call { owner, session, turn, call, instance, start }
    }
}

/// Everything an operation may use.
#[derive(Clone)]
pub struct Invocation<'a> {
    /// The name by which its caller called it: of a tool, or the path of an operation as it was written. Denials
    /// say it.
    pub named: &'a str,
    /// The process's shared parts.
    pub venue: &'a Venue,
    /// Who calls.
    pub caller: &'a Caller,
    /// The owner's tree as the caller sees it.
    pub workspace: &'a Workspace,
    /// What of its caller's context goes with it, by key of the section; no part of the arguments.
    pub scoped: &'a Map<String, Value>,
    /// Where the call comes from.
    pub site: Site<'a>,
    /// Takes down what it reads.
    pub reads: &'a Reads,
}

impl Invocation<'_> {
    /// How long the operation may run.
    pub fn time(&self) -> Duration {
        match &self.site {
            Site::Turn(TurnSite { time: Some(time), .. }) => OPERATION_TIME.min(*time),
            Site::Turn(_) | Site::Api { .. } => OPERATION_TIME,
        }
    }

    /// Under which another server knows this call again: the same when the same call of a turn, or the same run of an
    /// invoked operation, is made again, and a hash that tells nothing of either. `None` where a run has no id.
    pub fn idempotency_key(&self) -> Option<String> {
        let owner = &self.caller.owner;
        let place = match &self.site {
            Site::Turn(site) => site.id_of_call(),
            Site::Api { key } => IdOf::Operation { owner, key: key.as_ref()? },
        };
        let id = EventId::of_venue(&self.venue.key, place);
        Some(sha256_hex(format!("idempotency-key {id}").as_bytes())[..IDEMPOTENCY_KEY_DIGITS].to_owned())
    }

    /// Refuses a caller who may not do this.
    pub fn permit(&self, ability: &str, resource: impl Into<ResourcePath>) -> Result<(), OpError> {
        let permitted = self.caller.authority.permits(ability, resource);
        permitted.map_err(|denied| OpError::Denied(denied.text(self.named)))
    }

    /// Refuses agents, whatever they may do: the operation is for `whom`.
    pub fn for_people<T: Operation>(&self, whom: &str) -> Result<(), OpError> {
        if self.caller.is_agent() || matches!(self.site, Site::Turn(_)) {
            return Err(OpError::Denied(format!("`{}` is for {whom}; no agent may call it", T::PATH)));
        }
        Ok(())
    }

    /// Refuses all but operators; `why` follows.
    pub fn for_operators<T: Operation>(&self, why: &str) -> Result<(), OpError> {
        if self.caller.is_agent() || matches!(self.site, Site::Turn(_)) || !self.caller.operator {
            return Err(OpError::Denied(format!("`{}` is for operators alone{why}", T::PATH)));
        }
        Ok(())
    }
}

/// Of a call that no section of any context goes with.
pub static NOTHING: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// What an operation returned.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The result.
    pub value: Value,
    /// A child job that is still running: its result comes as an event.
    pub started: Option<JobId>,
}

impl From<Value> for Output {
    fn from(value: Value) -> Self {
        Self { value, started: None }
    }
}

/// One operation: the struct of its arguments, whose comment says what it does and whose fields' comments say what each
/// argument is, to models and people. Its schema is made of the same.
pub trait Operation: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// Catalog path, `v/ops/<group>/<name>`.
    const PATH: &'static str;
    /// What happens when it is repeated.
    const EFFECT: Effect;

    /// What the call needs.
    fn needs(&self) -> Result<Vec<Need>, OpError>;

    /// The job that the call reads: who asked for that needs nothing else.
    fn reads_job(&self) -> Option<JobId> {
        None
    }

    /// Where the call goes: [secrets](Self::secrets) count only for a place that each is bound to. `None`: it goes
    /// nowhere, and takes none.
    fn destination(&self) -> Option<Destination> {
        None
    }

    /// The arguments in which references to secrets count.
    fn secrets(&mut self) -> Vec<&mut Value> {
        Vec::new()
    }

    /// Runs it. What it needs is permitted by then, and secrets stand in the place of their references.
    fn run(self, call: &Invocation<'_>) -> impl Future<Output = Result<Output, OpError>> + Send;
}

/// [`Operation`] of any type: a call whose arguments are read, once.
#[async_trait]
pub trait ParsedCall: Send + Sync {
    /// As of the operation.
    fn needs(&self) -> Result<Vec<Need>, OpError>;
    /// As of the operation.
    fn reads_job(&self) -> Option<JobId>;
    /// As of the operation.
    fn destination(&self) -> Option<Destination>;
    /// As of the operation.
    fn secrets(&mut self) -> Vec<&mut Value>;
    /// As of the operation.
    async fn run(self: Box<Self>, call: &Invocation<'_>) -> Result<Output, OpError>;
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

    async fn run(self: Box<Self>, call: &Invocation<'_>) -> Result<Output, OpError> {
        Operation::run(*self, call).await
    }
}
