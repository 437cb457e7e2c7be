//! The description of the API (`OpenAPI` 3.1), made from the list of routes and their types at the first request.
//!
//! It uses `schemars` and the list: `utoipa` would describe each route a second time, in an attribute beside its
//! handler, and add twice as many crates; the operations' arguments need `schemars` anyway.

mod links;
mod path_parameters;
mod portable;
pub(super) mod queries;
mod refine;

use super::extract::{KEY_HEADER, OWNER_HEADER, TASK_HEADER};
use super::problem::PROBLEM_JSON;
use super::route::{ArgumentNames, MediaSchema, Route, RouteAccess, RouteDescription, RouteSchema};
use crate::domain::agent::schema as agent;
use crate::domain::event::{NAME, Submission};
use crate::domain::limits::SECRET_BYTES_LEAST;
use crate::domain::patch::merge;
use crate::ops;
use crate::venue::operation::CatalogView;
use crate::view::problem::ProblemView;
use portable::{LARGEST_NUMBER, make_portable};
use refine::refine_schema;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Name of the schema of messages, a submission with fewer keys.
const MESSAGE: &str = "Message";

/// Returns the names that the query of a route may have; its operation's arguments where it runs one.
pub(super) fn query_names(about: &RouteDescription) -> Vec<String> {
    let Some(query) = about.query else { return Vec::new() };
    let schema = DescriptionWriter::new().inline_schema(query);
    schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

/// Where references point to schemas of the document.
const SCHEMAS: &str = "#/components/schemas/";

/// Makes the description of these routes.
pub(super) fn document(routes: &[Route]) -> Value {
    let mut writer = DescriptionWriter::new();
    let mut paths = Map::new();
    for route in routes {
        let item = paths.entry(route.path.replace("{*", "{")).or_insert_with(|| json!({}));
        if item.get("parameters").is_none() {
            item["parameters"] = parameters(route).into();
        }
        item[route.method] = writer.operation(route, routes);
    }
    let mut schemas = writer.generator.take_definitions(true);
    schemas.extend(writer.schemas);
    for (name, more) in refine::type_rules() {
        merge(&mut schemas[name], more);
    }
    schemas.insert(MESSAGE.to_owned(), refine::message_schema(&schemas["Submission"]));
    for schema in schemas.values_mut() {
        make_portable(schema);
    }
    let names = public_names(&schemas);
    schemas = schemas.into_iter().map(|(name, schema)| (names.get(&name).cloned().unwrap_or(name), schema)).collect();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Trellis", "version": "1", "description": INTRODUCTION, "license": license()},
        "servers": [{"url": "/", "description": "The venue that sent this document."}],
        "tags": tags(&paths),
        "paths": paths,
        "security": [{}, {"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": TOKEN}},
            "parameters": headers(),
            "responses": {"Problem": problem()},
            "links": links::list_links(routes),
            "schemas": schemas,
        },
    });
    change_references(&mut document, &|reference| {
        let name = reference.strip_prefix(SCHEMAS)?;
        names.get(name).map(|public| format!("{SCHEMAS}{public}"))
    });
    document
}

/// Returns public names of schemas by the names of their types: `Job` of `JobView`, where no other type has that name.
fn public_names(schemas: &Map<String, Value>) -> BTreeMap<String, String> {
    let short = schemas.keys().filter_map(|name| Some((name.clone(), name.strip_suffix("View")?.to_owned())));
    short.filter(|(_, public)| !schemas.contains_key(public)).collect()
}

const INTRODUCTION: &str = "Covia's REST API in front of Trellis. Errors are RFC 9457 problem details of at most 4 KB with an `error` string of at most 1024 bytes; only what is no HTTP request that can be read (a line or headers over the limits, forbidden characters in them) is answered by the server itself, without a body. A parameter of the query that is not described here is refused. Without authentication only loopback hosts and origins are served.";
const TOKEN: &str = "Where `auth.mode` is `jwt`: an EdDSA token for the venue's `did`, see `GET /api/v1/status`.";
const KEY: &str = "The caller's own id of a submission, up to 128 bytes without spaces or `/`: the same request again is answered with the same job, another request under the same key, or another caller or authority, is a conflict. Keys that begin with `venue:` are refused. `run` uses it for requests, messages and chats to agents.";

fn license() -> Value {
    let terms = env!("CARGO_PKG_LICENSE");
    json!({"name": terms, "identifier": terms})
}

/// Returns the group of a path, by which generated clients sort their functions: `jobs` of `/api/v1/jobs/{id}`.
fn group(path: &str) -> String {
    let path = path.trim_start_matches("/api/v1").trim_start_matches("/.well-known");
    let first = path.split('/').find(|segment| !segment.is_empty()).unwrap_or(path);
    first.trim_end_matches(".json").to_owned()
}

/// Returns each group of these paths once.
fn tags(paths: &Map<String, Value>) -> Vec<Value> {
    let groups: BTreeSet<String> = paths.keys().map(|path| group(path)).collect();
    groups.into_iter().map(|name| json!({"name": name})).collect()
}

/// Returns the headers that routes accept, by name.
fn headers() -> Value {
    let header = |name: &str, about: &str, schema: Value| json!({"name": name, "in": "header", "required": false, "description": about, "schema": schema});
    let half = "(?!\\.{1,2}(/|$))[^\\s/\\u0000-\\u001f\\u007f]{1,128}";
    json!({
        "Owner": header(OWNER_HEADER, "`tenant/user`.", json!({"type": "string", "default": "local/me", "pattern": format!("^{half}/{half}$")})),
        "IdempotencyKey": header(KEY_HEADER, KEY, json!({"type": "string", "pattern": "^(?!venue:|\\.{1,2}$)[!#-.0-~]{1,128}$"})),
        "Task": header(TASK_HEADER, "Job of the task that `v/ops/agent/complete-task` and `fail-task` end when their input names none.", json!({"type": "string"})),
    })
}

fn problem() -> Value {
    let about = json!({"description": "Seconds; with 429 and 503.", "schema": {"type": "integer", "minimum": 0}});
    json!({
        "description": "What went wrong.",
        "headers": {"Retry-After": about},
        "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/ProblemView"}}},
    })
}

fn parameter_of(name: &str) -> Value {
    json!({"$ref": format!("#/components/parameters/{name}")})
}

/// Returns the parameters of all methods of a path.
fn parameters(route: &Route) -> Vec<Value> {
    let owner = (route.access != RouteAccess::Public || route.about.id == "status").then(|| parameter_of("Owner"));
    owner.into_iter().chain(path_parameters::describe_all(route.path)).collect()
}

/// Collects the schemas of types and operations.
struct DescriptionWriter {
    generator: SchemaGenerator,
    schemas: Map<String, Value>,
    catalog: &'static CatalogView,
}

impl DescriptionWriter {
    fn new() -> Self {
        // Calls to hosts are disabled: nothing runs.
        static CATALOG: LazyLock<CatalogView> = LazyLock::new(|| ops::catalog(false).compiled_view());
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        let mut generator = settings.into_generator();
        generator.subschema_for::<ProblemView>();
        Self { generator, schemas: Map::new(), catalog: &CATALOG }
    }

    fn operation(&mut self, route: &Route, all: &[Route]) -> Value {
        let about = &route.about;
        let mut operation = json!({"operationId": about.id, "summary": about.summary, "tags": [group(route.path)]});
        let mut parameters = about.query.map(|query| self.query(query)).unwrap_or_default();
        parameters.extend(about.has_idempotency_key.then(|| parameter_of("IdempotencyKey")));
        parameters.extend(about.has_task_header.then(|| parameter_of("Task")));
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        if let Some((content, required)) = about.body {
            let mut said = self.content(&[content]);
            if !required {
                // Null counts as no body.
                let schema = &mut said[content.0]["schema"];
                *schema = json!({"anyOf": [schema.take(), {"type": "null"}]});
            }
            operation["requestBody"] = json!({"required": required, "content": said});
        }
        let mut responses = Map::new();
        for (status, text, content) in &about.answers {
            let mut response = json!({"description": text});
            if !content.is_empty() {
                response["content"] = self.content(content);
            }
            let links = links::from(route, content, all);
            if !links.is_empty() {
                response["links"] = links.into();
            }
            responses.insert(status.to_string(), response);
        }
        let problem = json!({"$ref": "#/components/responses/Problem"});
        responses.extend(about.refusals.iter().map(|status| (status.to_string(), problem.clone())));
        // Every route may refuse a request, e.g. one with an unknown parameter; the server's own errors are `default`.
        responses.insert("4XX".to_owned(), problem.clone());
        responses.insert("default".to_owned(), problem);
        operation["responses"] = responses.into();
        if route.access == RouteAccess::Public {
            operation["security"] = json!([]);
        }
        operation
    }

    fn content(&mut self, content: &[MediaSchema]) -> Value {
        content.iter().map(|(media, shape)| ((*media).to_owned(), json!({"schema": self.schema(*shape)}))).collect()
    }

    fn schema(&mut self, shape: RouteSchema) -> Value {
        let mut schema = match shape {
            RouteSchema::Type(schema) => schema(&mut self.generator).to_value(),
            RouteSchema::Arguments(operation, given, needed) => self.arguments(operation, given, needed),
            RouteSchema::Agent => self.agent(),
            RouteSchema::Message => {
                self.generator.subschema_for::<Submission>();
                json!({"$ref": format!("#/components/schemas/{MESSAGE}")})
            }
            RouteSchema::Map => json!({"type": "object"}),
            RouteSchema::Any => json!({}),
            RouteSchema::NotNull => json!({"type": ["object", "array", "string", "number", "boolean"]}),
        };
        make_portable(&mut schema);
        schema
    }

    /// Returns a schema without references to others.
    fn inline_schema(&mut self, shape: RouteSchema) -> Value {
        let schema = self.schema(shape);
        let name = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()).map(str::to_owned);
        name.and_then(|name| self.generator.definitions_mut().shift_remove(&name)).unwrap_or(schema)
    }

    fn arguments(&mut self, operation: &str, given: ArgumentNames, needed: &[&str]) -> Value {
        let found = self.catalog.resolve(operation).expect("a test reads every route");
        let mut schema = refine_schema(found.spec.input.clone(), operation, &mut self.generator);
        for (_, name) in given {
            if let Some(properties) = schema["properties"].as_object_mut() {
                properties.shift_remove(*name);
            }
            if let Some(required) = schema["required"].as_array_mut() {
                required.retain(|key| key != name);
            }
        }
        add_name_patterns(&mut schema["properties"]);
        if !needed.is_empty() {
            schema["required"] = json!(needed);
        }
        schema
    }

    /// Adds the schema of agent files, and its definitions beside all others.
    fn agent(&mut self) -> Value {
        let mut schema = agent::schema();
        if let Some(map) = schema.as_object_mut() {
            map.shift_remove("$schema");
            if let Some(Value::Object(definitions)) = map.shift_remove("$defs") {
                self.schemas.extend(definitions.into_iter().map(|(name, mut schema)| {
                    move_references(&mut schema);
                    (name, schema)
                }));
            }
            // Over HTTP the path names the agent, and unknown names may be refused.
            map["properties"]["strict"] = json!({"type": "boolean", "description": "As in the query."});
        }
        move_references(&mut schema);
        self.schemas.insert("Agent".to_owned(), schema);
        json!({"$ref": "#/components/schemas/Agent"})
    }

    fn query(&mut self, shape: RouteSchema) -> Vec<Value> {
        let schema = self.inline_schema(shape);
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let named = |(name, schema): (&String, &Value)| {
            let mut schema = without_null(schema.clone());
            let about = schema.as_object_mut().and_then(|map| map.shift_remove("description"));
            let mut parameter = json!({"name": name, "in": "query", "required": required.contains(&json!(name))});
            if let Some(about) = about {
                parameter["description"] = about;
            }
            make_portable(&mut schema);
            parameter["schema"] = schema;
            parameter
        };
        schema["properties"].as_object().into_iter().flatten().map(named).collect()
    }
}

/// Returns the schema of a query parameter: it may be absent, but not null.
fn without_null(mut schema: Value) -> Value {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [one] = types.as_slice() {
            schema["type"] = one.clone();
        }
    }
    schema
}

/// Adds patterns and limits of names and numbers, which operations check when called and prompts don't contain.
fn add_name_patterns(properties: &mut Value) {
    for (key, schema) in properties.as_object_mut().into_iter().flatten() {
        let is_name = ["agentId", "sessionId", "agent", "session", "to"].contains(&key.as_str());
        if is_name && schema["type"] == "string" {
            schema["pattern"] = NAME.into();
        }
        if schema["writeOnly"] == true {
            schema["minLength"] = SECRET_BYTES_LEAST.into();
        }
        if schema["type"] == "integer" && schema["maximum"].is_null() {
            schema["maximum"] = LARGEST_NUMBER.into();
        }
    }
}

/// Changes references into the schema to references into the document.
fn move_references(schema: &mut Value) {
    change_references(schema, &|reference| Some(reference.replace("#/$defs/", SCHEMAS)));
}

/// Puts the reference that `change` returns in place of each `$ref` for which it returns one.
fn change_references(schema: &mut Value, change: &dyn Fn(&str) -> Option<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref")
                && let Some(changed) = change(reference)
            {
                *reference = changed;
            }
            map.values_mut().for_each(|value| change_references(value, change));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| change_references(item, change)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
