//! Tables of declarations: the requests that they make, and the rules that they break.

use super::*;

fn declaration(http: &Value) -> ToolDeclaration {
    let properties = json!({
        "id": {"type": "string"}, "n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"type": "object"}
    });
    let input = json!({"type": "object", "properties": properties, "required": ["id"]});
    let value = json!({"name": "t", "description": "d", "input": input, "http": http});
    decode::into_type(value).unwrap()
}

/// The request of a declaration with these arguments.
fn request(http: &Value, arguments: Value) -> Result<PlannedRequest, String> {
    let Value::Object(arguments) = arguments else { panic!("expected a map") };
    let tool = declaration(http);
    let mut names: Vec<String> = tool.input()["properties"].as_object().unwrap().keys().cloned().collect();
    let plan = loop {
        let properties: Map<String, Value> = names.iter().map(|name| (name.clone(), json!({}))).collect();
        let input = json!({"type": "object", "properties": properties, "required": ["id"]});
        match HttpPlan::new(tool.http.as_ref().unwrap(), &input) {
            // What this declaration doesn't send is not in its schema.
            Err(DeclarationError::UnusedArgument { name }) => names.retain(|other| *other != name),
            plan => break plan.map_err(|error| error.to_string())?,
        }
    };
    plan.request(&arguments).map_err(|error| error.to_string())
}

#[test]
fn a_request_has_its_arguments_in_their_places() {
    let made = request(
        &json!({
            "method": "POST", "url": "https://a.example/o/{id}",
            "query": {"n": "{n}", "tag": "{tags}", "fixed": true, "gone": ["x", null]},
            "headers": {"X-Id": "id {id}", "Authorization": {"$secret": "s/KEY", "prefix": "Bearer "}, "X-Key": "s/OTHER"},
            "body": {"order": {"id": "{id}", "n": "{n}", "note": "{note}"}, "kind": "refund"}
        }),
        json!({"id": "7/8", "n": 2, "tags": ["a b", "c"], "note": {"x": "\"}, \"evil\": 1"}}),
    );
    let headers = json!({
        "X-Id": "id 7/8", "Authorization": {"$secret": "s/KEY", "prefix": "Bearer "}, "X-Key": {"$secret": "s/OTHER", "prefix": ""}
    });
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let made = made.unwrap();
    assert_eq!(made.url, "https://a.example/o/7%2F8");
    assert_eq!(
        made.query,
        [
            pair("n", "2"),
            pair("tag", "a b"),
            pair("tag", "c"),
            pair("fixed", "true"),
            pair("gone", "x"),
            pair("gone", "")
        ]
    );
    assert_eq!(Value::Object(made.headers), headers);
    let (body, kind) = made.body.unwrap();
    assert_eq!(kind, "application/json");
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap(),
        json!({"order": {"id": "7/8", "n": 2, "note": {"x": "\"}, \"evil\": 1"}}, "kind": "refund"})
    );
}

#[test]
fn a_body_is_written_for_its_content_type() {
    for (body, kind, expected) in [
        (json!("{note}"), Value::Null, r#"{"a":1}"#),
        (json!("{*}"), Value::Null, r#"{"id":"a&b","n":3,"note":{"a":1}}"#),
        (json!({"id": "{id}", "n": "{n}", "x": "{*}"}), json!("application/x-www-form-urlencoded"), ""),
        (json!({"id": "{id}", "n": "{n}", "t": "{note}"}), json!("application/x-www-form-urlencoded"), ""),
        (json!("<o id=\"{id}\">{n}{note}</o>"), json!("application/xml"), "<o id=\"a&amp;b\">3{&quot;a&quot;:1}</o>"),
        (json!("id={id} n={n} {note}"), Value::Null, r#"id=a&b n=3 {"a":1}"#),
    ] {
        let mut http = json!({"method": "POST", "url": "https://a.example/{id}", "body": body});
        if kind != Value::Null {
            http["contentType"] = kind;
        }
        let made = request(&http, json!({"id": "a&b", "n": 3, "note": {"a": 1}}));
        match made {
            Ok(made) => assert_eq!(made.body.unwrap().0, expected),
            Err(error) => assert!(expected.is_empty() && error.contains("of the form would be a map"), "{error}"),
        }
    }
    let form = json!({
        "method": "POST", "url": "https://a.example/{id}", "contentType": "application/x-www-form-urlencoded",
        "body": {"i d": "{id}", "tags": "{tags}", "n": "{n}", "fixed": 1}
    });
    let made = request(&form, json!({"id": "a&b=c", "tags": ["x y", "z"], "n": null})).unwrap();
    assert_eq!(made.body.unwrap().0, "i%20d=a%26b%3Dc&tags=x%20y&tags=z&fixed=1");
}

#[test]
fn a_request_that_repeats_an_argument_stays_small() {
    let many = "{id}".repeat(1_000);
    for more in [
        json!({"method": "POST", "body": {"a": many}}),
        json!({"method": "POST", "body": many}),
        json!({"method": "POST", "body": vec!["{*}"; 1_000]}),
        json!({"method": "POST", "body": {"a": many}, "contentType": "application/x-www-form-urlencoded"}),
        json!({"query": {"a": many}}),
        json!({"headers": {"X-A": many}}),
    ] {
        let mut http = json!({"url": "https://a.example/{id}"});
        http.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let error = request(&http, json!({"id": "x".repeat(5_000)})).unwrap_err();
        assert!(error.ends_with("bytes, expected at most 4194304"), "{http}: {error}");
        assert!(request(&http, json!({"id": "x"})).is_ok(), "{http}");
    }
}

#[test]
fn an_argument_can_not_break_out_of_its_header() {
    let http = json!({"url": "https://a.example/{id}", "headers": {"X-Id": "{id}"}});
    let error = request(&http, json!({"id": "a\r\nX-Evil: 1"})).unwrap_err();
    assert_eq!(error, "the header `X-Id` would have characters that are not allowed in it");
    let optional = json!({"url": "https://a.example/{id}", "headers": {"X-N": "{n}"}});
    let made = request(&optional, json!({"id": "a", "n": null})).unwrap();
    assert!(made.headers.is_empty());
}

#[test]
fn a_declaration_that_breaks_a_rule_is_refused_with_its_place() {
    let with = |key: &str, value: Value| {
        let mut http = json!({
            "method": "POST", "url": "https://a.example/{id}", "query": {"n": "{n}", "tags": "{tags}"}, "body": "{note}"
        });
        http[key] = value;
        http
    };
    declaration(&with("timeout", json!(10))).check().unwrap();
    for (http, expected) in [
        (with("url", json!("https://{id}/x")), "`http.url`: the host is fixed"),
        (
            with("url", json!("https://a.example/{n}/{id}")),
            "`http.url`: the argument `n` must be one of `input.required`",
        ),
        (
            with("url", json!("https://a.example/{idd}")),
            "`http.url`: the argument `idd` is none of `input.properties`, did you mean `id`",
        ),
        (with("url", json!("https://a.example/x")), "`input.properties`: the argument `id` is used nowhere"),
        (with("query", json!({"a": {"b": 1}})), "`http.query.a`: expected a text, a number"),
        (with("query", json!({"a": "{n"})), "`http.query.a`: a brace without its partner"),
        (with("headers", json!({"a b": "x"})), "`http.headers.a b`: no header has this name"),
        (with("headers", json!({"Host": "x"})), "`http.headers.Host`: the venue sets this header"),
        (
            with("headers", json!({"X-A": "x", "x-a": "y"})),
            "`http.headers.x-a`: a header of this name is declared already",
        ),
        (
            with("body", json!({"note": "{note}", "text": "x".repeat(50_000)})),
            "expected a declaration of at most 49152 bytes",
        ),
        (with("headers", json!({"traceparent": "x"})), "`http.headers.traceparent`: the venue sets this header"),
        (with("headers", json!({"Content-Type": "x"})), "`http.headers.Content-Type`: use `contentType`"),
        (with("headers", json!({"X": 1})), "`http.headers.X`: expected a text or"),
        (with("headers", json!({"X": "a\nb"})), "`http.headers.X`: expected one line"),
        (with("headers", json!({"X": {"$secret": "KEY"}})), "`http.headers.X`: expected `{\"$secret\": \"s/NAME\"}`"),
        (with("body", json!({"k": {"$secret": "s/K"}, "n": "{note}"})), "`http.body`: secrets are sent in `headers`"),
        (with("method", json!("GET")), "`http.body`: GET has none"),
        (with("effect", json!("read")), ""),
        (with("timeout", json!(0)), "`http.timeout`: expected 1 to 300000 milliseconds, got 0"),
        (with("result", json!("data/x")), "`http.result`: expected a JSON pointer"),
        (with("result", json!("/a~2")), "`http.result`: expected a JSON pointer"),
        (with("output", json!({"type": 7})), "`http.output`: not a JSON Schema"),
        (with("status", json!({"99": "error"})), "`http.status`: `99`: expected a status"),
        (
            with("contentType", json!("application/x-www-form-urlencoded")),
            "`http.body`: expected a map of the form's fields",
        ),
        (with("contentType", json!("a\nb")), "`http.contentType`: expected one line"),
    ] {
        let checked = declaration(&http).check().map_err(|error| error.to_string());
        match checked {
            Ok(()) => assert!(expected.is_empty(), "{http}: expected {expected}"),
            Err(error) => assert!(!expected.is_empty() && error.starts_with(expected), "{http}: {error}"),
        }
    }
    for method in ["PUT", "PATCH", "DELETE"] {
        let mut http = with("effect", json!("read"));
        http["method"] = method.into();
        let error = declaration(&http).check().unwrap_err().to_string();
        assert_eq!(error, format!("`http.effect`: {method} changes something, expected `repeatable` or `once`"));
    }
}

#[test]
fn names_schemas_and_targets_are_checked() {
    let http = json!({"url": "https://a.example/x"});
    let jobs = json!({"queue": "ocr", "output": {"type": "object"}});
    for (value, expected) in [
        (json!({"name": "a b", "description": "d", "http": http}), "`name`: expected 1 to 64"),
        (json!({"name": "", "description": "d", "http": http}), "`name`: expected 1 to 64"),
        (json!({"name": "t", "description": " ", "http": http}), "`description`: a declared tool needs one"),
        (json!({"name": "t", "description": "d"}), "expected one of `http` and `jobs`, got none"),
        (
            json!({"name": "t", "description": "d", "http": http, "jobs": jobs}),
            "expected one of `http` and `jobs`, got both",
        ),
        (
            json!({"name": "t", "description": "d", "http": http, "input": {"type": "text"}}),
            "`input`: not a JSON Schema",
        ),
        (json!({"name": "t", "description": "d", "http": http, "input": {"type": "array"}}), "`input`: "),
        (json!({"name": "t", "description": "d", "http": http, "input": {"$ref": "#/$defs/none"}}), "`input`: "),
        (json!({"name": "t", "description": "d", "http": http, "input": {"allOf": [{"$ref": "#"}]}}), "`input`: "),
        (
            json!({"name": "t", "description": "d", "http": http, "input": {"type": "object", "description": "x".repeat(20_000)}}),
            "`input`: expected at most 16384 bytes",
        ),
        (
            json!({"name": "t", "description": "d", "jobs": {"queue": "ocr", "deadline": 0}}),
            "`jobs.deadline`: expected 1 to",
        ),
        (
            json!({"name": "t", "description": "d", "jobs": {"queue": "q".repeat(101)}}),
            "`jobs.queue`: expected at most 100",
        ),
        (json!({"name": "t", "description": "d", "jobs": {"queue": "q", "output": 7}}), "`jobs.output`: "),
    ] {
        let tool: ToolDeclaration = decode::into_type(value.clone()).unwrap();
        let error = tool.check().unwrap_err().to_string();
        assert!(error.starts_with(expected), "{value}: {error}");
    }
    let tool: ToolDeclaration = decode::into_type(json!({"name": "ocr", "description": "d", "jobs": jobs})).unwrap();
    tool.check().unwrap();
    assert_eq!(tool.own_path(), "v/ops/jobs/ocr");
    for (value, part) in [
        (json!({"name": "t", "description": "d", "http": {"url": "x", "methd": "GET"}}), "unknown field `methd`"),
        (json!({"name": "t", "description": "d", "http": {"method": "TRACE", "url": "x"}}), "TRACE"),
        (json!({"name": "t", "description": "d", "http": {"url": "x", "effect": "twice"}}), "twice"),
        (json!({"name": "t", "description": "d", "http": {"url": "x", "status": {"404": "gone"}}}), "gone"),
    ] {
        let error = decode::into_type::<ToolDeclaration>(value.clone()).unwrap_err().to_string();
        assert!(error.contains(part), "{value}: {error}");
    }
}

#[test]
fn another_declaration_has_another_version() {
    let tool = declaration(&json!({"url": "https://a.example/{id}"}));
    let other = declaration(&json!({"url": "https://b.example/{id}"}));
    assert_eq!((tool.version(), tool.version().len()), (tool.clone().version(), 32));
    assert_ne!(tool.version(), other.version());
    assert_eq!(tool.own_path(), "v/ops/own/t");
}

#[test]
fn the_result_is_the_declared_part_of_the_answer() {
    let http = |more: Value| {
        let mut http = json!({"url": "https://a.example/x"});
        http.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        decode::into_type::<HttpDeclaration>(http).unwrap()
    };
    let order = json!({"data": {"orders": [{"id": 7}]}});
    for (declared, body, expected) in [
        (json!({}), order.clone(), Ok(order.clone())),
        (json!({}), json!("{\"a\": 1}"), Ok(json!("{\"a\": 1}"))),
        (json!({"result": "/data/orders/0"}), order.clone(), Ok(json!({"id": 7}))),
        (json!({"result": "/data/orders/0/id", "output": {"type": "integer"}}), order.clone(), Ok(json!(7))),
        (json!({"result": "/a"}), json!("{\"a\": 1}"), Ok(json!(1))),
        (json!({"result": "/data/order"}), order.clone(), Err("the answer has nothing at `/data/order`")),
        (json!({"output": {"type": "array"}}), order.clone(), Err("the result isn't as declared: ")),
        (json!({"output": {"required": ["id"]}, "result": "/data"}), order, Err("the result isn't as declared: ")),
    ] {
        let found = pick_result(&http(declared.clone()), body).map_err(|error| error.to_string());
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{declared}"),
            (Err(error), Err(part)) => assert!(error.starts_with(part), "{declared}: {error}"),
            (found, expected) => panic!("{declared}: expected {expected:?}, got {found:?}"),
        }
    }
    assert_eq!(refusal_text(&json!({"error": "no\nsuch"})), r#"{"error":"no\nsuch"}"#);
    assert!(refusal_text(&json!("x".repeat(100_000))).len() < 1_100);
}

#[test]
fn a_record_is_a_declaration_by_its_form() {
    let http = json!({"url": "https://a.example"});
    let declared = |value: Value| ToolDeclaration::of_record("total", &value);
    let read = declared(json!({"name": "other", "description": "d", "http": http})).unwrap().unwrap();
    assert_eq!((read.name.as_str(), read.own_path().as_str()), ("total", "v/ops/own/total"));
    assert!(declared(json!({"description": "d", "http": http})).unwrap().is_ok());
    assert!(declared(json!({"description": "d", "http": {"url": 1}})).unwrap().is_err());
    for other in [json!({"operation": "v/ops/json/merge"}), json!("text"), json!({}), json!([http])] {
        assert_eq!(declared(other.clone()), None, "{other}");
    }
}
