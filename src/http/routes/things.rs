//! Routes of timers, approvals, webhooks, assets, secrets, spend and quota.

use super::builders::{ALL_AGENTS, ALL_ASSETS, operation_route, route};
use crate::http::approvals::Answer;
use crate::http::describe::queries::{AssetContentQuery, AssetsQuery, WhyQuery};
use crate::http::route::{ArgumentNames, Route, RouteAccess, RouteSchema, schema_of};
use crate::http::{approvals, assets, secrets, turns};
use crate::view::approval::{ApprovalPage, ApprovalView};
use crate::view::asset::AssetPage;
use crate::view::ledger::WhyView;
use crate::view::notification::{WebhookDeletedView, WebhookTriedView, WebhookView, WebhooksView};
use crate::view::quota::QuotaView;
use crate::view::secret::{SecretDeletedView, SecretNamesView, SecretStoredView};
use crate::view::spend::SpendTodayView;
use crate::view::timer::{TimerPage, TimerView};

/// The name of a webhook in a path is that in its arguments.
const WEBHOOK: ArgumentNames = &[("name", "name")];

const TIMER: ArgumentNames = &[("id", "timer")];

pub(super) fn routes() -> Vec<Route> {
    [waiting_routes(), webhook_routes(), usage_routes(), storage_routes()].into_iter().flatten().collect()
}

fn waiting_routes() -> Vec<Route> {
    vec![
        operation_route("get", "/api/v1/timers", RouteAccess::AnyCaller, "v/ops/timer/list", &[])
            .with_summary("listTimers", "Timers, the next to fire first.")
            .with_answer(200, "The timers.", schema_of::<TimerPage>())
            .with_refusals(&[400]),
        operation_route("delete", "/api/v1/timers/{id}", RouteAccess::AnyCaller, "v/ops/timer/cancel", TIMER)
            .with_summary("cancelTimer", "Cancel a timer; what it has sent goes on.")
            .with_answer(200, "The timer as it is now.", schema_of::<TimerView>())
            .with_refusals(&[404]),
        operation_route("get", "/api/v1/approvals", RouteAccess::AnyCaller, "v/ops/approval/list", &[])
            .with_value_reads()
            .with_summary(
                "listApprovals",
                "What agents wait for: calls to approve and questions to answer, the newest first.",
            )
            .with_answer(200, "The approvals.", schema_of::<ApprovalPage>()),
        route("post", "/api/v1/approvals/{id}", RouteAccess::AnyCaller, approvals::answer)
            .with_summary(
                "answerApproval",
                "Answer an approval: `approve`, `reject` or `answers`. An answer counts once.",
            )
            .with_body(schema_of::<Answer>())
            .with_answer(200, "The approval with its answer.", schema_of::<ApprovalView>())
            .with_refusals(&[400, 404, 409]),
    ]
}

fn webhook_routes() -> Vec<Route> {
    vec![
        operation_route("get", "/api/v1/webhooks", RouteAccess::AnyCaller, "v/ops/webhook/list", &[])
            .with_summary(
                "listWebhooks",
                "Webhooks that get the notifications of the owner, and what became of the deliveries.",
            )
            .with_answer(200, "The webhooks.", schema_of::<WebhooksView>()),
        operation_route("put", "/api/v1/webhooks/{name}", RouteAccess::AnyCaller, "v/ops/webhook/set", WEBHOOK)
            .with_summary(
                "setWebhook",
                "Send the notifications of the owner to a webhook, in the place of one of its name.",
            )
            .with_body(RouteSchema::Arguments("v/ops/webhook/set", WEBHOOK, &[]))
            .with_answer(200, "The webhook.", schema_of::<WebhookView>())
            .with_refusals(&[400, 404, 409]),
        operation_route("delete", "/api/v1/webhooks/{name}", RouteAccess::AnyCaller, "v/ops/webhook/delete", WEBHOOK)
            .with_summary("deleteWebhook", "Delete a webhook; what is on its way to it is not sent.")
            .with_answer(200, "Whether it was there.", schema_of::<WebhookDeletedView>())
            .with_refusals(&[400]),
        operation_route("post", "/api/v1/webhooks/{name}/try", RouteAccess::AnyCaller, "v/ops/webhook/try", WEBHOOK)
            .with_summary("tryWebhook", "Post a notification of the type `test` to a webhook, once.")
            .with_answer(200, "Whether it was taken.", schema_of::<WebhookTriedView>())
            .with_refusals(&[400, 404]),
    ]
}

fn usage_routes() -> Vec<Route> {
    vec![
        operation_route("get", "/api/v1/spend", RouteAccess::AnyCaller, "v/ops/spend/today", &[])
            .with_value_reads()
            .with_summary("showSpend", "What was spent today, by model and session, and what the caps leave.")
            .with_answer(200, "The day so far, and its caps.", schema_of::<SpendTodayView>())
            .with_refusals(&[400]),
        operation_route("get", "/api/v1/quota", RouteAccess::AnyCaller, "v/ops/quota/show", &[])
            .with_summary("showQuota", "What the owner keeps, and what it may keep at most.")
            .with_answer(200, "Each limit with its use.", schema_of::<QuotaView>()),
        operation_route("put", "/api/v1/quota", RouteAccess::AnyCaller, "v/ops/quota/set", &[])
            .with_summary("setQuota", "Set what the owner may keep at most; for operators alone.")
            .with_body(RouteSchema::Arguments("v/ops/quota/set", &[], &[]))
            .with_answer(200, "Each limit with its use.", schema_of::<QuotaView>()),
        route("get", "/api/v1/why", RouteAccess::Holder("crud/read", ALL_AGENTS), turns::list_path_uses)
            .with_value_reads()
            .with_summary("why", "Turns in which bytes of a path reached a model, tool results included.")
            .with_query(schema_of::<WhyQuery>())
            .with_answer(200, "The turns, and what was not searched.", schema_of::<WhyView>())
            .with_refusals(&[400, 404]),
    ]
}

fn storage_routes() -> Vec<Route> {
    let any = |shape| vec![("application/json", RouteSchema::Map), ("*/*", shape)];
    let hash: [(u16, &str); 2] = [(200, "It was there; its hash."), (201, "Its hash.")];
    let stores = |route: Route| {
        hash.iter().fold(route, |route, (status, text)| route.with_answer(*status, text, schema_of::<String>()))
    };
    vec![
        route("get", "/api/v1/assets", RouteAccess::Holder("crud/read", ALL_ASSETS), assets::list)
            .with_summary("listAssets", "Assets by hash, page by page: their hashes, with `details=true` what is known of them.")
            .with_query(schema_of::<AssetsQuery>())
            .with_answer(200, "A page.", schema_of::<AssetPage>()),
        stores(route("post", "/api/v1/assets", RouteAccess::Holder("asset/store", ALL_ASSETS), assets::store)
            .with_summary("storeAsset", "Store immutable content: the operation `v/ops/asset/store`.")
            .with_body(RouteSchema::Arguments("v/ops/asset/store", &[], &[]))
            .with_refusals(&[400, 413])),
        route("get", "/api/v1/assets/{*id}", RouteAccess::Holder("crud/read", ALL_ASSETS), assets::get)
            .with_value_reads()
            .with_summary("getAsset", "Metadata of an asset, or with `/content` its bytes; `ETag` is its hash.")
            .with_media_answer(200, "Metadata, or the bytes with the asset's own type.", any(RouteSchema::Any))
            .with_refusals(&[404]),
        stores(route("put", "/api/v1/assets/{*id}", RouteAccess::Holder("asset/store", ALL_ASSETS), assets::put)
            .with_summary("putAsset", "Store the bytes whose SHA-256 the id is (`/content`), under any `Content-Type`: it is kept.")
            .with_query(schema_of::<AssetContentQuery>())
            .with_media_body("application/octet-stream", RouteSchema::Any)
            .with_refusals(&[400, 413])),
        route("get", "/api/v1/secrets", RouteAccess::AnyCaller, secrets::list)
            .with_summary("listSecrets", "Names of secrets; no route gives a value.")
            .with_answer(200, "The names, sorted.", schema_of::<SecretNamesView>()),
        route("put", "/api/v1/secrets/{name}", RouteAccess::AnyCaller, secrets::store)
            .with_summary("storeSecret", "Store a secret, in the stead of one that exists unless `overwrite` is false. Without `hosts` it may go where it could before, a new one nowhere.")
            .with_body(RouteSchema::Arguments("v/ops/secret/set", &[("name", "name")], &[]))
            .with_answer(200, "It is stored.", schema_of::<SecretStoredView>())
            .with_refusals(&[400]),
        route("delete", "/api/v1/secrets/{name}", RouteAccess::AnyCaller, secrets::delete)
            .with_summary("deleteSecret", "Delete a secret.")
            .with_answer(200, "It is gone.", schema_of::<SecretDeletedView>())
            .with_refusals(&[404]),
    ]
}
