//! What a route is: who may use it, what it takes and answers, and its handler. The list of them is [`routes`](super::routes)'.

use super::Api;
use crate::domain::lattice::Namespace;
use crate::domain::limits::ASSET_BYTES;
use axum::routing::MethodRouter;
use schemars::{JsonSchema, Schema, SchemaGenerator};

/// Media type of almost everything.
const JSON: &str = "application/json";

/// The arguments that a path gives, by the names of its parameters.
pub(super) type Given = &'static [(&'static str, &'static str)];

/// One route.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// Who may use it.
    pub(super) access: Access,
    /// It reads what its caller names, large or small.
    pub(super) reads: bool,
    pub(super) handler: MethodRouter<Api>,
    /// What it is, for its callers.
    pub(super) about: About,
}

/// Who may use a route, where callers are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody: what one must know before one has a token, and what supervisors ask.
    Open,
    /// Whoever has a token; the operation that it runs asks for more.
    Caller,
    /// Whoever holds an ability on a resource.
    Holder(&'static str, On),
    /// Operators.
    Operator,
}

/// What an ability is asked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    /// All of a namespace.
    All(Namespace),
    /// What the `{id}` of the route names in it.
    Id(Namespace),
}

/// What a request to a route may do and bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admits {
    pub(super) access: Access,
    /// It reads what its caller names, large or small.
    pub(super) reads: bool,
    /// Whether it describes a body.
    pub(super) body: BodyRule,
    /// Names that its query may have.
    pub(super) query: &'static [String],
}

/// What a body is to a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyRule {
    /// That of a read says nothing (RFC 9110, 9.3.1), and neither does one where there is no route.
    Ignored,
    /// None is described: one that says something is refused.
    Refused,
    Taken,
    Needed,
    /// Kept byte for byte: it may be as long as an asset.
    Content,
}

impl BodyRule {
    /// Longest body in bytes, where others have `limit`.
    pub(super) fn limit(self, limit: usize) -> usize {
        match self {
            Self::Content => limit.max(ASSET_BYTES),
            Self::Ignored | Self::Refused | Self::Taken | Self::Needed => limit,
        }
    }
}

/// Where a schema comes from.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// A type.
    Of(fn(&mut SchemaGenerator) -> Schema),
    /// The arguments of an operation, without those that the path gives, and with these that must be there.
    Arguments(&'static str, Given, &'static [&'static str]),
    /// An agent file.
    Agent,
    /// A submission that is a message.
    Message,
    /// A map.
    Map,
    /// Any JSON.
    Any,
    /// Any JSON but null.
    Something,
}

/// What a body or an answer holds.
pub(super) type Content = (&'static str, Shape);

/// What is said of a route, beyond who may use it.
#[derive(Default)]
pub(super) struct About {
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) query: Option<Shape>,
    /// It takes an `Idempotency-Key`.
    pub(super) keyed: bool,
    /// It takes a task from a header.
    pub(super) tasked: bool,
    /// What it takes, and whether it must be there.
    pub(super) body: Option<(Content, bool)>,
    pub(super) answers: Vec<(u16, &'static str, Vec<Content>)>,
    /// Statuses of its refusals that are to be expected.
    pub(super) fails: &'static [u16],
}

/// A shape of a type.
pub(super) fn of<T: JsonSchema>() -> Shape {
    Shape::Of(SchemaGenerator::subschema_for::<T>)
}

impl Route {
    /// It reads what its caller names, large or small.
    pub(super) fn reads(self) -> Self {
        Self { reads: true, ..self }
    }

    /// What it is called and does.
    pub(super) fn says(mut self, id: &'static str, summary: &'static str) -> Self {
        (self.about.id, self.about.summary) = (id, summary);
        self
    }

    /// What its query may hold.
    pub(super) fn asks(mut self, shape: Shape) -> Self {
        self.about.query = Some(shape);
        self
    }

    /// It takes a JSON body.
    pub(super) fn takes(self, shape: Shape) -> Self {
        self.takes_as(JSON, shape)
    }

    /// It takes a body.
    pub(super) fn takes_as(mut self, media: &'static str, shape: Shape) -> Self {
        self.about.body = Some(((media, shape), true));
        self
    }

    /// It may be sent a JSON body.
    pub(super) fn may_take(mut self, shape: Shape) -> Self {
        self.about.body = Some(((JSON, shape), false));
        self
    }

    /// The same request under the same key is one.
    pub(super) fn keyed(mut self) -> Self {
        self.about.keyed = true;
        self
    }

    /// A header may name the task in scope.
    pub(super) fn tasked(mut self) -> Self {
        self.about.tasked = true;
        self
    }

    /// An answer in JSON.
    pub(super) fn answers(self, status: u16, text: &'static str, shape: Shape) -> Self {
        self.sends(status, text, vec![(JSON, shape)])
    }

    /// An answer.
    pub(super) fn sends(mut self, status: u16, text: &'static str, content: Vec<Content>) -> Self {
        self.about.answers.push((status, text, content));
        self
    }

    /// Refusals that are to be expected.
    pub(super) fn fails(mut self, statuses: &'static [u16]) -> Self {
        self.about.fails = statuses;
        self
    }
}
