//! Routes of the Agent2Agent protocol. The protocol describes them; the API's description doesn't. Only cards are open:
//! whoever publishes an agent shows its card.

use super::builders::route;
use crate::http::Api;
use crate::http::a2a::{card, rest, rpc};
use crate::http::route::{Route, RouteAccess, RouteSchema};
use axum::handler::Handler;

pub(super) fn routes() -> Vec<Route> {
    let public_card = "/a2a/{tenant}/{user}/{agent}/.well-known/agent-card.json";
    let notifications = "/a2a/{tenant}/{user}/{agent}/tasks/{task}/pushNotificationConfigs";
    let notification = "/a2a/{tenant}/{user}/{agent}/tasks/{task}/pushNotificationConfigs/{config}";
    vec![
        route("get", public_card, RouteAccess::Public, card::public),
        post_route("/a2a/{tenant}/{user}/{agent}", rpc::call),
        // Clients that join an empty path to the address.
        post_route("/a2a/{tenant}/{user}/{agent}/", rpc::call),
        post_route("/a2a/{tenant}/{user}/{agent}/message:send", rest::send),
        post_route("/a2a/{tenant}/{user}/{agent}/message:stream", rest::stream),
        get_route("/a2a/{tenant}/{user}/{agent}/extendedAgentCard", rest::extended_card),
        get_route("/a2a/{tenant}/{user}/{agent}/tasks", rest::list),
        get_route("/a2a/{tenant}/{user}/{agent}/tasks/{task}", rest::get),
        post_route("/a2a/{tenant}/{user}/{agent}/tasks/{task}", rest::act),
        get_route(notifications, rest::list_notifications),
        post_route(notifications, rest::create_notification),
        get_route(notification, rest::get_notification),
        route("delete", notification, RouteAccess::AnyCaller, rest::delete_notification),
    ]
}

/// A route whose answer may hold tasks with their messages, files and outputs.
fn get_route<H, T>(path: &'static str, handler: H) -> Route
where
    H: Handler<T, Api>,
    T: 'static,
{
    route("get", path, RouteAccess::AnyCaller, handler).with_value_reads()
}

fn post_route<H, T>(path: &'static str, handler: H) -> Route
where
    H: Handler<T, Api>,
    T: 'static,
{
    route("post", path, RouteAccess::AnyCaller, handler).with_value_reads().with_optional_body(RouteSchema::Any)
}
