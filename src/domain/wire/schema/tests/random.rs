//! Random schemas with a value that fits each: what is sent is accepted, says the value, and gives it back.

use super::{JsonKind, Renames, SUBSETS, SchemaSubset, sent};
use crate::schema::find_misfits;
use serde_json::{Map, Value, json};

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn one_of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

const NAMES: [&str; 12] = ["a", "b", "kind", "id", "a b", "filter[id]", "", "ü", "9lives", "x.y", "more_fields", "a_b"];
const TEXTS: [&str; 8] = ["x", "5", "true", "null", "{}", "plain text", "[1]", "\"q\""];

/// Any value.
fn value(dice: &mut Dice, depth: usize) -> Value {
    match dice.below(if depth == 0 { 4 } else { 6 }) {
        0 => json!(dice.one_of(&TEXTS)),
        1 => json!(dice.below(100)),
        2 => json!(dice.one_in(2)),
        3 => Value::Null,
        4 => (0..dice.below(3)).map(|_| value(dice, depth - 1)).collect(),
        _ => Value::Object(
            (0..dice.below(3)).map(|_| (dice.one_of(&NAMES).to_string(), value(dice, depth - 1))).collect(),
        ),
    }
}

/// A schema, and a value that is meant to fit it.
fn pair(dice: &mut Dice, depth: usize) -> (Value, Value) {
    let (mut schema, value) = match dice.below(if depth == 0 { 6 } else { 13 }) {
        0 => text(dice),
        1 => {
            let number = dice.below(50);
            (json!({"type": *dice.one_of(&["integer", "number"]), "minimum": 0, "exclusiveMaximum": 50}), json!(number))
        }
        2 => choice(dice),
        3 => {
            let any = value(dice, 2);
            (dice.one_of(&[json!({}), json!(true), json!({"description": "Any"})]).clone(), any)
        }
        4 => (
            json!({"type": ["string", "null", "boolean"]}),
            dice.one_of(&[json!(null), json!(true), json!("5")]).clone(),
        ),
        5 => (json!({"type": "boolean"}), json!(true)),
        6 => list(dice, depth - 1),
        7 | 8 => map(dice, depth - 1),
        9 => {
            let (schema, value) = pair(dice, depth - 1);
            let (other, _) = pair(dice, depth - 1);
            let branches = if dice.one_in(2) { json!([schema, other]) } else { json!([other, schema]) };
            (json!({*dice.one_of(&["anyOf", "oneOf"]): branches}), value)
        }
        10 => {
            let (a, x) = map(dice, depth - 1);
            let (b, y) = map(dice, depth - 1);
            let mut both = x;
            both.as_object_mut().unwrap().extend(y.as_object().unwrap().clone());
            (json!({"allOf": [a, b]}), both)
        }
        11 => {
            let reference = *dice.one_of(&["#/$defs/leaf", "#/$defs/tree", "#/definitions/old%20one"]);
            let value = match reference {
                "#/$defs/leaf" => json!("leaf"),
                "#/$defs/tree" => json!({"of": [{"of": [{"of": [{"of": []}]}]}]}),
                _ => json!([1, "5"]),
            };
            (json!({"$ref": reference, "description": "By reference"}), value)
        }
        _ => {
            let free = value(dice, 2);
            let map = if free.is_object() { free } else { json!({"x": free}) };
            (json!({"type": "object", "additionalProperties": true}), map)
        }
    };
    if let (true, Value::Object(schema)) = (dice.one_in(6), &mut schema) {
        schema.insert("description".to_owned(), json!("Said"));
        schema.insert("default".to_owned(), value.clone());
    }
    (schema, value)
}

fn text(dice: &mut Dice) -> (Value, Value) {
    let text = *dice.one_of(&TEXTS);
    let schema = match dice.below(4) {
        0 => json!({"type": "string"}),
        1 => json!({"type": "string", "minLength": 1, "format": "unknown"}),
        2 => json!({"type": ["string", "array", "null"]}),
        _ => json!({"type": "string", "pattern": ".", "not": {"const": "none of them"}}),
    };
    (schema, json!(text))
}

fn choice(dice: &mut Dice) -> (Value, Value) {
    let lists = [
        json!(["a", "b"]),
        json!([1, 2, 3]),
        json!(["a", null, 1]),
        json!([true]),
        json!([{"a b": 1}, []]),
        json!(["", "x"]),
    ];
    let list = dice.one_of(&lists);
    let value = dice.one_of(list.as_array().unwrap()).clone();
    (if dice.one_in(3) { json!({"const": value}) } else { json!({"enum": list}) }, value)
}

fn list(dice: &mut Dice, depth: usize) -> (Value, Value) {
    let (schema, value) = pair(dice, depth);
    match dice.below(5) {
        0 => (json!({"type": "array"}), json!([value])),
        1 => (json!({"type": "array", "prefixItems": [schema], "items": {"type": "string"}}), json!([value, "x"])),
        2 => (json!({"type": "array", "prefixItems": [schema], "items": false}), json!([value])),
        3 => (json!({"type": ["array", "null"], "items": schema, "uniqueItems": true}), json!([value])),
        _ => (json!({"type": "array", "items": schema, "minItems": 1}), json!([value, value])),
    }
}

fn map(dice: &mut Dice, depth: usize) -> (Value, Value) {
    let (mut properties, mut sample) = (Map::new(), Map::new());
    for _ in 0..dice.below(5) {
        let name = dice.one_of(&NAMES).to_string();
        let (schema, value) = pair(dice, depth);
        properties.insert(name.clone(), schema);
        sample.insert(name, value);
    }
    let mut schema = json!({"type": "object", "properties": properties});
    if dice.one_in(2) {
        schema["required"] = json!(sample.keys().collect::<Vec<_>>());
    }
    match dice.below(5) {
        0 => {
            schema["additionalProperties"] = json!({"type": "integer"});
            sample.insert("further one".to_owned(), json!(7));
        }
        1 => schema["additionalProperties"] = json!(false),
        2 => drop(schema.as_object_mut().unwrap().shift_remove("type")),
        _ => {}
    }
    (schema, Value::Object(sample))
}

/// Arguments with alternatives and references: the schema, the alternative that is meant, and the value.
fn arguments(dice: &mut Dice) -> (Value, Value, Value) {
    let (mut schema, mut meant, value) = match dice.below(4) {
        0 | 1 => {
            let (schema, value) = map(dice, 3);
            (schema.clone(), schema, value)
        }
        2 => {
            let (a, value) = map(dice, 2);
            let (b, _) = map(dice, 2);
            (json!({*dice.one_of(&["anyOf", "oneOf"]): [b, a, {"type": "string"}]}), a, value)
        }
        _ => {
            let (a, x) = map(dice, 2);
            let (b, y) = map(dice, 2);
            let mut both = x;
            both.as_object_mut().unwrap().extend(y.as_object().unwrap().clone());
            let schema = json!({"type": "object", "allOf": [a, b]});
            (schema.clone(), schema, both)
        }
    };
    for schema in [&mut schema, &mut meant] {
        schema["$defs"] = json!({
            "leaf": {"type": "string", "minLength": 1},
            "tree": {"type": "object", "properties": {"of": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
        });
        schema["definitions"] = json!({"old one": {"type": "array"}});
    }
    (schema, meant, value)
}

/// A value as a model writes it by the schema that was sent.
fn write(value: &Value, schema: &Value, renames: &Renames) -> Value {
    let empty = json!([schema]);
    let schemas = schema.get("anyOf").unwrap_or(&empty).as_array().unwrap();
    if renames.text.iter().any(|kind| kind.fits(value)) {
        let plain = value.as_str().filter(|_| !renames.text.contains(&JsonKind::String));
        let text = json!(plain.map_or_else(|| value.to_string(), str::to_owned));
        if schemas.iter().any(|schema| schema["type"] == "string" && fits(schema, &text)) {
            return text;
        }
    }
    match value {
        Value::Array(items) => {
            let inner = schemas.iter().find_map(|schema| schema.get("items")).unwrap_or(&Value::Null);
            let nothing = Renames::default();
            let renames = renames.items.as_deref().unwrap_or(&nothing);
            items.iter().map(|item| write(item, inner, renames)).collect()
        }
        Value::Object(map) => {
            let property = |name: &str| schemas.iter().find_map(|schema| schema.get("properties")?.get(name));
            let (mut out, mut more) = (Map::new(), Map::new());
            for (ours, value) in map {
                let sent = renames.keys.iter().find(|(_, known)| *known == ours).map_or(ours, |(sent, _)| sent);
                let schema = property(sent);
                if schema.is_none() && renames.more.is_some() {
                    more.insert(ours.clone(), value.clone());
                    continue;
                }
                let nothing = Renames::default();
                let inner = renames.properties.get(sent).unwrap_or(&nothing);
                out.insert(sent.clone(), write(value, schema.unwrap_or(&Value::Null), inner));
            }
            if let (Some(name), false) = (&renames.more, more.is_empty()) {
                out.insert(name.clone(), json!(Value::Object(more).to_string()));
            }
            Value::Object(out)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Gemini's part in JSON Schema.
fn standard(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let mut out = Map::new();
    for (key, value) in fields {
        let value = match (key.as_str(), value) {
            ("items", inner) => standard(inner),
            ("anyOf", Value::Array(list)) => list.iter().map(standard).collect(),
            ("properties", Value::Object(map)) => {
                Value::Object(map.iter().map(|(name, inner)| (name.clone(), standard(inner))).collect())
            }
            (_, value) => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    match out.remove("nullable") {
        Some(_) => json!({"anyOf": [out, {"type": "null"}]}),
        None => Value::Object(out),
    }
}

fn fits(schema: &Value, value: &Value) -> bool {
    find_misfits(schema, value, 1).unwrap().0.is_empty()
}

#[test]
fn every_value_that_fits_can_be_said_and_comes_back() {
    let mut fitting = 0;
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let (schema, meant, value) = arguments(&mut dice);
        // Fields that no alternative names may be anything, until another one names them.
        let is_meant = fits(&schema, &value) && fits(&meant, &value);
        for subset in SUBSETS {
            let sent = sent(&schema, subset);
            if !is_meant {
                continue;
            }
            fitting += 1;
            let written = write(&value, &sent.schema, &sent.renames);
            let restored = sent.renames.restore(written.clone());
            let by = if subset == SchemaSubset::Gemini { standard(&sent.schema) } else { sent.schema.clone() };
            let wrong = find_misfits(&by, &written, 1).unwrap().0;
            let told = || format!("seed {seed}, {subset:?}\n{schema}\n{}\n{value}\n{written}", sent.schema);
            assert!(wrong.is_empty(), "{}\n{wrong:?}", told());
            assert!(fits(&schema, &restored), "{}\n{restored}", told());
        }
    }
    assert!(fitting > 600, "{fitting}");
}
