//! A route: its access rule, its input and answers, and its handler. [`routes`](super::routes) lists them.

use super::Api;
use crate::domain::lattice::Namespace;
use crate::domain::limits::ASSET_BYTES;
use axum::routing::MethodRouter;
use schemars::{JsonSchema, Schema, SchemaGenerator};

/// Media type of most bodies.
const JSON: &str = "application/json";

/// Names of the operation's arguments that path parameters fill, by parameter.
pub(super) type Given = &'static [(&'static str, &'static str)];

/// A route of the API.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// Access rule of the route.
    pub(super) access: Access,
    /// It reads values named by its caller, which may be large.
    pub(super) reads: bool,
    pub(super) handler: MethodRouter<Api>,
    /// Description of the route for its callers.
    pub(super) about: About,
}

/// Access rule of a route, where callers are authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody: information needed before there is a token, and health checks.
    Open,
    /// Any caller with a token; the operation that it runs checks more.
    Caller,
    /// Callers that hold an ability on a resource.
    Holder(&'static str, On),
    /// Operators of the venue.
    Operator,
}

/// Resource on which an ability is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    /// All of a namespace.
    All(Namespace),
    /// The resource in the namespace that the route's `{id}` names.
    Id(Namespace),
}

/// Access and input rules of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admits {
    pub(super) access: Access,
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
    Taken,
    Needed,
    /// Stored byte for byte: it may be as long as an asset.
    Content,
}

impl BodyRule {
    /// Returns the longest body in bytes; `limit` is that of other routes.
    pub(super) fn limit(self, limit: usize) -> usize {
        match self {
            Self::Content => limit.max(ASSET_BYTES),
            Self::Ignored | Self::Refused | Self::Taken | Self::Needed => limit,
        }
    }
}

/// Source of a schema.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// The schema of a type.
    Of(fn(&mut SchemaGenerator) -> Schema),
    /// Arguments of an operation, without those that the path gives; the last list is required.
    Arguments(&'static str, Given, &'static [&'static str]),
    /// The schema of an agent file.
    Agent,
    /// A submission that is a message.
    Message,
    /// A JSON object.
    Map,
    /// Any JSON value.
    Any,
    /// Any JSON value but null.
    Something,
}

/// Media type and schema of a body or an answer.
pub(super) type Content = (&'static str, Shape);

/// Description of a route, beside its access rule.
#[derive(Default)]
pub(super) struct About {
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) query: Option<Shape>,
    /// It accepts an `Idempotency-Key`.
    pub(super) keyed: bool,
    /// It accepts a task in a header.
    pub(super) tasked: bool,
    /// Its body, and whether it is required.
    pub(super) body: Option<(Content, bool)>,
    pub(super) answers: Vec<(u16, &'static str, Vec<Content>)>,
    /// Statuses of refusals to be expected.
    pub(super) fails: &'static [u16],
}

/// Makes the shape of a type.
pub(super) fn of<T: JsonSchema>() -> Shape {
    Shape::Of(SchemaGenerator::subschema_for::<T>)
}

impl Route {
    /// Marks a route that reads values named by its caller.
    pub(super) fn reads(self) -> Self {
        Self { reads: true, ..self }
    }

    /// Sets the operation id and the summary.
    pub(super) fn says(mut self, id: &'static str, summary: &'static str) -> Self {
        (self.about.id, self.about.summary) = (id, summary);
        self
    }

    /// Sets the query.
    pub(super) fn asks(mut self, shape: Shape) -> Self {
        self.about.query = Some(shape);
        self
    }

    /// Sets a required JSON body.
    pub(super) fn takes(self, shape: Shape) -> Self {
        self.takes_as(JSON, shape)
    }

    /// Sets a required body of this media type.
    pub(super) fn takes_as(mut self, media: &'static str, shape: Shape) -> Self {
        self.about.body = Some(((media, shape), true));
        self
    }

    /// Sets an optional JSON body.
    pub(super) fn may_take(mut self, shape: Shape) -> Self {
        self.about.body = Some(((JSON, shape), false));
        self
    }

    /// Marks a route that accepts an idempotency key.
    pub(super) fn keyed(mut self) -> Self {
        self.about.keyed = true;
        self
    }

    /// Marks a route that accepts the task in scope in a header.
    pub(super) fn tasked(mut self) -> Self {
        self.about.tasked = true;
        self
    }

    /// Adds a JSON answer.
    pub(super) fn answers(self, status: u16, text: &'static str, shape: Shape) -> Self {
        self.sends(status, text, vec![(JSON, shape)])
    }

    /// Adds an answer with these media types.
    pub(super) fn sends(mut self, status: u16, text: &'static str, content: Vec<Content>) -> Self {
        self.about.answers.push((status, text, content));
        self
    }

    /// Sets the statuses of refusals to be expected.
    pub(super) fn fails(mut self, statuses: &'static [u16]) -> Self {
        self.about.fails = statuses;
        self
    }
}
