//! Routes of health, the description of the venue, and operations.

use super::{Access, Route, route};
use crate::http::describe::answers::{Did, Job, Live, Operation, Status};
use crate::http::describe::queries::{ValuesQuery, Wait};
use crate::http::operate::{Invoke, Run};
use crate::http::route::{Shape, of};
use crate::http::{catalog, health, operate};
use crate::venue::work::Work;

pub(super) fn routes() -> Vec<Route> {
    let refusals: &'static [u16] = &[400, 403, 404, 503];
    vec![
        route("get", "/livez", Access::Open, health::livez)
            .says("livez", "The process serves.")
            .answers(200, "It does.", of::<Live>()),
        route("get", "/readyz", Access::Open, health::readyz)
            .says("readyz", "Work can be accepted: the store answers within a second.")
            .answers(200, "It can.", of::<Live>())
            .fails(&[503]),
        route("get", "/work", Access::Operator, health::work)
            .says("work", "Work of the whole venue that waits or runs: for whoever chooses the number of workers.")
            .answers(200, "Messages in the queue and sessions that are due or run.", of::<Work>())
            .fails(&[503]),
        route("get", "/metrics", Access::Operator, health::metrics)
            .says("metrics", "Counters and histograms for Prometheus.")
            .sends(200, "OpenMetrics text.", vec![("application/openmetrics-text", of::<String>())]),
        route("get", "/.well-known/did.json", Access::Open, catalog::did_document)
            .says("did", "The venue's identity.")
            .answers(200, "A DID document.", of::<Did>()),
        route("get", "/api/v1/openapi.json", Access::Open, super::openapi)
            .says("openapi", "This document.")
            .answers(200, "It.", Shape::Map),
        route("get", "/api/v1/status", Access::Open, catalog::status)
            .says("status", "What the venue is; also the readiness signal of Covia's clients.")
            .answers(200, "Status.", of::<Status>()),
        route("post", "/api/v1/run", Access::Caller, operate::run)
            .reads()
            .says("run", "Run an operation; the body of the answer is its output. The request lasts as long as the operation.")
            .keyed()
            .tasked()
            .takes(of::<Run>())
            .answers(200, "The operation's own output.", Shape::Any)
            .fails(refusals),
        route("post", "/api/v1/invoke", Access::Caller, operate::invoke)
            .reads()
            .says("invoke", "Run an operation as a job. A request to an agent is a job of that agent; any other operation is one that a worker runs, under what the caller may do when it runs and could do when it asked. What only reads the venue and is quick is done at once, and so is what has arguments that are kept nowhere (a secret's value). Without `wait` the answer comes after 250 ms at the latest; the job is read and waited for at `GET jobs/{id}`.")
            .asks(of::<Wait>())
            .keyed()
            .takes(of::<Invoke>())
            .answers(201, "The job, as it stands; its address is in `Location`.", of::<Job>())
            .answers(200, "The job has ended within `wait`, or was there already under this key.", of::<Job>())
            .fails(&[400, 403, 404, 409, 503]),
        route("get", "/api/v1/values/{op}", Access::Caller, operate::values)
            .reads()
            .says("values", "Read from the lattice without a job: the operation `v/ops/lattice/{op}`.")
            .asks(of::<ValuesQuery>())
            .answers(200, "The operation's output.", Shape::Map)
            .fails(refusals),
        route("get", "/api/v1/operations", Access::Caller, catalog::operations)
            .says("listOperations", "All operations and their other names.")
            .answers(200, "Operations.", of::<Vec<Operation>>()),
        route("get", "/api/v1/operations/{*name}", Access::Caller, catalog::operation)
            .says("getOperation", "One operation.")
            .answers(200, "The operation.", of::<Operation>())
            .fails(&[404]),
        route("get", "/api/v1/adapters/{name}/operations", Access::Caller, catalog::adapter)
            .says("listGroup", "The operations of a group, by path.")
            .answers(200, "Metadata by path.", Shape::Map)
            .fails(&[404]),
    ]
}
