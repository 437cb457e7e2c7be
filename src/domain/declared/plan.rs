//! The checked plan of a declared call, and the request that it makes of arguments.

use super::error::{DeclarationError, DeclaredHeaderRule};
use super::status::check_statuses;
use super::template::{ALL_ARGUMENTS, TextTemplate, ValueTemplate, escape_xml, value_text};
use super::url::{UrlFault, UrlTemplate};
use super::{DeclaredEffect, DeclaredMethod, HttpDeclaration, check_schema};
use crate::headers::{is_name, is_of_connection, is_value};
use crate::ids::secret::SecretName;
use crate::limits::{DECLARED_HEADERS, DECLARED_QUERY, DECLARED_REQUEST_BYTES, OPERATION_TIME};
use crate::nearest::did_you_mean;
use crate::percent::percent_encode;
use crate::secret::SecretReference;
use crate::secret::reference::find_references;
use crate::visible::quote_foreign;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Headers by which the venue makes a call known: no declaration sets them.
const VENUE_HEADERS: [&str; 3] = ["traceparent", "tracestate", "trellis-job"];

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Value of a declared header.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HeaderTemplate {
    Text(TextTemplate),
    Secret(SecretReference),
}

/// Body of a declared request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum BodyTemplate {
    /// JSON of a value.
    Json(ValueTemplate),
    /// Fields of a form, by name.
    Form(ValueTemplate),
    /// A text; in XML its arguments are escaped.
    Text { text: TextTemplate, is_xml: bool },
}

/// A declared call whose rules are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpPlan {
    method: DeclaredMethod,
    effect: DeclaredEffect,
    url: UrlTemplate,
    query: Vec<(String, ValueTemplate)>,
    headers: Vec<(String, HeaderTemplate)>,
    /// Body with its content type.
    body: Option<(BodyTemplate, String)>,
}

/// A request with its arguments; secrets are references still.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedRequest {
    /// URL without the parameters of `query`.
    pub url: String,
    /// Parameters of the query.
    pub query: Vec<(String, String)>,
    /// Headers by name: a text, or a reference to a secret.
    pub headers: Map<String, Value>,
    /// Body with its content type.
    pub body: Option<(String, String)>,
}

/// Why arguments make no request; the texts are for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    /// The arguments make no URL.
    #[error(transparent)]
    Url(#[from] UrlFault),
    /// The request would be too large.
    #[error("the request would have {bytes} bytes, expected at most {DECLARED_REQUEST_BYTES}")]
    Large {
        /// Bytes of its texts.
        bytes: usize,
    },
    /// A parameter of the query would be a map.
    #[error("the parameter `{}` of the query would be a map, expected a text, a number or a boolean", quote_foreign(.name))]
    Query {
        /// Name of the parameter.
        name: String,
    },
    /// A header would have characters that no header has.
    #[error("the header `{name}` would have characters that are not allowed in it")]
    Header {
        /// Name of the header.
        name: String,
    },
    /// A field of the form would be a map.
    #[error("the field `{}` of the form would be a map, expected a text, a number or a boolean", quote_foreign(.name))]
    Form {
        /// Name of the field.
        name: String,
    },
}

impl HttpPlan {
    /// Checks a declaration; `input` is the schema of the arguments.
    pub fn new(http: &HttpDeclaration, input: &Value) -> Result<Self, DeclarationError> {
        let effect = http.effect();
        let changes = matches!(http.method, DeclaredMethod::Put | DeclaredMethod::Patch | DeclaredMethod::Delete);
        if changes && effect == DeclaredEffect::Read {
            return Err(DeclarationError::Effect { method: http.method.as_str() });
        }
        let longest = u64::try_from(OPERATION_TIME.as_millis()).unwrap_or(u64::MAX);
        if let Some(found) = http.timeout.filter(|found| !(1..=longest).contains(found)) {
            return Err(DeclarationError::Timeout { found });
        }
        check_statuses(&http.status).map_err(DeclarationError::Status)?;
        if let Some(found) = http.result.as_ref().filter(|pointer| !is_pointer(pointer)) {
            return Err(DeclarationError::Pointer { found: found.clone() });
        }
        if let Some(output) = &http.output {
            check_schema("http.output", output)?;
        }
        let url = UrlTemplate::parse(&http.url).map_err(DeclarationError::Url)?;
        let plan = Self {
            method: http.method,
            effect,
            url,
            query: parse_query(&http.query)?,
            headers: parse_headers(&http.headers)?,
            body: parse_body(http)?,
        };
        plan.check_arguments(input)?;
        Ok(plan)
    }

    /// Returns the method of the request.
    pub const fn method(&self) -> DeclaredMethod {
        self.method
    }

    /// Returns what a call changes.
    pub const fn effect(&self) -> DeclaredEffect {
        self.effect
    }

    /// Returns the URL with its arguments.
    pub const fn url(&self) -> &UrlTemplate {
        &self.url
    }

    /// Returns the names of the secrets that a call is sent with.
    pub fn secrets(&self) -> Vec<SecretName> {
        let named = self.headers.iter().filter_map(|(_, header)| match header {
            HeaderTemplate::Secret(reference) => Some(reference.name.clone()),
            HeaderTemplate::Text(_) => None,
        });
        named.collect()
    }

    /// Checks that each argument is in the schema and is sent, and that those of the URL are always there.
    fn check_arguments(&self, input: &Value) -> Result<(), DeclarationError> {
        let known: Vec<&str> =
            input["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let required = |name: &String| input["required"].as_array().is_some_and(|names| names.contains(&json!(name)));
        let mut used = BTreeSet::new();
        for (place, names) in self.names() {
            for name in names {
                if name != ALL_ARGUMENTS && !known.contains(&name.as_str()) {
                    let hint = did_you_mean(&name, &known);
                    return Err(DeclarationError::UnknownArgument { place, name, hint });
                }
                if place == "http.url" && !required(&name) {
                    return Err(DeclarationError::OptionalArgument { name });
                }
                used.insert(name);
            }
        }
        let unused = known.iter().find(|name| !used.contains(**name) && !used.contains(ALL_ARGUMENTS));
        unused.map_or(Ok(()), |name| Err(DeclarationError::UnusedArgument { name: (*name).to_owned() }))
    }

    /// Returns the names of the arguments, by the place in which they stand.
    fn names(&self) -> [(&'static str, BTreeSet<String>); 4] {
        let (mut query, mut headers, mut body) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        self.query.iter().for_each(|(_, value)| value.add_names(&mut query));
        for (_, header) in &self.headers {
            if let HeaderTemplate::Text(text) = header {
                text.add_names(&mut headers);
            }
        }
        match self.body.as_ref().map(|(body, _)| body) {
            Some(BodyTemplate::Json(value) | BodyTemplate::Form(value)) => value.add_names(&mut body),
            Some(BodyTemplate::Text { text, .. }) => text.add_names(&mut body),
            None => {}
        }
        [("http.url", self.url.names()), ("http.query", query), ("http.headers", headers), ("http.body", body)]
    }

    /// Returns the bytes of the texts of a request with these arguments, before they are encoded.
    fn filled_bytes(&self, arguments: &Map<String, Value>) -> usize {
        let sizes: BTreeMap<&str, usize> =
            arguments.iter().map(|(name, value)| (name.as_str(), value.to_string().len())).collect();
        let all: usize = sizes.iter().map(|(name, bytes)| name.len() + bytes).sum();
        let size_of = |name: &str| if name == ALL_ARGUMENTS { all } else { sizes.get(name).copied().unwrap_or(0) };
        let query: usize = self.query.iter().map(|(_, value)| value.filled_bytes(&size_of)).sum();
        let headers = self.headers.iter().map(|(_, header)| match header {
            HeaderTemplate::Text(text) => text.filled_bytes(&size_of),
            HeaderTemplate::Secret(_) => 0,
        });
        let body = self.body.as_ref().map_or(0, |(body, _)| match body {
            BodyTemplate::Json(value) | BodyTemplate::Form(value) => value.filled_bytes(&size_of),
            BodyTemplate::Text { text, .. } => text.filled_bytes(&size_of),
        });
        self.url.filled_bytes(&size_of) + query + headers.sum::<usize>() + body
    }

    /// Returns the request of a call with these arguments.
    pub fn request(&self, arguments: &Map<String, Value>) -> Result<PlannedRequest, RequestFault> {
        let bytes = self.filled_bytes(arguments);
        if bytes > DECLARED_REQUEST_BYTES {
            return Err(RequestFault::Large { bytes });
        }
        let url = self.url.fill(arguments)?;
        let mut query = Vec::new();
        for (name, value) in &self.query {
            let filled = value.fill(arguments).unwrap_or_default();
            let texts = flat_texts(&filled).ok_or_else(|| RequestFault::Query { name: name.clone() })?;
            query.extend(texts.into_iter().map(|text| (name.clone(), text)));
        }
        let mut headers = Map::new();
        for (name, header) in &self.headers {
            match header {
                HeaderTemplate::Secret(reference) => drop(headers.insert(name.clone(), reference.to_value())),
                // A header that is an absent argument is left out.
                HeaderTemplate::Text(text) if text.only_argument().is_some_and(|name| is_absent(arguments, name)) => {}
                HeaderTemplate::Text(text) => {
                    let text = text.fill(arguments, str::to_owned);
                    if !is_value(&text) {
                        return Err(RequestFault::Header { name: name.clone() });
                    }
                    headers.insert(name.clone(), text.into());
                }
            }
        }
        let body = self.body.as_ref().map(|(body, kind)| Ok::<_, RequestFault>((body.fill(arguments)?, kind.clone())));
        Ok(PlannedRequest { url, query, headers, body: body.transpose()? })
    }
}

impl BodyTemplate {
    fn fill(&self, arguments: &Map<String, Value>) -> Result<String, RequestFault> {
        match self {
            Self::Json(value) => Ok(value.fill(arguments).unwrap_or_default().to_string()),
            Self::Text { text, is_xml: true } => Ok(text.fill(arguments, escape_xml)),
            Self::Text { text, is_xml: false } => Ok(text.fill(arguments, str::to_owned)),
            Self::Form(value) => {
                let filled = value.fill(arguments).unwrap_or_default();
                let mut pairs = Vec::new();
                for (name, value) in filled.as_object().into_iter().flatten() {
                    let texts = flat_texts(value).ok_or_else(|| RequestFault::Form { name: name.clone() })?;
                    let pair = |text: String| format!("{}={}", percent_encode(name), percent_encode(&text));
                    pairs.extend(texts.into_iter().map(pair));
                }
                Ok(pairs.join("&"))
            }
        }
    }
}

fn is_absent(arguments: &Map<String, Value>, name: &str) -> bool {
    arguments.get(name).is_none_or(Value::is_null)
}

/// Returns a value as the texts of one parameter: none for null, one for each element of a list. `None` for a map.
fn flat_texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::Array(items) => {
            let is_flat = |item: &&Value| !matches!(item, Value::Array(_) | Value::Object(_));
            items.iter().map(|item| Some(item).filter(is_flat).map(value_text)).collect()
        }
        Value::Object(_) => None,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(vec![value_text(value)]),
    }
}

/// Whether a text is a JSON pointer: empty, or parts that each begin with a slash.
fn is_pointer(text: &str) -> bool {
    let escapes = text.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
    (text.is_empty() || text.starts_with('/')) && escapes
}

fn parse_query(query: &Map<String, Value>) -> Result<Vec<(String, ValueTemplate)>, DeclarationError> {
    if query.len() > DECLARED_QUERY {
        return Err(DeclarationError::Query { found: query.len() });
    }
    let parse = |(name, value): (&String, &Value)| {
        if flat_texts(value).is_none() {
            return Err(DeclarationError::QueryValue { name: name.clone() });
        }
        let place = || format!("http.query.{}", quote_foreign(name));
        let value = ValueTemplate::parse(value);
        Ok((name.clone(), value.map_err(|rule| DeclarationError::Template { place: place(), rule })?))
    };
    query.iter().map(parse).collect()
}

fn parse_headers(headers: &Map<String, Value>) -> Result<Vec<(String, HeaderTemplate)>, DeclarationError> {
    if headers.len() > DECLARED_HEADERS {
        return Err(DeclarationError::Headers { found: headers.len() });
    }
    let mut names = BTreeSet::new();
    let parse = |(name, value): (&String, &Value)| {
        let is_first = names.insert(name.to_ascii_lowercase());
        let header = if is_first { parse_header(name, value) } else { Err(DeclaredHeaderRule::Twice) };
        Ok((name.clone(), header.map_err(|rule| DeclarationError::Header { name: name.clone(), rule })?))
    };
    headers.iter().map(parse).collect()
}

fn parse_header(name: &str, value: &Value) -> Result<HeaderTemplate, DeclaredHeaderRule> {
    let lower = name.to_ascii_lowercase();
    if !is_name(name) {
        return Err(DeclaredHeaderRule::Name);
    }
    if is_of_connection(name) || VENUE_HEADERS.contains(&lower.as_str()) {
        return Err(DeclaredHeaderRule::OfVenue);
    }
    if lower == "content-type" {
        return Err(DeclaredHeaderRule::ContentType);
    }
    match value {
        Value::String(text) => match SecretName::from_path(text) {
            Ok(name) => Ok(HeaderTemplate::Secret(SecretReference { name, prefix: String::new() })),
            Err(_) if is_value(text) => Ok(HeaderTemplate::Text(TextTemplate::parse(text)?)),
            Err(_) => Err(DeclaredHeaderRule::Line),
        },
        Value::Object(_) => {
            let reference = SecretReference::parse(value)?;
            if is_value(&reference.prefix) {
                Ok(HeaderTemplate::Secret(reference))
            } else {
                Err(DeclaredHeaderRule::Line)
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Err(DeclaredHeaderRule::Value),
    }
}

/// Parses the body, whose form the content type decides.
fn parse_body(http: &HttpDeclaration) -> Result<Option<(BodyTemplate, String)>, DeclarationError> {
    let Some(body) = &http.body else {
        return match http.content_type {
            Some(_) => Err(DeclarationError::ContentType("it belongs to `body`, and there is none")),
            None => Ok(None),
        };
    };
    if http.method == DeclaredMethod::Get {
        return Err(DeclarationError::BodyOfGet);
    }
    if !find_references(body).is_empty() {
        return Err(DeclarationError::SecretInBody);
    }
    let template = ValueTemplate::parse(body);
    let template = template.map_err(|rule| DeclarationError::Template { place: "http.body".to_owned(), rule })?;
    let is_mixed_text = matches!(&template, ValueTemplate::Text(text) if text.only_argument().is_none());
    let kind = http.content_type.clone().unwrap_or_else(|| if is_mixed_text { PLAIN } else { JSON }.to_owned());
    if kind.is_empty() || !is_value(&kind) {
        return Err(DeclarationError::ContentType("expected one line such as `application/json`"));
    }
    let plain = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let parsed = match template {
        template if plain == JSON || plain.ends_with("+json") => {
            if is_mixed_text {
                return Err(DeclarationError::BodyForm("expected a map, a list or one argument for JSON, got a text"));
            }
            BodyTemplate::Json(template)
        }
        template @ ValueTemplate::Map(_) if plain == FORM => BodyTemplate::Form(template),
        ValueTemplate::Text(text) if plain != FORM => {
            BodyTemplate::Text { text, is_xml: plain.ends_with("/xml") || plain.ends_with("+xml") }
        }
        _ if plain == FORM => return Err(DeclarationError::BodyForm("expected a map of the form's fields")),
        _ => return Err(DeclarationError::BodyForm("expected a text for this content type")),
    };
    Ok(Some((parsed, kind)))
}
