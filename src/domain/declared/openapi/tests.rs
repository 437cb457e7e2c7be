//! Documents and the declarations that they make.

use super::*;
use serde_json::json;

fn shop() -> Value {
    json!({
        "openapi": "3.0.3",
        "servers": [{"url": "https://{region}.shop.example/v1/", "variables": {"region": {"default": "eu"}}}],
        "security": [{"key_auth": []}],
        "paths": {
            "/orders/{order-id}": {
                "parameters": [{"$ref": "#/components/parameters/order"}],
                "get": {
                    "operationId": "getOrder", "summary": "Get an order.", "description": "With its lines.",
                    "parameters": [
                        {"name": "expand[]", "in": "query", "description": "what to add", "schema": {"type": "array", "items": {"type": "string"}}},
                        {"name": "X-Trace", "in": "header", "schema": {"type": "string", "nullable": true, "example": "x"}},
                        {"name": "track", "in": "cookie", "schema": {"type": "string"}}
                    ],
                    "responses": {"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}}}}
                },
                "delete": {"operationId": "deleteOrder", "security": []}
            },
            "/refunds": {
                "post": {
                    "operationId": "create refund",
                    "requestBody": {"$ref": "#/components/requestBodies/refund"},
                },
                "put": {
                    "operationId": "upload",
                    "requestBody": {"content": {"multipart/form-data": {"schema": {"type": "object"}}}}
                }
            },
            "/notes": {"post": {"requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Note"}}}}}}
        },
        "components": {
            "securitySchemes": {"key_auth": {"type": "apiKey", "in": "header", "name": "X-Api-Key"}},
            "parameters": {"order": {"name": "order-id", "in": "path", "required": true, "schema": {"type": "string"}}},
            "requestBodies": {"refund": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refund"}}}}},
            "schemas": {
                "Order": {"type": "object", "properties": {"id": {"type": "string"}, "lines": {"type": "array", "items": {"$ref": "#/components/schemas/Line"}}}},
                "Line": {"type": "object", "properties": {"parent": {"$ref": "#/components/schemas/Line"}, "price": {"type": "number", "minimum": 0, "exclusiveMinimum": true}}},
                "Refund": {
                    "type": "object", "required": ["order", "amount"],
                    "properties": {"id": {"type": "string", "readOnly": true}, "order": {"type": "string"}, "amount": {"type": "integer"}, "line": {"$ref": "#/components/schemas/Line"}}
                },
                "Note": {"oneOf": [{"type": "string"}, {"type": "object"}]}
            }
        }
    })
}

fn by_name(imported: &ImportedTools, name: &str) -> ToolDeclaration {
    imported.tools.iter().find(|tool| tool.name == name).unwrap_or_else(|| panic!("{name}: {imported:?}")).clone()
}

#[test]
fn operations_become_declarations() {
    let imported = import(&shop(), &ImportChoice::default()).unwrap();
    let names: Vec<&str> = imported.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["getOrder", "deleteOrder", "create_refund", "post_notes"]);
    let get = by_name(&imported, "getOrder");
    assert_eq!(get.description, "Get an order. With its lines.");
    let http = get.http.as_ref().unwrap();
    assert_eq!(http.url, "https://eu.shop.example/v1/orders/{order-id}");
    assert_eq!(json!(http.query), json!({"expand[]": "{expand__}"}));
    assert_eq!(
        json!(http.headers),
        json!({"X-Trace": "{X-Trace}", "X-Api-Key": {"$secret": "s/KEY_AUTH", "prefix": ""}})
    );
    assert_eq!((http.effect(), &http.output), (DeclaredEffect::Read, &None));
    assert_eq!(
        get.input.unwrap(),
        json!({
            "type": "object",
            "properties": {
                "expand__": {"type": "array", "items": {"type": "string"}, "description": "what to add"},
                "X-Trace": {"type": ["string", "null"]},
                "order-id": {"type": "string"}
            },
            "additionalProperties": false, "required": ["order-id"]
        })
    );
    let delete = by_name(&imported, "deleteOrder").http.unwrap();
    assert_eq!((delete.effect(), delete.headers.len()), (DeclaredEffect::Repeatable, 0));
    let refund = by_name(&imported, "create_refund");
    let http = refund.http.as_ref().unwrap();
    assert_eq!(http.body, Some(json!({"order": "{order}", "amount": "{amount}", "line": "{line}"})));
    assert_eq!(http.effect(), DeclaredEffect::Once);
    let input = refund.input.unwrap();
    assert_eq!(input["properties"]["line"], json!({"$ref": "#/$defs/Line"}));
    assert_eq!(
        input["$defs"]["Line"],
        json!({"type": "object", "properties": {"parent": {"$ref": "#/$defs/Line"}, "price": {"type": "number", "exclusiveMinimum": 0}}})
    );
    assert_eq!(by_name(&imported, "post_notes").http.unwrap().body, Some(json!("{body}")));
    let [(skipped, why)] = &imported.skipped[..] else { panic!("{:?}", imported.skipped) };
    assert_eq!(
        (skipped.as_str(), why.to_string()),
        ("upload", "the body is of `multipart/form-data`, expected JSON, a form or text".into())
    );
}

#[test]
fn an_import_takes_what_is_asked_for() {
    let choice = ImportChoice {
        only: vec!["getOrder".into()],
        server: Some("http://127.0.0.1:9/".into()),
        secret: Some(SecretName::new("SHOP").unwrap()),
        checks_results: true,
    };
    let imported = import(&shop(), &choice).unwrap();
    assert_eq!(imported.tools.len(), 1);
    let http = imported.tools[0].http.as_ref().unwrap();
    assert_eq!(http.url, "http://127.0.0.1:9/orders/{order-id}");
    assert_eq!(http.headers["X-Api-Key"]["$secret"], "s/SHOP");
    assert_eq!(http.output.as_ref().unwrap()["$ref"], "#/$defs/Order");
    for (only, part) in [
        ("getOrdr", "no operation `getOrdr`, did you mean `getOrder`"),
        ("upload", "operation `upload`: the body is of `multipart/form-data`"),
    ] {
        let error = import(&shop(), &ImportChoice { only: vec![only.into()], ..ImportChoice::default() }).unwrap_err();
        assert!(error.to_string().contains(part), "{only}: {error}");
    }
}

#[test]
fn a_document_that_can_not_be_imported_is_refused() {
    let operation = |more: Value| {
        let mut operation = json!({"operationId": "x"});
        operation.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": {"/x": {"get": operation}}})
    };
    for (document, part) in [
        (json!({"swagger": "2.0"}), "got `swagger: 2.0`; convert it first"),
        (json!({"openapi": "4.0.0"}), "got `4.0.0`"),
        (json!([]), "got neither"),
        (operation(json!({"servers": [{"url": "/v1"}]})), "the document's server is `/v1`"),
        (operation(json!({"parameters": [{"$ref": "other.yaml#/x"}]})), "leads out of the document"),
        (operation(json!({"parameters": [{"$ref": "#/components/none"}]})), "leads to nothing"),
        (
            operation(json!({"parameters": [{"name": "c", "in": "cookie", "required": true}]})),
            "the parameter `c` in `cookie`",
        ),
        (
            operation(json!({"parameters": [{"name": "q", "in": "query", "schema": {"$ref": "#/components/none"}}]})),
            "leads to nothing",
        ),
    ] {
        let choice = ImportChoice {
            only: if document["paths"].is_object() { vec!["x".into()] } else { vec![] },
            ..ImportChoice::default()
        };
        let error = import(&document, &choice).unwrap_err().to_string();
        assert!(error.contains(part), "{document}: {error}");
    }
    let parameter = |more: Value| {
        let mut parameter = json!({"name": "q", "in": "query", "schema": {"type": "array"}});
        parameter.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        parameter
    };
    for more in [
        json!({"explode": false}),
        json!({"style": "deepObject"}),
        json!({"schema": {"type": "object"}}),
        json!({"schema": {"$ref": "#/paths/~1x/get/x-map"}}),
        json!({"in": "header"}),
        json!({"schema": null, "content": {"application/json": {"schema": {"type": ["array", "null"]}}}}),
    ] {
        let only = || ImportChoice { only: vec!["x".into()], ..ImportChoice::default() };
        let document = |parameter: Value| operation(json!({"parameters": [parameter], "x-map": {"type": "object"}}));
        let mut required = parameter(more.clone());
        if required["schema"].is_null() {
            required.as_object_mut().unwrap().shift_remove("schema");
        }
        let optional = import(&document(required.clone()), &only()).unwrap();
        assert_eq!(optional.tools[0].input()["properties"], json!({}), "{more}: it is left out");
        required["required"] = true.into();
        let error = import(&document(required), &only()).unwrap_err().to_string();
        assert!(error.contains("the parameter `q` in"), "{more}: {error}");
    }
    let mut circle = operation(json!({"parameters": [{"$ref": "#/components/parameters/a"}]}));
    circle["components"] =
        json!({"parameters": {"a": {"$ref": "#/components/parameters/b"}, "b": {"$ref": "#/components/parameters/a"}}});
    let choice = ImportChoice { only: vec!["x".into()], ..ImportChoice::default() };
    assert!(import(&circle, &choice).unwrap_err().to_string().contains("leads to nothing"));
}

#[test]
fn a_hostile_document_makes_small_schemas() {
    let document = |schema: Value, schemas: Value| {
        let parameters = json!([{"name": "q", "in": "query", "schema": schema}]);
        json!({
            "openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "components": {"schemas": schemas},
            "paths": {
                "/x": {"get": {"operationId": "x", "parameters": parameters}},
                "/away": {"$ref": "paths.yaml#/away"}, "/y": {"get": {"operationId": "y"}}
            }
        })
    };
    let reference = |pointer: String| json!({"$ref": format!("#/components/schemas/{pointer}")});
    // Each level has all deeper ones, and all are referred to.
    let nested = (0..40).fold(json!({"description": "x".repeat(1_000)}), |inner, _| json!({"not": inner}));
    let places: Vec<Value> = (0..40).map(|depth| reference(format!("deep{}", "/not".repeat(depth)))).collect();
    // Each reference has the same last part.
    let same: serde_json::Map<String, Value> = (0..600).map(|n| (format!("s{n}"), json!({"x": {}}))).collect();
    let many: Vec<Value> = (0..600).map(|n| reference(format!("s{n}/x"))).collect();
    for (schema, schemas) in
        [(json!({"anyOf": places}), json!({"deep": nested})), (json!({"anyOf": many}), Value::Object(same))]
    {
        let imported = import(&document(schema, schemas), &ImportChoice::default()).unwrap();
        let names: Vec<&str> = imported.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["y"]);
        let skipped: Vec<(&str, String)> =
            imported.skipped.iter().map(|(id, error)| (id.as_str(), error.to_string())).collect();
        let [("/away", away), ("x", large)] = &skipped[..] else { panic!("{skipped:?}") };
        assert!(away.contains("leads out of the document") && large.contains("16384 bytes"), "{skipped:?}");
    }
}
