//! Routes of timers, approvals, assets, secrets, spend and quota.

use super::{AGENTS, ASSETS, Access, Route, route, runs};
use crate::http::approvals::Answer;
use crate::http::describe::answers::{Approval, Approvals, Deleted, Names, Page, Quota, SecretStored, Timer, Timers};
use crate::http::describe::queries::{AssetContentQuery, AssetsQuery, WhyQuery};
use crate::http::route::{Given, Shape, of};
use crate::http::{approvals, assets, secrets, turns};

const TIMER: Given = &[("id", "timer")];

pub(super) fn routes() -> Vec<Route> {
    [waiting(), used(), stored()].into_iter().flatten().collect()
}

fn waiting() -> Vec<Route> {
    vec![
        runs("get", "/api/v1/timers", Access::Caller, "v/ops/timer/list", &[])
            .says("listTimers", "Timers, the next to fire first.")
            .answers(200, "The timers.", of::<Timers>())
            .fails(&[400]),
        runs("delete", "/api/v1/timers/{id}", Access::Caller, "v/ops/timer/cancel", TIMER)
            .says("cancelTimer", "Cancel a timer; what it has sent goes on.")
            .answers(200, "The timer as it is now.", of::<Timer>())
            .fails(&[404]),
        runs("get", "/api/v1/approvals", Access::Caller, "v/ops/approval/list", &[])
            .reads()
            .says("listApprovals", "What agents wait for: calls to approve and questions to answer, the newest first.")
            .answers(200, "The approvals.", of::<Approvals>()),
        route("post", "/api/v1/approvals/{id}", Access::Caller, approvals::answer)
            .says("answerApproval", "Answer an approval: `approve`, `reject` or `answers`. An answer counts once.")
            .takes(of::<Answer>())
            .answers(200, "The approval with its answer.", of::<Approval>())
            .fails(&[400, 404, 409]),
    ]
}

fn used() -> Vec<Route> {
    let quota = "`documents`, `bytes`, `sessions` and `jobs`, each with what is `used`, the `limit` (absent: any number) and whether an operator has set it (`own`).";
    vec![
        runs("get", "/api/v1/spend", Access::Caller, "v/ops/spend/today", &[])
            .reads()
            .says("showSpend", "What was spent today, by model and session, and what the caps leave.")
            .answers(200, "`day`, `zone`, `resets`, `spent`, `models`, `sessions` and `caps`; a cap of a model says to operators alone how much of it is used.", Shape::Map)
            .fails(&[400]),
        runs("get", "/api/v1/quota", Access::Caller, "v/ops/quota/show", &[])
            .says("showQuota", "What the owner keeps, and what it may keep at most.")
            .answers(200, quota, of::<Quota>()),
        runs("put", "/api/v1/quota", Access::Caller, "v/ops/quota/set", &[])
            .says("setQuota", "Set what the owner may keep at most; for operators alone.")
            .takes(Shape::Arguments("v/ops/quota/set", &[], &[]))
            .answers(200, quota, of::<Quota>()),
        route("get", "/api/v1/why", Access::Holder("crud/read", AGENTS), turns::why)
            .reads()
            .says("why", "Turns in which bytes of a path reached a model, tool results included.")
            .asks(of::<WhyQuery>())
            .answers(200, "`turns`: agent, session, turn, via, source and bytes; `incomplete`: what was not looked through.", Shape::Map)
            .fails(&[400, 404]),
    ]
}

fn stored() -> Vec<Route> {
    let any = |shape| vec![("application/json", Shape::Map), ("*/*", shape)];
    let hash: [(u16, &str); 2] = [(200, "It was there; its hash."), (201, "Its hash.")];
    let stores =
        |route: Route| hash.iter().fold(route, |route, (status, text)| route.answers(*status, text, of::<String>()));
    vec![
        route("get", "/api/v1/assets", Access::Holder("crud/read", ASSETS), assets::list)
            .says("listAssets", "Assets by hash, page by page: their hashes, with `details=true` what is known of them.")
            .asks(of::<AssetsQuery>())
            .answers(200, "A page.", of::<Page>()),
        stores(route("post", "/api/v1/assets", Access::Holder("asset/store", ASSETS), assets::store)
            .says("storeAsset", "Store immutable content: the operation `v/ops/asset/store`.")
            .takes(Shape::Arguments("v/ops/asset/store", &[], &[]))
            .fails(&[400, 413])),
        route("get", "/api/v1/assets/{*id}", Access::Holder("crud/read", ASSETS), assets::get)
            .reads()
            .says("getAsset", "Metadata of an asset, or with `/content` its bytes; `ETag` is its hash.")
            .sends(200, "Metadata, or the bytes with the asset's own type.", any(Shape::Any))
            .fails(&[404]),
        stores(route("put", "/api/v1/assets/{*id}", Access::Holder("asset/store", ASSETS), assets::put)
            .says("putAsset", "Store the bytes whose SHA-256 the id is (`/content`), under any `Content-Type`: it is kept.")
            .asks(of::<AssetContentQuery>())
            .takes_as("application/octet-stream", Shape::Any)
            .fails(&[400, 413])),
        route("get", "/api/v1/secrets", Access::Caller, secrets::list)
            .says("listSecrets", "Names of secrets; no route gives a value.")
            .answers(200, "The names, sorted.", of::<Names>()),
        route("put", "/api/v1/secrets/{name}", Access::Caller, secrets::store)
            .says("storeSecret", "Store a secret, in the stead of one that exists unless `overwrite` is false. Without `hosts` it may go where it could before, a new one nowhere.")
            .takes(Shape::Arguments("v/ops/secret/set", &[("name", "name")], &[]))
            .answers(200, "It is stored.", of::<SecretStored>())
            .fails(&[400]),
        route("delete", "/api/v1/secrets/{name}", Access::Caller, secrets::delete)
            .says("deleteSecret", "Delete a secret.")
            .answers(200, "It is gone.", of::<Deleted>())
            .fails(&[404]),
    ]
}
