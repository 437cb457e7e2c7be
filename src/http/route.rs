//! A route: its access rule, its input and answers, and its handler. [`routes`](super::routes) lists them.

use super::Api;
use crate::domain::lattice::Namespace;
use crate::domain::limits::ASSET_BYTES;
use axum::routing::MethodRouter;
use schemars::{JsonSchema, Schema, SchemaGenerator};

/// Media type of most bodies.
const JSON: &str = "application/json";

/// Names of the operation's arguments that path parameters fill, by parameter.
pub(super) type ArgumentNames = &'static [(&'static str, &'static str)];

/// A route of the API.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// Access rule of the route.
    pub(super) access: RouteAccess,
    /// It reads values named by its caller, which may be large.
    pub(super) reads: bool,
    pub(super) handler: MethodRouter<Api>,
    /// Description of the route for its callers.
    pub(super) about: RouteDescription,
}

/// Access rule of a route, where callers are authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteAccess {
    /// Everybody: information needed before there is a token, and health checks.
    Public,
    /// Any caller with a token; the operation that it runs checks more.
    AnyCaller,
    /// Callers that hold an ability on a resource.
    Holder(&'static str, AccessTarget),
    /// Operators of the venue.
    Operator,
}

/// Resource on which an ability is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessTarget {
    /// All of a namespace.
    All(Namespace),
    /// The resource in the namespace that the route's `{id}` names.
    Id(Namespace),
}

/// Access and input rules of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RouteRules {
    pub(super) access: RouteAccess,
    /// It reads values named by its caller, which may be large.
    pub(super) reads: bool,
    /// Rule for its body.
    pub(super) body: BodyRule,
    /// Names that its query may have.
    pub(super) query: &'static [String],
}

/// Rule for the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyRule {
    /// Ignored: a `GET` body means nothing (RFC 9110, 9.3.1), nor does one where there is no route.
    Ignored,
    /// None is described: a body that isn't empty is refused.
    Refused,
    Optional,
    Required,
    /// Stored byte for byte: it may be as long as an asset.
    Content,
}

impl BodyRule {
    /// Returns the longest body in bytes; `limit` is that of other routes.
    pub(super) fn limit(self, limit: usize) -> usize {
        match self {
            Self::Content => limit.max(ASSET_BYTES),
            Self::Ignored | Self::Refused | Self::Optional | Self::Required => limit,
        }
    }
}

/// Source of a schema.
#[derive(Clone, Copy)]
pub(super) enum RouteSchema {
    /// The schema of a type.
    Type(fn(&mut SchemaGenerator) -> Schema),
    /// Arguments of an operation, without those that the path gives; the last list is required.
    Arguments(&'static str, ArgumentNames, &'static [&'static str]),
    /// The schema of an agent file.
    Agent,
    /// A submission that is a message.
    Message,
    /// A JSON object.
    Map,
    /// Any JSON value.
    Any,
    /// Any JSON value but null.
    NotNull,
}

/// Media type and schema of a body or an answer.
pub(super) type MediaSchema = (&'static str, RouteSchema);

/// Description of a route, beside its access rule.
#[derive(Default)]
pub(super) struct RouteDescription {
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) query: Option<RouteSchema>,
    /// It accepts an `Idempotency-Key`.
    pub(super) has_idempotency_key: bool,
    /// It accepts a task in a header.
    pub(super) has_task_header: bool,
    /// Its body, and whether it is required.
    pub(super) body: Option<(MediaSchema, bool)>,
    pub(super) answers: Vec<(u16, &'static str, Vec<MediaSchema>)>,
    /// Statuses of refusals to be expected.
    pub(super) refusals: &'static [u16],
}

/// Makes the shape of a type.
pub(super) fn schema_of<T: JsonSchema>() -> RouteSchema {
    RouteSchema::Type(SchemaGenerator::subschema_for::<T>)
}

impl Route {
    /// Marks a route that reads values named by its caller.
    pub(super) fn with_value_reads(self) -> Self {
        Self { reads: true, ..self }
    }

    /// Sets the operation id and the summary.
    pub(super) fn with_summary(mut self, id: &'static str, summary: &'static str) -> Self {
        (self.about.id, self.about.summary) = (id, summary);
        self
    }

    /// Sets the query.
    pub(super) fn with_query(mut self, shape: RouteSchema) -> Self {
        self.about.query = Some(shape);
        self
    }

    /// Sets a required JSON body.
    pub(super) fn with_body(self, shape: RouteSchema) -> Self {
        self.with_media_body(JSON, shape)
    }

    /// Sets a required body of this media type.
    pub(super) fn with_media_body(mut self, media: &'static str, shape: RouteSchema) -> Self {
        self.about.body = Some(((media, shape), true));
        self
    }

    /// Sets an optional JSON body.
    pub(super) fn with_optional_body(mut self, shape: RouteSchema) -> Self {
        self.about.body = Some(((JSON, shape), false));
        self
    }

    /// Marks a route that accepts an idempotency key.
    pub(super) fn with_idempotency_key(mut self) -> Self {
        self.about.has_idempotency_key = true;
        self
    }

    /// Marks a route that accepts the task in scope in a header.
    pub(super) fn with_task_header(mut self) -> Self {
        self.about.has_task_header = true;
        self
    }

    /// Adds a JSON answer.
    pub(super) fn with_answer(self, status: u16, text: &'static str, shape: RouteSchema) -> Self {
        self.with_media_answer(status, text, vec![(JSON, shape)])
    }

    /// Adds an answer with these media types.
    pub(super) fn with_media_answer(mut self, status: u16, text: &'static str, content: Vec<MediaSchema>) -> Self {
        self.about.answers.push((status, text, content));
        self
    }

    /// Sets the statuses of refusals to be expected.
    pub(super) fn with_refusals(mut self, statuses: &'static [u16]) -> Self {
        self.about.refusals = statuses;
        self
    }
}
