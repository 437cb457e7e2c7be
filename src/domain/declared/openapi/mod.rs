//! Declarations of the operations of an OpenAPI document, 3.0 or 3.1.
//!
//! Only what a declaration needs is read: servers, parameters, bodies, security and schemas. A crate with types of the
//! whole standard would refuse documents for parts that nobody asks for.

mod input;
mod schema;

use self::input::InputBuilder;
use self::schema::{SchemaReader, resolve_reference};
use super::{DeclaredEffect, DeclaredMethod, HttpDeclaration, ToolDeclaration};
use crate::ids::secret::SecretName;
use crate::limits::{IMPORTED_SCHEMAS, IMPORTED_TOOLS, PUBLISHED_NAME_BYTES, PUBLISHED_SCHEMA_BYTES};
use crate::nearest::did_you_mean;
use crate::secret::SecretReference;
use crate::visible::{cut_at, quote_foreign};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of the description of an imported tool.
const DESCRIPTION_BYTES: usize = 1_024;

/// Methods whose operations are imported, as the keys of a path.
const METHODS: [(&str, DeclaredMethod); 5] = [
    ("get", DeclaredMethod::Get),
    ("post", DeclaredMethod::Post),
    ("put", DeclaredMethod::Put),
    ("patch", DeclaredMethod::Patch),
    ("delete", DeclaredMethod::Delete),
];

/// What is imported of a document.
#[derive(Debug, Clone, Default)]
pub struct ImportChoice {
    /// Ids of the operations; empty = all.
    pub only: Vec<String>,
    /// URL of the server in the place of that of the document.
    pub server: Option<String>,
    /// Secret that is sent where an operation asks for one; by default one of the scheme's name.
    pub secret: Option<SecretName>,
    /// Whether results are checked against the schemas of the document.
    pub checks_results: bool,
}

/// Operations of a document as declarations.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ImportedTools {
    /// Declarations, in the order of the document.
    pub tools: Vec<ToolDeclaration>,
    /// Operations that can't be declared, each with the reason.
    pub skipped: Vec<(String, OpenApiError)>,
}

/// Why a document, or an operation of it, makes no declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenApiError {
    /// The document is of another version, or none.
    #[error("expected an OpenAPI document with `openapi: 3.0.x` or `3.1.x`, got {found}")]
    Version {
        /// Version of the document, in words.
        found: String,
    },
    /// The document has no operation with a wanted id.
    #[error("no operation `{}`{hint}", quote_foreign(.id))]
    NoOperation {
        /// The wanted id.
        id: String,
        /// The nearest id, as a text.
        hint: String,
    },
    /// The document has too many operations for one import.
    #[error("the document has {found} operations, expected at most {IMPORTED_TOOLS}: name some")]
    TooMany {
        /// Number of operations.
        found: usize,
    },
    /// The document names no server with a scheme and a host.
    #[error("the document's server is `{}`, expected a URL with a host: name one", quote_foreign(.found))]
    Server {
        /// URL of the server as it is given.
        found: String,
    },
    /// A reference leads to another document.
    #[error("the reference `{}` leads out of the document: bundle it into one", quote_foreign(.reference))]
    ForeignReference {
        /// The reference as given.
        reference: String,
    },
    /// A reference leads to nothing, or back to itself.
    #[error("the reference `{}` leads to nothing", quote_foreign(.reference))]
    MissingTarget {
        /// The reference as given.
        reference: String,
    },
    /// A schema is too large with those that it refers to.
    #[error(
        "its schemas refer to more than {PUBLISHED_SCHEMA_BYTES} bytes of others, or to more than {IMPORTED_SCHEMAS}"
    )]
    SchemaSize,
    /// A required parameter is sent where, or in a form in which, no declaration can send it.
    #[error("the parameter `{}` in `{place}` can't be declared", quote_foreign(.name))]
    Parameter {
        /// Name of the parameter.
        name: String,
        /// Place of the parameter.
        place: String,
    },
    /// The body has no content type that a declaration can send.
    #[error("the body is of `{}`, expected JSON, a form or text", quote_foreign(.found))]
    Body {
        /// Content types of the body.
        found: String,
    },
    /// Credentials are sent otherwise than in a header.
    #[error("the security scheme `{}` isn't one of a header", quote_foreign(.scheme))]
    Security {
        /// Name of the scheme.
        scheme: String,
    },
    /// The declaration breaks a rule.
    #[error("{reason}")]
    Rule {
        /// Text of the rule.
        reason: String,
    },
}

/// An operation of a document with the place where it stands.
struct DocumentOperation<'d> {
    id: String,
    path: &'d str,
    method: DeclaredMethod,
    /// The item of its path, which all operations of the path share.
    item: &'d Value,
    operation: &'d Value,
}

/// Returns the declarations of a document's operations. One that is wanted by its id and can't be declared is an error.
pub fn import(document: &Value, choice: &ImportChoice) -> Result<ImportedTools, OpenApiError> {
    check_version(document)?;
    let mut imported = ImportedTools::default();
    let all = list_operations(document, &mut imported.skipped);
    if !choice.only.is_empty() {
        imported.skipped.clear();
    }
    let ids: Vec<&str> = all.iter().map(|one| one.id.as_str()).collect();
    if let Some(id) = choice.only.iter().find(|id| !ids.contains(&id.as_str())) {
        return Err(OpenApiError::NoOperation { id: id.clone(), hint: did_you_mean(id, &ids) });
    }
    let wanted: Vec<_> = all.iter().filter(|one| choice.only.is_empty() || choice.only.contains(&one.id)).collect();
    if wanted.len() > IMPORTED_TOOLS {
        return Err(OpenApiError::TooMany { found: wanted.len() });
    }
    let mut names = BTreeSet::new();
    for one in wanted {
        match declare(document, one, choice, &mut names) {
            Ok(tool) => imported.tools.push(tool),
            Err(error) if choice.only.is_empty() => imported.skipped.push((one.id.clone(), error)),
            Err(error) => {
                return Err(OpenApiError::Rule { reason: format!("operation `{}`: {error}", quote_foreign(&one.id)) });
            }
        }
    }
    Ok(imported)
}

fn check_version(document: &Value) -> Result<(), OpenApiError> {
    let found = match (document["openapi"].as_str(), document["swagger"].as_str()) {
        (Some(version), _) if version.starts_with("3.0") || version.starts_with("3.1") => return Ok(()),
        (Some(version), _) => format!("`{}`", quote_foreign(version)),
        (None, Some(version)) => format!("`swagger: {}`; convert it first", quote_foreign(version)),
        (None, None) => "neither".to_owned(),
    };
    Err(OpenApiError::Version { found })
}

/// Returns the operations of a document. Paths that are described elsewhere are added to `skipped`.
fn list_operations<'d>(document: &'d Value, skipped: &mut Vec<(String, OpenApiError)>) -> Vec<DocumentOperation<'d>> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        let item = match resolve_reference(document, item) {
            Ok(item) => item,
            Err(error) => {
                skipped.push((path.clone(), error));
                continue;
            }
        };
        for (key, method) in METHODS {
            let Some(operation) = item.get(key).filter(|operation| operation.is_object()) else { continue };
            let id = operation["operationId"].as_str().map_or_else(|| format!("{key} {path}"), str::to_owned);
            found.push(DocumentOperation { id, path, method, item, operation });
        }
    }
    found
}

/// Makes the declaration of an operation; `names` are those of the tools before it.
fn declare(
    document: &Value,
    one: &DocumentOperation<'_>,
    choice: &ImportChoice,
    names: &mut BTreeSet<String>,
) -> Result<ToolDeclaration, OpenApiError> {
    let mut schemas = SchemaReader::new(document);
    let mut input = InputBuilder::default();
    for parameter in merged_parameters(document, one)? {
        input.add_parameter(&mut schemas, parameter)?;
    }
    if let Some(body) = one.operation.get("requestBody") {
        input.add_body(&mut schemas, resolve_reference(document, body)?)?;
    }
    add_credentials(document, one, choice, &mut input)?;
    let output = if choice.checks_results { result_schema(document, one)? } else { None };
    let url = format!("{}{}", server_url(document, one, choice)?, input.rename_in_path(one.path));
    let repeatable = matches!(one.method, DeclaredMethod::Put | DeclaredMethod::Delete);
    let (schema, request) = input.finish(schemas);
    let http = HttpDeclaration {
        method: one.method,
        url,
        query: request.query,
        headers: request.headers,
        body: request.body,
        content_type: request.content_type,
        // The standard of HTTP promises that a second request of these methods does no more.
        effect: repeatable.then_some(DeclaredEffect::Repeatable),
        timeout: None,
        result: None,
        output,
        status: BTreeMap::new(),
    };
    let tool = ToolDeclaration {
        name: free_name(&one.id, names),
        description: description(one),
        input: Some(schema),
        http: Some(Box::new(http)),
        jobs: None,
    };
    tool.check().map_err(|error| OpenApiError::Rule { reason: error.to_string() })?;
    names.insert(tool.name.clone());
    Ok(tool)
}

/// Returns the parameters of an operation: its own, and those of its path that it doesn't replace.
fn merged_parameters<'d>(document: &'d Value, one: &DocumentOperation<'d>) -> Result<Vec<&'d Value>, OpenApiError> {
    let mut merged: Vec<&Value> = Vec::new();
    for place in [one.operation, one.item] {
        for parameter in place["parameters"].as_array().into_iter().flatten() {
            let parameter = resolve_reference(document, parameter)?;
            let is_same = |other: &&Value| other["name"] == parameter["name"] && other["in"] == parameter["in"];
            if !merged.iter().any(is_same) {
                merged.push(parameter);
            }
        }
    }
    Ok(merged)
}

/// Returns the URL of the server, without a slash at its end.
fn server_url(document: &Value, one: &DocumentOperation<'_>, choice: &ImportChoice) -> Result<String, OpenApiError> {
    if let Some(server) = &choice.server {
        return Ok(server.trim_end_matches('/').to_owned());
    }
    let server = [one.operation, one.item, document].iter().find_map(|place| place["servers"].get(0));
    let given = server.and_then(|server| server["url"].as_str()).unwrap_or("/");
    let mut url = given.to_owned();
    for (name, variable) in server.and_then(|server| server["variables"].as_object()).into_iter().flatten() {
        if let Some(default) = variable["default"].as_str() {
            url = url.replace(&format!("{{{name}}}"), default);
        }
    }
    let has_host = url.starts_with("https://") || url.starts_with("http://");
    if !has_host || url.contains(['{', '}', '?', '#']) {
        return Err(OpenApiError::Server { found: given.to_owned() });
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// Adds the headers of the first security requirement of an operation, as references to secrets.
fn add_credentials(
    document: &Value,
    one: &DocumentOperation<'_>,
    choice: &ImportChoice,
    input: &mut InputBuilder,
) -> Result<(), OpenApiError> {
    let security = one.operation.get("security").unwrap_or(&document["security"]);
    let requirements: Vec<&Map<String, Value>> =
        security.as_array().into_iter().flatten().filter_map(Value::as_object).collect();
    // An empty requirement means that credentials may be left out.
    if requirements.iter().any(|requirement| requirement.is_empty()) && choice.secret.is_none() {
        return Ok(());
    }
    let Some(first) = requirements.iter().find(|requirement| !requirement.is_empty()) else { return Ok(()) };
    for (scheme, _) in *first {
        let declared = resolve_reference(document, &document["components"]["securitySchemes"][scheme.as_str()])?;
        let unusable = || OpenApiError::Security { scheme: scheme.clone() };
        let (header, prefix) = match (declared["type"].as_str(), declared["in"].as_str()) {
            (Some("apiKey"), Some("header")) => (declared["name"].as_str().ok_or_else(unusable)?, ""),
            (Some("http"), _) if is_word(&declared["scheme"], "bearer") => ("Authorization", "Bearer "),
            // The secret holds user and password in Base64.
            (Some("http"), _) if is_word(&declared["scheme"], "basic") => ("Authorization", "Basic "),
            (Some("oauth2" | "openIdConnect"), _) => ("Authorization", "Bearer "),
            _ => return Err(unusable()),
        };
        let name = match &choice.secret {
            Some(name) => name.clone(),
            None => SecretName::new(&secret_name(scheme)).map_err(|_| unusable())?,
        };
        let secret = SecretReference { name, prefix: prefix.to_owned() };
        input.add_header(header, secret.to_value());
    }
    Ok(())
}

fn is_word(value: &Value, word: &str) -> bool {
    value.as_str().is_some_and(|text| text.eq_ignore_ascii_case(word))
}

/// Returns the name of the secret of a security scheme: `petstore_auth` becomes `PETSTORE_AUTH`.
fn secret_name(scheme: &str) -> String {
    scheme.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// Returns the schema of the first successful answer in JSON.
fn result_schema(document: &Value, one: &DocumentOperation<'_>) -> Result<Option<Value>, OpenApiError> {
    let responses = one.operation["responses"].as_object().into_iter().flatten();
    for (_, response) in responses.filter(|(status, _)| status.starts_with('2')) {
        let response = resolve_reference(document, response)?;
        let mut content = response["content"].as_object().into_iter().flatten();
        let json = content.find(|(kind, _)| input::is_json(kind));
        if let Some(schema) = json.and_then(|(_, media)| media.get("schema")) {
            let mut schemas = SchemaReader::new(document);
            let schema = schemas.read(schema)?;
            return Ok(Some(schemas.with_definitions(schema)));
        }
    }
    Ok(None)
}

/// Returns a legal name for an operation that no other tool has.
fn free_name(id: &str, names: &BTreeSet<String>) -> String {
    let plain: String = id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
    let mut plain = plain.split('_').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_");
    if plain.is_empty() {
        plain.push_str("operation");
    }
    let cut = |room: usize| plain.chars().take(room).collect::<String>();
    let first = cut(PUBLISHED_NAME_BYTES);
    let others = (2..=IMPORTED_TOOLS + 1).map(|n| format!("{}_{n}", cut(PUBLISHED_NAME_BYTES - 4)));
    std::iter::once(first).chain(others).find(|name| !names.contains(name)).unwrap_or_default()
}

fn description(one: &DocumentOperation<'_>) -> String {
    let text = |key: &str| one.operation[key].as_str().map(str::trim).filter(|text| !text.is_empty());
    let whole = match (text("summary"), text("description")) {
        (Some(summary), Some(more)) if more.starts_with(summary.trim_end_matches('.')) => more.to_owned(),
        (Some(summary), Some(more)) => format!("{}. {more}", summary.trim_end_matches('.')),
        (Some(one), None) | (None, Some(one)) => one.to_owned(),
        (None, None) => format!("{} {}", one.method.as_str(), one.path),
    };
    let line = whole.split_whitespace().collect::<Vec<_>>().join(" ");
    cut_at(&line, DESCRIPTION_BYTES)
}

#[cfg(test)]
mod tests;
