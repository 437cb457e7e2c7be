//! Routes of the Model Context Protocol, and those by which Covia's clients look for protocols. The protocols describe
//! them; the API's description doesn't.

use super::builders::route;
use crate::domain::mcp::oauth::location::CLIENT_METADATA_PATH;
use crate::http::route::{Route, RouteAccess, RouteSchema};
use crate::http::{catalog, mcp};

pub(super) fn routes() -> Vec<Route> {
    let metadata = |path| {
        route("get", path, RouteAccess::Public, mcp::protected_resource)
            .with_summary("protectedResource", "Who issues tokens for the venue (RFC 9728).")
            .with_answer(200, "The metadata.", RouteSchema::Map)
    };
    vec![
        route("post", "/mcp", RouteAccess::AnyCaller, mcp::post)
            .with_value_reads()
            .with_summary("mcp", "One message of the Model Context Protocol.")
            .with_body(RouteSchema::Map)
            .with_answer(200, "The answer, or a stream that ends with it.", RouteSchema::Map),
        metadata("/.well-known/oauth-protected-resource"),
        metadata("/.well-known/oauth-protected-resource/mcp"),
        route("get", CLIENT_METADATA_PATH, RouteAccess::Public, mcp::client_metadata)
            .with_summary("clientMetadata", "The venue as a client of the login servers of other servers.")
            .with_answer(200, "The description.", RouteSchema::Map),
        route("get", "/.well-known/mcp", RouteAccess::Public, mcp::server_address)
            .with_summary("mcpAddress", "Where the server of the Model Context Protocol is, for Covia's clients.")
            .with_answer(200, "Its address.", RouteSchema::Map),
        route("get", "/.well-known/agent-card.json", RouteAccess::Public, catalog::venue_card)
            .with_summary("venueCard", "Name and version of the venue as an agent card, for Covia's clients.")
            .with_answer(200, "The card.", RouteSchema::Map),
    ]
}
