//! What a server asks a person in the middle of a call: forms and links, read within bounds.
//!
//! Of a form the fields of the protocol are read and nothing else: what a person answers is checked against these, so that
//! no schema of a server is ever compiled.

use crate::foreign::visible_line;
use crate::limits::{
    MCP_INPUT_NAME_BYTES, MCP_INPUT_OPTION_BYTES, MCP_INPUT_OPTIONS, MCP_INPUT_REQUESTS, MCP_INPUT_TEXT_BYTES,
    MCP_REQUEST_STATE_BYTES, MCP_URL_BYTES, QUESTIONS,
};
use crate::visible::{first_hidden, quote_foreign};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Method of the only requests that are put to a person.
const ELICIT: &str = "elicitation/create";

/// What a server asks at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputRound {
    /// Forms and links; without any the call is only to be made again.
    pub requests: Vec<InputRequest>,
    /// State of the server, which goes back as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// A form or a link for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputRequest {
    /// Key of the server, under which the response goes back.
    pub key: String,
    /// Text of the server: one visible line.
    pub message: String,
    /// What the person is to do.
    pub kind: InputKind,
}

/// What a person is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InputKind {
    /// Fill in a form; without fields it is a question of yes or no.
    Form(Vec<FormField>),
    /// Open a page in a browser. This venue never does.
    Link(String),
}

/// A field of a form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FormField {
    /// Name of the field at the server.
    pub name: String,
    /// Text above it: one visible line.
    pub prompt: String,
    /// Values that it takes.
    pub kind: FieldKind,
    /// Whether it must be filled in.
    pub is_required: bool,
    /// Value that it has if it is left empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

/// Values that a field takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FieldKind {
    /// A text of so many characters.
    Text(Bounds),
    /// A whole number.
    Integer(Bounds),
    /// A number with or without a fraction.
    Number(Bounds),
    /// Yes or no.
    Flag,
    /// One of the options.
    Choice(Vec<String>),
    /// So many of the options.
    Choices {
        /// Options of the field.
        options: Vec<String>,
        /// Number of options that are chosen.
        count: Bounds,
    },
}

/// Least and greatest number; `None` is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Bounds {
    /// Least number that fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    /// Greatest number that fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
}

/// Why a person isn't asked what a server wants to know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputRoundError {
    /// The server asks for something else than a form.
    #[error("it asks for `{method}`, which was not offered to it")]
    Method {
        /// Method of the request, cut to a readable length.
        method: String,
    },
    /// The server asks for nothing and gives no state.
    #[error("it wants input, and says not which")]
    Nothing,
    /// The server asks more than a person reads at once.
    #[error("it asks for more than {MCP_INPUT_REQUESTS} forms or {QUESTIONS} fields at once")]
    TooMany,
    /// The state is too long or no text.
    #[error("`requestState`: expected a text of at most {MCP_REQUEST_STATE_BYTES} bytes")]
    State,
    /// A part of a request is illegal.
    #[error("its form `{}`: {rule}", quote_foreign(.key))]
    Form {
        /// Key of the form.
        key: String,
        /// Rule that the form breaks.
        rule: &'static str,
    },
}

impl InputRound {
    /// Reads the requests and the state of a result.
    ///
    /// # Errors
    /// A person can't be asked that.
    pub fn read(requests: &Value, state: &Value) -> Result<Self, InputRoundError> {
        let state = match state {
            Value::Null => None,
            Value::String(text) if text.len() <= MCP_REQUEST_STATE_BYTES => Some(text.clone()),
            _ => return Err(InputRoundError::State),
        };
        let entries = match requests {
            Value::Null => None,
            other => Some(other.as_object().ok_or(InputRoundError::Nothing)?),
        };
        let entries = entries.into_iter().flatten();
        if entries.clone().count() > MCP_INPUT_REQUESTS {
            return Err(InputRoundError::TooMany);
        }
        let requests = entries.map(|(key, request)| InputRequest::read(key, request)).collect::<Result<Vec<_>, _>>()?;
        if requests.is_empty() && state.is_none() {
            return Err(InputRoundError::Nothing);
        }
        let round = Self { requests, state };
        if round.questions() > QUESTIONS { Err(InputRoundError::TooMany) } else { Ok(round) }
    }

    /// Returns the number of questions to a person.
    fn questions(&self) -> usize {
        let of_request = |request: &InputRequest| match &request.kind {
            InputKind::Form(fields) => fields.len().max(1),
            InputKind::Link(_) => 1,
        };
        self.requests.iter().map(of_request).sum()
    }
}

impl InputRequest {
    fn read(key: &str, request: &Value) -> Result<Self, InputRoundError> {
        let wrong = |rule| InputRoundError::Form { key: key.to_owned(), rule };
        let method = request["method"].as_str().unwrap_or_default();
        if method != ELICIT {
            return Err(InputRoundError::Method { method: quote_foreign(method) });
        }
        if key.is_empty() || key.len() > MCP_INPUT_NAME_BYTES {
            return Err(wrong("expected a key of 1 to 128 bytes"));
        }
        let params = &request["params"];
        let message = visible_line(params["message"].as_str().unwrap_or_default(), MCP_INPUT_TEXT_BYTES);
        let kind = match params["mode"].as_str() {
            Some("url") => InputKind::Link(read_link(&params["url"]).map_err(wrong)?),
            None | Some("form") => InputKind::Form(read_fields(&params["requestedSchema"]).map_err(wrong)?),
            Some(_) => return Err(wrong("`mode`: expected `form` or `url`")),
        };
        Ok(Self { key: key.to_owned(), message, kind })
    }
}

/// Returns a link that a person can be shown: a browser opens it, and nothing of it is hidden.
fn read_link(url: &Value) -> Result<String, &'static str> {
    let is_web = |url: &&str| ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
    let is_plain = |url: &&str| url.len() <= MCP_URL_BYTES && url.bytes().all(|byte| byte.is_ascii_graphic());
    let legal = url.as_str().filter(is_web).filter(is_plain).filter(|url| link_host(url).is_some());
    legal
        .map(str::to_owned)
        .ok_or("`url`: expected `https://HOST…` or `http://HOST…` of printable ASCII, without a user")
}

/// Returns host and port of a link; `None` unless a browser reads the same ones in it. A browser skips slashes before the
/// host, takes `\` for a slash, and decodes what is percent-encoded: none of these is in the part up to the next slash.
pub fn link_host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    (!host.is_empty() && host.bytes().all(is_plain)).then_some(host)
}

fn read_fields(schema: &Value) -> Result<Vec<FormField>, &'static str> {
    if schema["type"] != "object" {
        return Err("`requestedSchema`: expected a schema of the type `object`");
    }
    let properties = match &schema["properties"] {
        Value::Null => return Ok(Vec::new()),
        properties => properties.as_object().ok_or("`properties`: expected a map")?,
    };
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    properties.iter().map(|(name, field)| FormField::read(name, field, required.contains(&name.as_str()))).collect()
}

impl FormField {
    fn read(name: &str, schema: &Value, is_required: bool) -> Result<Self, &'static str> {
        if name.is_empty() || name.len() > MCP_INPUT_NAME_BYTES || first_hidden(name).is_some() {
            return Err("expected names of fields of 1 to 128 bytes");
        }
        let kind = FieldKind::read(schema)?;
        let default = Some(schema["default"].clone()).filter(|default| kind.takes(default));
        let title = schema["title"].as_str().unwrap_or(name);
        let about = schema["description"].as_str().map(|about| format!(" ({about})")).unwrap_or_default();
        let options = titles(schema).map(|titles| format!(" [{titles}]")).unwrap_or_default();
        // A long description is cut off, and not what the options are called.
        let prompt = visible_line(&format!("{title}{options}{about}"), MCP_INPUT_TEXT_BYTES);
        Ok(Self { name: name.to_owned(), prompt, kind, is_required, default })
    }
}

/// Returns what the options of a field are called, where they have other names than values.
fn titles(schema: &Value) -> Option<String> {
    let from = if schema["type"] == "array" { &schema["items"] } else { schema };
    let titled = ["oneOf", "anyOf"].iter().find_map(|key| from[*key].as_array());
    let named: Vec<(&str, &str)> = if let Some(options) = titled {
        options.iter().filter_map(|one| Some((one["const"].as_str()?, one["title"].as_str()?))).collect()
    } else {
        let values = from["enum"].as_array()?.iter().zip(from["enumNames"].as_array()?);
        values.filter_map(|(value, title)| Some((value.as_str()?, title.as_str()?))).collect()
    };
    let named: Vec<String> = named.into_iter().map(|(value, title)| format!("{value}: {title}")).collect();
    (!named.is_empty()).then(|| named.join("; "))
}

impl FieldKind {
    fn read(schema: &Value) -> Result<Self, &'static str> {
        let bounds = |least: &str, most: &str| Bounds { least: schema[least].as_f64(), most: schema[most].as_f64() };
        Ok(match schema["type"].as_str() {
            Some("string") => match read_options(schema)? {
                Some(options) => Self::Choice(options),
                None => Self::Text(bounds("minLength", "maxLength")),
            },
            Some("integer") => Self::Integer(bounds("minimum", "maximum")),
            Some("number") => Self::Number(bounds("minimum", "maximum")),
            Some("boolean") => Self::Flag,
            Some("array") => {
                let options = read_options(&schema["items"])?.ok_or("a list has no options")?;
                Self::Choices { options, count: bounds("minItems", "maxItems") }
            }
            _ => return Err("expected fields of the types `string`, `number`, `integer`, `boolean` and `array`"),
        })
    }

    /// Whether the field takes a value as it is sent to the server.
    pub fn takes(&self, value: &Value) -> bool {
        match self {
            Self::Text(length) => value.as_str().is_some_and(|text| length.include_count(text.chars().count())),
            Self::Integer(range) => {
                (value.is_i64() || value.is_u64()) && value.as_f64().is_some_and(|number| range.include(number))
            }
            Self::Number(range) => value.as_f64().is_some_and(|number| range.include(number)),
            Self::Flag => value.is_boolean(),
            Self::Choice(options) => value.as_str().is_some_and(|chosen| options.iter().any(|one| one == chosen)),
            Self::Choices { options, count } => value.as_array().is_some_and(|chosen| {
                let is_option = |one: &Value| one.as_str().is_some_and(|one| options.iter().any(|known| known == one));
                count.include_count(chosen.len()) && chosen.iter().all(is_option)
            }),
        }
    }
}

/// Returns the values of an enumeration in any of the forms of the protocol; `None` if there is none.
fn read_options(schema: &Value) -> Result<Option<Vec<String>>, &'static str> {
    let titled = ["oneOf", "anyOf"].iter().find_map(|key| schema[*key].as_array());
    let values: Vec<Option<&str>> = match (titled, schema["enum"].as_array()) {
        (Some(titled), _) => titled.iter().map(|one| one["const"].as_str()).collect(),
        (None, Some(values)) => values.iter().map(Value::as_str).collect(),
        (None, None) => return Ok(None),
    };
    let is_legal = |option: &str| {
        (1..=MCP_INPUT_OPTION_BYTES).contains(&option.len()) && first_hidden(option).is_none() && !option.contains('\n')
    };
    let options: Option<Vec<String>> =
        values.into_iter().map(|value| value.filter(|value| is_legal(value)).map(str::to_owned)).collect();
    let options = options.filter(|options| (1..=MCP_INPUT_OPTIONS).contains(&options.len()));
    options.map(Some).ok_or("expected 1 to 100 options of 1 to 200 visible bytes")
}

impl Bounds {
    /// Whether a number is within the bounds.
    pub fn include(self, number: f64) -> bool {
        self.least.is_none_or(|least| number >= least) && self.most.is_none_or(|most| number <= most)
    }

    /// Whether a number of things is within the bounds.
    pub fn include_count(self, count: usize) -> bool {
        u32::try_from(count).is_ok_and(|count| self.include(count.into()))
    }

    /// Returns the bounds in words, with a blank before them.
    pub fn in_words(self) -> String {
        match (self.least, self.most) {
            (None, None) => String::new(),
            (Some(least), None) => format!(" of at least {least}"),
            (None, Some(most)) => format!(" of at most {most}"),
            (Some(least), Some(most)) => format!(" of {least} to {most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn form(schema: &Value) -> Value {
        json!({"a": {"method": "elicitation/create", "params": {"message": "Say\nso", "requestedSchema": schema}}})
    }

    fn fields(properties: &Value) -> Result<Vec<FormField>, String> {
        let schema = json!({"type": "object", "properties": properties, "required": ["q"]});
        let round = InputRound::read(&form(&schema), &Value::Null).map_err(|error| error.to_string())?;
        let [InputRequest { kind: InputKind::Form(fields), .. }] = &round.requests[..] else { panic!("{round:?}") };
        Ok(fields.clone())
    }

    #[test]
    fn each_kind_of_field_is_read_with_its_bounds() {
        for (schema, taken, refused) in [
            (json!({"type": "string", "minLength": 2, "maxLength": 3}), json!("ab"), json!("abcd")),
            (json!({"type": "string", "enum": ["S", "L"]}), json!("S"), json!("M")),
            (json!({"type": "string", "oneOf": [{"const": "S", "title": "Small"}]}), json!("S"), json!("Small")),
            (json!({"type": "integer", "minimum": 1, "maximum": 9}), json!(9), json!(10)),
            (json!({"type": "integer"}), json!(-1), json!(1.5)),
            (json!({"type": "number", "minimum": 0}), json!(0.5), json!(-0.5)),
            (json!({"type": "number"}), json!(1), json!("1")),
            (json!({"type": "boolean"}), json!(true), json!("true")),
            (
                json!({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "maxItems": 1}),
                json!(["b"]),
                json!(["a", "b"]),
            ),
            (json!({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}), json!(["a"]), json!(["A"])),
        ] {
            let read = fields(&json!({"q": schema})).unwrap();
            assert!(read[0].kind.takes(&taken) && !read[0].kind.takes(&refused), "{schema}");
            assert!(read[0].is_required);
        }
    }

    #[test]
    fn a_field_has_one_visible_line_and_a_legal_default() {
        let read = fields(&json!({
            "size": {"type": "string", "title": "Size\u{202e}\nfor you", "oneOf": [{"const": "S", "title": "Small"}], "default": "S"},
            "age": {"type": "integer", "description": "in years", "default": "old"},
            "tea": {"type": "string", "description": "x".repeat(2_000), "oneOf": [{"const": "g", "title": "Green"}]},
        }))
        .unwrap();
        assert!(!read[0].prompt.contains(['\n', '\u{202e}']) && read[0].prompt.ends_with("[S: Small]"), "{read:?}");
        assert_eq!((&read[0].default, read[0].is_required), (&Some(json!("S")), false));
        assert_eq!((read[1].prompt.as_str(), &read[1].default), ("age (in years)", &None));
        assert!(read[2].prompt.starts_with("tea [g: Green] (xxx"), "a long description hides no title: {read:?}");
    }

    #[test]
    fn what_no_person_can_be_asked_is_refused() {
        let many: serde_json::Map<_, _> = (0..21).map(|n| (format!("f{n}"), json!({"type": "string"}))).collect();
        for (requests, state, part) in [
            (json!({"a": {"method": "sampling/createMessage", "params": {}}}), json!(null), "`sampling/createMessage`"),
            (json!({"a": {"method": "roots/list"}}), json!(null), "`roots/list`"),
            (json!({"a": 1}), json!(null), "it asks for ``"),
            (json!(null), json!(null), "says not which"),
            (json!([]), json!("s"), "says not which"),
            (json!({}), json!(null), "says not which"),
            (json!({}), json!(7), "`requestState`"),
            (json!({}), json!("x".repeat(MCP_REQUEST_STATE_BYTES + 1)), "`requestState`"),
            (form(&json!({"type": "array"})), json!(null), "of the type `object`"),
            (form(&json!({"type": "object", "properties": many})), json!(null), "more than"),
            (form(&json!({"type": "object", "properties": {"a": {"type": "object"}}})), json!(null), "of the types"),
            (
                form(&json!({"type": "object", "properties": {"a": {"type": "string", "enum": []}}})),
                json!(null),
                "1 to 100",
            ),
            (
                form(&json!({"type": "object", "properties": {"a": {"type": "string", "enum": ["a\nb"]}}})),
                json!(null),
                "1 to 100",
            ),
            (
                form(&json!({"type": "object", "properties": {"a": {"type": "array", "items": {}}}})),
                json!(null),
                "no options",
            ),
        ] {
            let error = InputRound::read(&requests, &state).unwrap_err().to_string();
            assert!(error.contains(part), "{requests}: {error}");
        }
        let forms: serde_json::Map<_, _> =
            (0..9).map(|n| (n.to_string(), form(&json!({"type": "object"}))["a"].clone())).collect();
        assert_eq!(InputRound::read(&Value::Object(forms), &Value::Null), Err(InputRoundError::TooMany));
        assert_eq!(InputRound::read(&Value::Null, &json!("s")).unwrap().state.as_deref(), Some("s"));
    }

    #[test]
    fn a_link_is_one_that_a_person_can_judge() {
        for (url, is_legal) in [
            ("https://shop.test/pay?x=1", true),
            ("http://127.0.0.1/", true),
            ("javascript:alert(1)", false),
            ("https://good.test@evil.test/", false),
            ("https:///good.test@evil.test/login", false),
            ("https:////good.test@evil.test/login", false),
            ("https://\\good.test@evil.test/", false),
            ("https://good.test\\@evil.test/", false),
            ("https://good.test%40evil.test/", false),
            ("https://", false),
            ("https:///", false),
            ("https://?x", false),
            ("https://[::1]:8443/x@y", true),
            ("https://shop.test/\u{202e}", false),
            ("https://shop.test/a b", false),
        ] {
            let request =
                json!({"a": {"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": url}}});
            assert_eq!(InputRound::read(&request, &Value::Null).is_ok(), is_legal, "{url}");
        }
    }
}
