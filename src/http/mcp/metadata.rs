//! What a client finds out before it has a token: where the server is, and where tokens come from (RFC 9728).

use super::client::supported_versions;
use crate::domain::mcp::oauth::client::ClientMetadata;
use crate::domain::mcp::oauth::location::client_metadata_url;
use crate::http::Api;
use crate::http::problem::Problem;
use crate::view::mcp::{McpAddressView, McpEndpointView, ProtectedResourceView};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Path of the MCP server.
const PATH: &str = "/mcp";
/// Path of its metadata: the well-known one, with the server's own path behind it.
const METADATA_PATH: &str = "/.well-known/oauth-protected-resource/mcp";

fn address(api: &Api, path: &str) -> String {
    format!("{}{path}", api.options.public_url())
}

/// `GET /.well-known/mcp`: says where the server is, in the form that Covia's clients read.
pub(in crate::http) async fn server_address(State(api): State<Api>) -> Response {
    let found = McpAddressView {
        mcp_version: supported_versions().first().copied().unwrap_or_default(),
        server_url: address(&api, ""),
        description: "Agents and jobs of this venue, for clients of the Model Context Protocol.",
        tools_endpoint: address(&api, PATH),
        endpoint: McpEndpointView { path: PATH, transport: "streamable-http" },
    };
    axum::Json(found).into_response()
}

/// `GET /.well-known/oauth-protected-resource[/mcp]`: says who issues tokens for the venue.
pub(in crate::http) async fn protected_resource(State(api): State<Api>) -> Result<Response, Problem> {
    if !api.options.auth.is_required() {
        return Err(Problem::not_found("this venue takes no tokens (`auth.mode = \"none\"`)"));
    }
    let metadata = ProtectedResourceView {
        resource: address(&api, PATH),
        authorization_servers: api.options.authorization_servers.clone(),
        bearer_methods_supported: ["header"],
        resource_name: api.venue.name.clone(),
    };
    Ok(axum::Json(metadata).into_response())
}

/// `GET /client-metadata.json`: describes the venue as a client of login servers, which ask for it.
pub(in crate::http) async fn client_metadata(State(api): State<Api>) -> Result<Response, Problem> {
    let url = client_metadata_url(api.options.public_url());
    let url =
        url.ok_or_else(|| Problem::not_found("this venue has no public address (`http.public`) with `https://`"))?;
    Ok(axum::Json(ClientMetadata::at_url(&api.venue.name, url)).into_response())
}

/// Adds the address of the metadata to the challenge of an answer 401.
pub(in crate::http) async fn add_challenge(State(api): State<Api>, request: Request, next: Next) -> Response {
    let is_mcp = request.uri().path() == PATH;
    let mut response = next.run(request).await;
    if !is_mcp || response.status() != StatusCode::UNAUTHORIZED {
        return response;
    }
    let known = response.headers().get(header::WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
    let challenge = known.map(|known| format!("{known}, resource_metadata=\"{}\"", address(&api, METADATA_PATH)));
    if let Some(challenge) = challenge.and_then(|text| HeaderValue::from_str(&text).ok()) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}
