//! Arguments of an imported operation: parameters and body as properties of one map, with their places in the request.

use super::OpenApiError;
use super::schema::{ANY_VALUE, SchemaReader, resolve_reference};
use serde_json::{Map, Value, json};

/// Places of the arguments in the request.
#[derive(Debug, Default)]
pub(super) struct RequestParts {
    pub(super) query: Map<String, Value>,
    pub(super) headers: Map<String, Value>,
    pub(super) body: Option<Value>,
    pub(super) content_type: Option<String>,
}

/// Collects the arguments of an operation.
#[derive(Debug, Default)]
pub(super) struct InputBuilder {
    properties: Map<String, Value>,
    required: Vec<Value>,
    /// Parameters of the path with the names of their arguments.
    path: Vec<(String, String)>,
    request: RequestParts,
}

/// Whether a content type is one of JSON.
pub(super) fn is_json(kind: &str) -> bool {
    let plain = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    plain == "application/json" || plain.ends_with("+json")
}

fn is_form(kind: &str) -> bool {
    kind.to_ascii_lowercase().starts_with("application/x-www-form-urlencoded")
}

fn is_text(kind: &str) -> bool {
    kind.to_ascii_lowercase().starts_with("text/")
}

/// Whether a parameter is sent in another form than declarations write: a map as several parameters, a list in one text,
/// or JSON.
fn is_sent_otherwise(parameter: &Value, place: &str, schema: &Value) -> bool {
    let kind = &schema["type"];
    let may_be = |name: &str| kind == name || kind.as_array().is_some_and(|kinds| kinds.contains(&name.into()));
    let is_in_one_text = parameter["explode"] == false || parameter["content"].is_object();
    let style = parameter["style"].as_str();
    match place {
        "query" => {
            style.is_some_and(|style| style != "form") || may_be("object") || (may_be("array") && is_in_one_text)
        }
        "path" => style.is_some_and(|style| style != "simple"),
        _ => may_be("object") || may_be("array"),
    }
}

impl InputBuilder {
    /// Adds an argument, and returns its name: that of the parameter, in characters that every provider takes.
    fn add_argument(&mut self, name: &str, schema: Value, is_required: bool) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(60).collect();
        let numbered = (2..).map(|n: usize| format!("{plain}_{n}"));
        let is_free = |name: &String| !name.is_empty() && !self.properties.contains_key(name);
        let name = std::iter::once(plain.clone()).chain(numbered).find(is_free).unwrap_or_default();
        self.properties.insert(name.clone(), schema);
        if is_required {
            self.required.push(name.clone().into());
        }
        name
    }

    /// Adds a parameter.
    pub(super) fn add_parameter(
        &mut self,
        schemas: &mut SchemaReader<'_>,
        parameter: &Value,
    ) -> Result<(), OpenApiError> {
        let name = parameter["name"].as_str().unwrap_or_default();
        let place = parameter["in"].as_str().unwrap_or_default();
        let is_required = place == "path" || parameter["required"] == true;
        let unusable = || OpenApiError::Parameter { name: name.to_owned(), place: place.to_owned() };
        if !matches!(place, "path" | "query" | "header") {
            // A cookie that may be left out is left out.
            return if is_required { Err(unusable()) } else { Ok(()) };
        }
        let ignored = ["accept", "content-type", "authorization"];
        if place == "header" && ignored.contains(&name.to_ascii_lowercase().as_str()) {
            return Ok(());
        }
        let content = parameter["content"].as_object().and_then(|content| content.values().next());
        let schema = parameter.get("schema").or_else(|| content?.get("schema")).unwrap_or(&ANY_VALUE);
        if is_sent_otherwise(parameter, place, resolve_reference(schemas.document(), schema)?) {
            return if is_required { Err(unusable()) } else { Ok(()) };
        }
        let mut schema = schemas.read(schema)?;
        if schema.is_boolean() {
            schema = json!({});
        }
        if let (Some(text), Value::Object(fields)) = (parameter["description"].as_str(), &mut schema)
            && !fields.contains_key("description")
            && !fields.contains_key("$ref")
        {
            fields.insert("description".into(), text.trim().into());
        }
        let argument = self.add_argument(name, schema, is_required);
        let template = Value::from(format!("{{{argument}}}"));
        match place {
            "path" => self.path.push((name.to_owned(), argument)),
            "query" => drop(self.request.query.insert(name.to_owned(), template)),
            _ => drop(self.request.headers.insert(name.to_owned(), template)),
        }
        Ok(())
    }

    /// Adds the body. The properties of a map become arguments of their own.
    pub(super) fn add_body(&mut self, schemas: &mut SchemaReader<'_>, body: &Value) -> Result<(), OpenApiError> {
        let content = body["content"].as_object();
        let kinds = || content.into_iter().flatten();
        let choose = |is_it: fn(&str) -> bool| kinds().find(|(kind, _)| is_it(kind));
        let Some((kind, media)) = choose(is_json).or_else(|| choose(is_form)).or_else(|| choose(is_text)) else {
            let found: Vec<&str> = kinds().map(|(kind, _)| kind.as_str()).collect();
            return Err(OpenApiError::Body { found: found.join(", ") });
        };
        let schema = media.get("schema").unwrap_or(&ANY_VALUE);
        if kind != "application/json" {
            self.request.content_type = Some(kind.clone());
        }
        let plain = resolve_reference(schemas.document(), schema)?;
        let fields = plain["properties"].as_object().filter(|fields| !fields.is_empty());
        let is_whole = ["allOf", "anyOf", "oneOf"].iter().any(|key| plain.get(key).is_some());
        let body = if let Some(fields) = fields.filter(|_| !is_whole && !is_text(kind)) {
            let mut template = Map::new();
            for (name, field) in fields.iter().filter(|(_, field)| field["readOnly"] != true) {
                let is_required =
                    plain["required"].as_array().is_some_and(|names| names.contains(&Value::from(name.as_str())));
                let field = schemas.read(field)?;
                let argument = self.add_argument(name, field, is_required);
                template.insert(name.clone(), format!("{{{argument}}}").into());
            }
            Value::Object(template)
        } else {
            let schema = schemas.read(schema)?;
            let schema = if schema.is_boolean() { json!({}) } else { schema };
            let argument = self.add_argument("body", schema, body["required"] == true);
            format!("{{{argument}}}").into()
        };
        self.request.body = Some(body);
        Ok(())
    }

    /// Adds a header that is no argument.
    pub(super) fn add_header(&mut self, name: &str, value: Value) {
        self.request.headers.insert(name.to_owned(), value);
    }

    /// Returns a path with the names of the arguments in its braces.
    pub(super) fn rename_in_path(&self, path: &str) -> String {
        let rename = |path: String, (name, argument): &(String, String)| {
            path.replace(&format!("{{{name}}}"), &format!("{{{argument}}}"))
        };
        self.path.iter().fold(path.to_owned(), rename)
    }

    /// Returns the schema of the arguments, and their places.
    pub(super) fn finish(self, schemas: SchemaReader<'_>) -> (Value, RequestParts) {
        let Self { properties, required, request, .. } = self;
        let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
        if !required.is_empty() {
            schema["required"] = Value::Array(required);
        }
        (schemas.with_definitions(schema), request)
    }
}
