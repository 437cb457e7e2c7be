//! `assets`: immutable content under its SHA-256.

use super::Api;
use super::extract::{JsonBody, QueryParams, RawBody, RequestCaller};
use super::problem::Problem;
use super::runs::operate;
use crate::domain::asset::Draft;
use crate::domain::authority::ResourcePath;
use crate::domain::ids::AssetId;
use crate::domain::lattice::Namespace;
use crate::ops::asset::asset_id;
use crate::venue::assets;
use crate::venue::operation::OpError;
use crate::view::request::IdRequest;
use crate::view::to_json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

/// End of a path that names the content instead of the metadata.
const CONTENT: &str = "/content";

/// Keys of a body that `v/ops/asset/store` accepts unchanged.
const STORE_KEYS: [&str; 4] = ["content", "contentText", "contentBase64", "metadata"];

/// Arguments of `v/ops/asset/list`.
#[derive(Serialize)]
struct ListAssetsRequest<'a> {
    offset: u64,
    limit: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    /// Value of the key `type` in the metadata.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    metadata_type: Option<&'a str>,
}

/// Arguments of `v/ops/asset/store` for an asset without content.
#[derive(Serialize)]
struct StoreMetadataRequest {
    metadata: Map<String, Value>,
}

/// `GET assets`: a page of hashes, or of metadata with `details=true`. `kind` is `operation` or `data`, as in Covia's
/// API.
pub(super) async fn list(State(api): State<Api>, who: RequestCaller, asked: QueryParams) -> Result<Response, Problem> {
    let request = ListAssetsRequest {
        offset: asked.number("offset")?.unwrap_or(0),
        limit: asked.number("limit")?.unwrap_or(1_000),
        kind: asked.text("kind"),
        metadata_type: asked.text("type"),
    };
    let mut output = operate(&api, &who, "v/ops/asset/list", to_json(&request)).await?;
    if !asked.flag("details")? {
        for item in output.value["items"].as_array_mut().into_iter().flatten() {
            *item = item["hash"].take();
        }
    }
    Ok(axum::Json(output.value).into_response())
}

/// `POST assets`: stores as `v/ops/asset/store` does; a body without content is metadata. The answer is the hash as a
/// JSON string.
pub(super) async fn store(
    State(api): State<Api>,
    who: RequestCaller,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let is_metadata =
        |body: &Map<String, Value>| !body.is_empty() && !STORE_KEYS.iter().any(|key| body.contains_key(*key));
    let body = match body {
        Value::Object(metadata) if is_metadata(&metadata) => to_json(&StoreMetadataRequest { metadata }),
        body => body,
    };
    let output = operate(&api, &who, "v/ops/asset/store", body).await?;
    let status = if output.value["existed"] == true { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, axum::Json(output.value["hash"].clone())).into_response())
}

/// `GET assets/{id}` returns metadata, `GET assets/{id}/content` the bytes.
pub(super) async fn get(
    State(api): State<Api>,
    who: RequestCaller,
    Path(path): Path<String>,
) -> Result<Response, Problem> {
    if let Some(id) = path.strip_suffix(CONTENT) {
        return content(&api, &who, &asset_id(id)?).await;
    }
    let id = asset_id(&path)?;
    let mut output = operate(&api, &who, "v/ops/asset/get", to_json(&IdRequest { id: id.as_str() })).await?;
    if output.value["exists"] == false {
        return Err(missing_asset(&id));
    }
    if let Value::Object(map) = &mut output.value {
        map.shift_remove("exists");
    }
    Ok(([etag(&id)], axum::Json(output.value)).into_response())
}

/// Returns the bytes with headers that keep browsers from showing them as a page of this API, whatever their type.
async fn content(api: &Api, who: &RequestCaller, id: &AssetId) -> Result<Response, Problem> {
    let permitted = who.caller.authority.permits("crud/read", ResourcePath::asset(id));
    permitted.map_err(|denied| OpError::Denied(denied.model_text("v/ops/asset/content")))?;
    let asset = assets::read_content(&api.venue, who.owner(), id).await?.ok_or_else(|| missing_asset(id))?;
    let bytes = HeaderValue::from_static("application/octet-stream");
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_str(&asset.record.content_type).unwrap_or(bytes)),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'")),
        etag(id),
    ];
    Ok((headers, asset.bytes).into_response())
}

/// `PUT assets/{id}/content`: stores the bytes whose SHA-256 is the id.
pub(super) async fn put(
    State(api): State<Api>,
    who: RequestCaller,
    Path(path): Path<String>,
    headers: HeaderMap,
    asked: QueryParams,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    let Some(id) = path.strip_suffix(CONTENT) else {
        return Err(Problem::not_found(format!("no route `PUT /api/v1/assets/{path}`, expected `…/content`")));
    };
    let (id, actual) = (asset_id(id)?, AssetId::of_content(&body));
    if id != actual {
        return Err(Problem::bad_request(format!("expected content with the SHA-256 `{id}`, got `{actual}`")));
    }
    let permitted = who.caller.authority.permits("asset/store", ResourcePath::whole_namespace(Namespace::Assets));
    permitted.map_err(|denied| OpError::Denied(denied.model_text("v/ops/asset/store")))?;
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let (name, kind) = (asked.text("name").map(str::to_owned), given.unwrap_or("application/octet-stream"));
    let draft = Draft::new(body.to_vec(), kind, name, None, api.venue.now());
    let draft = draft.map_err(Problem::bad_request)?;
    let (_, _, existed) = assets::put(&api.venue, who.owner(), &draft).await?;
    let status = if existed { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, [etag(&id)], axum::Json(id)).into_response())
}

fn missing_asset(id: &AssetId) -> Problem {
    Problem::not_found(format!("no asset `{id}`"))
}

fn etag(id: &AssetId) -> (header::HeaderName, HeaderValue) {
    let tag = HeaderValue::from_str(&format!("\"0x{id}\""));
    (header::ETAG, tag.expect("hex digits are legal"))
}
