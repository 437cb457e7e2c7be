//! Routes of health, the description of the venue, and operations.

use super::builders::route;
use crate::http::describe::queries::{ValuesQuery, WaitQuery};
use crate::http::operate::{Invoke, Run};
use crate::http::route::{Route, RouteAccess, RouteSchema, schema_of};
use crate::http::{catalog, health, operate};
use crate::view::audit::{LivenessView, ReadinessView, WorkView};
use crate::view::catalog::{OperationNodeView, OperationView};
use crate::view::identity::{DidView, VenueStatusView};
use crate::view::job::JobView;
use std::collections::BTreeMap;

pub(super) fn routes() -> Vec<Route> {
    let refusals: &'static [u16] = &[400, 403, 404, 503];
    vec![
        route("get", "/livez", RouteAccess::Public, health::livez)
            .with_summary("livez", "The process serves.")
            .with_answer(200, "It does.", schema_of::<LivenessView>()),
        route("get", "/readyz", RouteAccess::Public, health::readyz)
            .with_summary("readyz", "Work can be accepted: the store answers within a second.")
            .with_answer(200, "It can; without a connection to the queue, it waits there.", schema_of::<ReadinessView>())
            .with_refusals(&[503]),
        route("get", "/work", RouteAccess::Operator, health::work)
            .with_summary("work", "Work of the whole venue that waits or runs: for whoever chooses the number of workers.")
            .with_answer(200, "Messages in the queue and sessions that are due or run.", schema_of::<WorkView>())
            .with_refusals(&[503]),
        route("get", "/metrics", RouteAccess::Operator, health::metrics)
            .with_summary("metrics", "Counters and histograms for Prometheus.")
            .with_media_answer(
                200,
                "Text for Prometheus, or OpenMetrics where `Accept` asks for that.",
                vec![
                    ("text/plain", schema_of::<String>()),
                    ("application/openmetrics-text", schema_of::<String>()),
                ],
            ),
        route("get", "/.well-known/did.json", RouteAccess::Public, catalog::did_document)
            .with_summary("did", "The venue's identity.")
            .with_answer(200, "A DID document.", schema_of::<DidView>()),
        route("get", "/api/v1/openapi.json", RouteAccess::Public, super::openapi)
            .with_summary("openapi", "This document.")
            .with_answer(200, "It.", RouteSchema::Map),
        route("get", "/api/v1/status", RouteAccess::Public, catalog::status)
            .with_summary("status", "What the venue is; also the readiness signal of Covia's clients.")
            .with_answer(200, "Status.", schema_of::<VenueStatusView>()),
        route("post", "/api/v1/run", RouteAccess::AnyCaller, operate::run)
            .with_value_reads()
            .with_summary("run", "Run an operation; the body of the answer is its output. The request lasts as long as the operation.")
            .with_idempotency_key()
            .with_task_header()
            .with_body(schema_of::<Run>())
            .with_answer(200, "The operation's own output.", RouteSchema::Any)
            .with_refusals(refusals),
        route("post", "/api/v1/invoke", RouteAccess::AnyCaller, operate::invoke)
            .with_value_reads()
            .with_summary("invoke", "Run an operation as a job. A request to an agent is a job of that agent; any other operation is one that a worker runs, under what the caller may do when it runs and could do when it asked. What only reads the venue and is quick is done at once, and so is what has arguments that are kept nowhere (a secret's value). Without `wait` the answer comes after 250 ms at the latest; the job is read and waited for at `GET jobs/{id}`.")
            .with_query(schema_of::<WaitQuery>())
            .with_idempotency_key()
            .with_body(schema_of::<Invoke>())
            .with_answer(201, "The job, as it stands; its address is in `Location`.", schema_of::<JobView>())
            .with_answer(200, "The job has ended within `wait`, or was there already under this key.", schema_of::<JobView>())
            .with_refusals(&[400, 403, 404, 409, 503]),
        route("get", "/api/v1/values/{op}", RouteAccess::AnyCaller, operate::values)
            .with_value_reads()
            .with_summary("values", "Read from the lattice without a job: the operation `v/ops/lattice/{op}`.")
            .with_query(schema_of::<ValuesQuery>())
            .with_answer(200, "The operation's output.", RouteSchema::Map)
            .with_refusals(refusals),
        route("get", "/api/v1/operations", RouteAccess::AnyCaller, catalog::operations)
            .with_summary("listOperations", "All operations and their other names.")
            .with_answer(200, "Operations.", schema_of::<Vec<OperationView>>()),
        route("get", "/api/v1/operations/{*name}", RouteAccess::AnyCaller, catalog::operation)
            .with_summary("getOperation", "One operation.")
            .with_answer(200, "The operation.", schema_of::<OperationView>())
            .with_refusals(&[404]),
        route("get", "/api/v1/adapters/{name}/operations", RouteAccess::AnyCaller, catalog::adapter)
            .with_summary("listGroup", "The operations of a group, by path.")
            .with_answer(200, "Metadata by path.", schema_of::<BTreeMap<String, OperationNodeView>>())
            .with_refusals(&[404]),
    ]
}
