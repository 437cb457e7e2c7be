//! What is taken, what is refused, and what an error says of its place.

use super::*;
use crate::agent::AgentConfig;
use crate::event::Submission;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Outer {
    #[serde(default)]
    inner: Option<Inner>,
    #[serde(default)]
    list: Vec<Inner>,
    #[serde(default)]
    named: BTreeMap<String, Inner>,
    #[serde(default)]
    pair: Option<(u8, String)>,
    #[serde(default)]
    choice: Option<Choice>,
    #[serde(default)]
    tagged: Option<Tagged>,
    #[serde(default)]
    any: Value,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Inner {
    yes: bool,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Choice {
    Plain,
    Full { n: i8 },
    One(Inner),
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
enum Tagged {
    A { n: f64 },
}

fn outer(value: Value) -> Result<Outer, String> {
    into_type(value).map_err(|wrong| wrong.to_string())
}

#[test]
fn types_that_serde_accepts_are_accepted() {
    let value = json!({
        "inner": {"yes": true}, "list": [{"yes": false}], "named": {"a": {"yes": true}}, "pair": [3, "x"],
        "choice": {"full": {"n": -3}}, "tagged": {"kind": "a", "n": 2}, "any": {"deep": [1, {"x": null}, 1.5]},
    });
    let read = outer(value.clone()).unwrap();
    assert_eq!(read, serde_json::from_value(value).unwrap());
    for choice in [json!("plain"), json!({"one": {"yes": true}}), json!({"plain": null}), json!(null)] {
        let value = json!({"choice": choice});
        assert_eq!(outer(value.clone()).unwrap(), serde_json::from_value(value).unwrap());
    }
}

#[test]
fn a_whole_number_may_be_written_with_a_point() {
    let pair = |number: f64| outer(json!({"pair": [number, "x"]})).map(|outer| outer.pair);
    assert_eq!(pair(8.0), Ok(Some((8, "x".to_owned()))));
    for wrong in [8.5, -1.0, 256.0, 1e300] {
        assert!(pair(wrong).unwrap_err().starts_with("`pair[0]`: expected a whole number"), "{wrong}");
    }
}

#[test]
fn a_list_is_no_struct_and_an_error_names_its_place() {
    for (value, expected) in [
        (json!([]), "expected a map with `inner`, `list`, `named`, `pair`, `choice`, `tagged` and `any`, got a list"),
        (json!("x"), "expected a map with `"),
        (json!({"inner": [true]}), "`inner`: expected a map with `yes`, got a list"),
        (json!({"list": [{"yes": true}, [true]]}), "`list[1]`: expected a map with `"),
        (json!({"named": {"a b": [true]}}), "`named.\"a b\"`: expected a map with `"),
        (json!({"choice": {"full": [1]}}), "`choice.full`: expected a map with `"),
        (json!({"choice": {"one": [true]}}), "`choice.one`: expected a map with `"),
        (json!({"tagged": ["a", 1]}), "`tagged`: expected a map, got a list"),
        (json!({"inner": {"yes": "no"}}), "`inner.yes`: expected a boolean, got text \"no\""),
        (json!({"list": [{"yes": 1}]}), "`list[0].yes`: expected a boolean, got number 1"),
        (json!({"list": [{}]}), "`list[0]`: missing field `yes`"),
        (json!({"choice": "plan"}), "`choice`: unknown variant `plan`, expected one of `plain`, `full`, `one`"),
        (json!({"choice": {"full": {"n": 200}}}), "`choice.full.n`: expected a whole number, got number 200"),
        (json!({"pair": [1, "x", 2]}), "`pair`: expected 2 elements, got 3"),
        (json!({"innner": 1}), "unknown field `innner`, did you mean `inner`; known are `inner`, `list`, `named`"),
    ] {
        let error = outer(value).unwrap_err();
        assert!(error.starts_with(expected), "{error}\nexpected {expected}");
    }
}

#[test]
fn places_inside_a_type_s_own_rules_are_joined() {
    let config = |change: Value| {
        let mut config = json!({"model": {"provider": "scripted", "name": "echo"}});
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        AgentConfig::parse(&config).unwrap_err().to_string()
    };
    for (change, expected) in [
        (json!({"defaultTools": "no"}), "`defaultTools`: expected a boolean, got text \"no\""),
        (json!({"model": ["scripted", "echo"]}), "`model`: expected a map with `"),
        (json!({"limits": [3]}), "`limits`: expected a map with `"),
        (json!({"caps": [["w", "crud"]]}), "`caps[0]`: expected a map with `"),
        (json!({"context": ["w/a", {"ref": "w/b", "budget": "much"}]}), "`context[1].budget`: expected"),
        (json!({"context": [["w/a"]]}), "`context[0]`: expected a map with `"),
        (json!({"tools": [{"operation": 3}]}), "`tools[0].operation`: expected a string, got number 3"),
        (json!({"tools": [["v/ops/lattice/read"]]}), "`tools[0]`: expected a map with `"),
        (json!({"resources": {"notes": ["memory"]}}), "`resources.notes`: expected a map, got a list"),
        (json!({"outputs": {"complete": [{}]}}), "`outputs.complete`: expected a map with `"),
        (json!({"contextBudget": [1]}), "`contextBudget`: expected a map with `"),
        (json!({"retry": [1]}), "`retry`: expected a map with `"),
    ] {
        let error = config(change);
        assert!(error.starts_with(expected), "{error}\nexpected {expected}");
    }
}

#[test]
fn errors_never_propose_keys_of_the_venue() {
    let error = from_json::<Submission>(br#"{"inptu": 1}"#).unwrap_err().to_string();
    assert!(
        error.starts_with("unknown field `inptu`, did you mean `input`; known are `input`, `sessionId`"),
        "{error}"
    );
    for key in ["caller", "parent", "envelope", "handed", "redriveOf", "seal"] {
        assert!(!error.contains(key), "{key}: {error}");
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, n| if n % 2 == 0 { json!([inner]) } else { json!({"a": inner}) })
}

#[test]
fn the_depth_limit_is_exact() {
    for (depth, taken) in [(0, true), (1, true), (VALUE_DEPTH, true), (VALUE_DEPTH + 1, false), (200, false)] {
        let text = nested(depth).to_string();
        assert_eq!(json(text.as_bytes()).is_ok(), taken, "{depth}");
        assert_eq!(lenient_json(text.as_bytes()).is_ok(), taken, "{depth}");
        assert_eq!(check(&nested(depth)).is_ok(), taken, "{depth}");
    }
    let error = json(json!({"input": nested(VALUE_DEPTH)}).to_string().as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("`input.a[0].a[0]") && error.contains("nested deeper than 64 levels"), "{error}");
    assert_eq!(check(&json!({"input": nested(VALUE_DEPTH)})).unwrap_err().place, "input.a[0].a[0].a[0].a[0].a[0].a…");
}

#[test]
fn hostile_text_is_refused_without_harm() {
    for text in ["[".repeat(1_000_000), "{\"a\":".repeat(1_000_000), String::new(), "nul".into(), "1 2".into()] {
        assert!(json(text.as_bytes()).is_err());
    }
    assert!(json(b"\"\xff\"").is_err());
    assert_eq!(json(b"{").unwrap_err().to_string(), "EOF while parsing an object at line 1 column 1");
}

#[test]
fn a_key_twice_is_refused_where_somebody_asks_for_something() {
    let text = br#"{"a": {"b": 1, "b": 2}}"#;
    let error = json(text).unwrap_err().to_string();
    assert!(error.starts_with("`a`: key \"b\" is given twice"), "{error}");
    assert_eq!(lenient_json(text).unwrap(), json!({"a": {"b": 2}}));
}

#[test]
fn values_are_read_as_serde_json_reads_them() {
    for text in [
        "null",
        "true",
        "0",
        "-1",
        "1e3",
        "0.1",
        "-0.0",
        "1e999999",
        "\"\\u00e9\\ud83d\\ude00\"",
        "[1,[2,{\"z\":1,\"a\":2}],\"\"]",
        "1e30",
        "-123456789012345678901234567890.5",
        "18446744073709551615",
    ] {
        let (ours, theirs) = (json(text.as_bytes()).ok(), serde_json::from_str::<Value>(text).ok());
        assert_eq!(ours.map(|v| v.to_string()), theirs.map(|v| v.to_string()), "{text}");
    }
}

#[test]
fn values_too_deep_to_show_are_replaced_by_a_note() {
    let fits = nested(RESULT_DEPTH);
    assert_eq!(limit_depth(fits.clone()), fits);
    let cut = limit_depth(nested(RESULT_DEPTH + 40));
    assert!(check_to(&cut, RESULT_DEPTH).is_ok() && check_to(&cut, RESULT_DEPTH - 1).is_err());
    assert!(cut.to_string().contains("[not shown: nested deeper than 80 levels]"));
}

#[test]
fn a_value_has_so_many_values_in_it() {
    let list = |count: usize| format!("[{}0]", "0,".repeat(count - 2));
    let map = |count: usize| {
        let entries: Vec<_> = (1..count).map(|n| format!("\"k{n}\":0")).collect();
        format!("{{{}}}", entries.join(","))
    };
    for text in [list(VALUE_PARTS), map(VALUE_PARTS)] {
        let value = json(text.as_bytes()).unwrap();
        assert_eq!((lenient_json(text.as_bytes()).as_ref(), check(&value)), (Ok(&value), Ok(())));
    }
    for (text, place) in [(list(VALUE_PARTS + 1), "`[49999]`: "), (map(VALUE_PARTS + 1), "`k50000`: ")] {
        let expected = format!("{place}more than 50000 values in one; send it in parts, or as a text");
        for wrong in [json(text.as_bytes()).unwrap_err(), lenient_json(text.as_bytes()).unwrap_err()] {
            assert!(wrong.to_string().starts_with(&expected), "{wrong}");
        }
        assert!(message_json(text.as_bytes(), MESSAGE_DEPTH).is_ok(), "the venue's own hold more than one");
        let value = serde_json::from_str::<Value>(&text).unwrap();
        assert_eq!(
            check(&value).unwrap_err().fact.reason,
            "more than 50000 values in one; send it in parts, or as a text"
        );
        assert_eq!(read_stored::<Value>(text.as_bytes()).unwrap(), value, "what is stored is read");
    }
    assert!(message_json(list(MESSAGE_PARTS + 1).as_bytes(), MESSAGE_DEPTH).is_err());
}

#[test]
fn the_value_of_a_secret_is_never_quoted() {
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[serde(rename = "apiKey")]
        _key: Option<u8>,
    }
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(default, rename = "ucans")]
        _proofs: Vec<String>,
        #[serde(rename = "token")]
        _token: Option<Code>,
        #[serde(rename = "inner")]
        _inner: Option<Inner>,
    }
    #[derive(Debug, serde::Deserialize)]
    enum Code {
        A,
    }
    for (given, told) in [
        (json!({"ucans": "s3cret"}), "`ucans`: expected a list, got a text"),
        (json!({"ucans": 77}), "`ucans`: expected a list, got a number"),
        (json!({"ucans": [["s3cret"]]}), "`ucans[0]`: expected a string, got a list"),
        (json!({"token": "s3cret"}), "`token`: not a legal value"),
        (json!({"ucans": true}), "`ucans`: expected a list, got another value"),
        (json!({"inner": {"apiKey": "s3cret"}}), "`inner.apiKey`: expected a whole number of at least 0, got a text"),
        (json!([{"ucans": ["s3cret"]}]), "expected a map with `ucans`, `token` and `inner`, got a list"),
        (json!({"inner": {"apiKey": 1, "s3cret": 1}}), "`inner`: unknown field `s3cret`; known are `apiKey`"),
    ] {
        let wrong = typed_with_hint::<Outer>(&given).unwrap_err();
        assert_eq!(wrong.to_string(), told, "{given}");
        assert!(
            wrong.place.contains("inner") || !serde_json::to_string(&wrong).unwrap().contains("s3cret"),
            "{wrong:?}"
        );
    }
}

#[test]
fn whole_numbers_are_exact_or_refused() {
    const LARGE: &str = "123456789012345678901234567890";
    let check = |text: &str, expected: &str| {
        for error in
            [json(text.as_bytes()), lenient_json(text.as_bytes()), message_json(text.as_bytes(), MESSAGE_DEPTH)]
        {
            let error = error.unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}\nexpected {expected}");
        }
    };
    check(LARGE, &format!("number {LARGE} is larger than 64 bits hold: write it as a text"));
    check(&format!("{{\"a\": [1e30, 2, \"{LARGE}\", {LARGE}]}}"), &format!("`a[3]`: number {LARGE} is larger"));
    check("[0.5, [-9223372036854775809]]", "`[1][0]`: number -9223372036854775809 is larger");
    check("[18446744073709551616]", "`[0]`: number 18446744073709551616 is larger");
    check(&"9".repeat(300), &format!("number {}… is larger", "9".repeat(38)));
    check(&format!("{{\"token\": [{LARGE}]}}"), "`token[0]`: a number is larger");
    check("[1e400]", "number out of range");
    check("[0.0, {\"a\": -1e-400}]", "`[1].a`: number -1e-400 is closer to zero than 64 bits hold: write 0");
    for taken in ["[1e+19,\"99999999999999999999\",{\"99999999999999999999\":1}]", "[-9223372036854775808]"] {
        assert_eq!(lenient_json(taken.as_bytes()).unwrap().to_string(), taken);
    }
}

#[test]
fn numbers_of_old_stores_are_read() {
    let old = "{\"n\":1.2345678901234568e29,\"m\":123456789012345678901234567890}";
    let read = read_stored::<Value>(old.as_bytes()).unwrap();
    assert_eq!(read["m"], json!(1.234_567_890_123_456_8e29));
    let deep = format!("{}{old}{}", "[".repeat(130), "]".repeat(130));
    assert!(read_stored::<Value>(deep.as_bytes()).is_ok());
}

#[test]
fn numbers_of_toml_are_exact_or_refused() {
    let check = |text: &str, expected: &str| {
        let error = toml(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\nexpected {expected}");
    };
    check("a = 123456789012345678901234567890", "integer `123456789012345678901234567890`");
    check("a = 1e400", "floating-point number overflowed");
    check("[a]\nb = [1, inf]", "`a.b[1]`: expected a finite number, got inf");
    check(&format!("a = {}\n", "x".repeat(5_000)), "TOML parse error at line 1, column 5\n");
    assert!(toml(&format!("a = {}", "x".repeat(5_000))).unwrap_err().to_string().len() < 3_000);
    check("a = nan", "`a`: expected a finite number, got nan");
    check("a = [{b = 0}, {b = -1_0e-400}]", "`a[1].b`: number -10e-400 is closer to zero than 64 bits hold: write 0");
    assert_eq!(toml("a = [0.1, 1e30, -3, 0e-400]").unwrap(), json!({"a": [0.1, 1e30, -3, 0.0]}));
}

#[test]
fn a_byte_order_mark_before_json_is_no_part_of_it() {
    type Reader = fn(&[u8]) -> Result<Value, DataError>;
    let readers: [Reader; 3] = [super::json, super::lenient_json, |bytes| super::message_json(bytes, 8)];
    for (text, expected) in [
        ("\u{feff}{\"a\": 1}", Some(json!({"a": 1}))),
        ("\u{feff} [1.5]", Some(json!([1.5]))),
        ("\"\u{feff}a\"", Some(json!("\u{feff}a"))),
        ("\u{feff}\u{feff}1", None),
        ("{\u{feff}}", None),
        ("\u{feff}", None),
    ] {
        for read in readers {
            assert_eq!(read(text.as_bytes()).ok(), expected, "{text:?}");
        }
    }
}

#[test]
fn json5_is_read_as_the_value_that_it_writes() {
    let table = [
        (
            "{operation: 'v/ops/x', input: {n: +1, h: 0xFF, f: .5, g: 5., e: -1.5e3,},}",
            json!({
                "operation": "v/ops/x", "input": {"n": 1, "h": 255, "f": 0.5, "g": 5, "e": -1500.0},
            }),
        ),
        ("\u{feff}// a comment\n[1, /* two */ 2,]", json!([1, 2])),
        (
            r#"{'a"b': "it's", $_ü: 'it\'s \x41\u0042\v\0', t: 'a\tb\q'}"#,
            json!({
                "a\"b": "it's", "$_ü": "it's AB\u{b}\0", "t": "a\tbq",
            }),
        ),
        ("'two \\\nlines'", json!("two lines")),
        ("{\"a\": [true, false, null]}", json!({"a": [true, false, null]})),
        ("{true: 1}", json!({"true": 1})),
    ];
    for (text, expected) in table {
        assert_eq!(super::json5(text.as_bytes()), Ok(expected), "{text}");
    }
    for text in [
        "",
        "{",
        "[,]",
        "{,}",
        "[1,,]",
        "{a 1}",
        "{1a: 1}",
        "{a-b: 1}",
        "[1 2]",
        "'open",
        "'new\nline'",
        "/* open",
        "{} x",
        "NaN",
        "[-Infinity]",
        "hello",
        "0x",
        "0x1ffffffffffffffff",
        "01",
        ".",
        "1.2.3",
        "'\\1'",
        "{: 1}",
        "]",
        "1e",
        "+-1",
        "--1",
    ] {
        assert!(super::json5(text.as_bytes()).is_err(), "{text}");
    }
    assert!(super::json5(b"{a: 1, a: 2}").unwrap_err().to_string().contains("given twice"));
    // Each is read in a moment: neither depth nor the number of texts makes reading a text slow.
    assert!(super::json5("[".repeat(100_000).as_bytes()).is_err());
    assert!(super::json5("{'a':".repeat(100_000).as_bytes()).is_err());
    assert!(super::json5(format!("[{}]", "'a',".repeat(100_000)).as_bytes()).is_err());
    let plain = super::json(b"{\"a\": }").unwrap_err();
    assert_eq!(super::json5(b"{\"a\": }"), Err(plain), "the error is that of JSON");
}

#[test]
fn a_deep_part_of_an_answer_does_not_cost_the_others() {
    let deep = |levels: usize| format!("{{\"a\": 1, \"a\": 2, \"b\": {}{}}}", "[".repeat(levels), "]".repeat(levels));
    let read = super::answer_json(deep(RESULT_DEPTH + 10).as_bytes()).unwrap();
    assert_eq!(read["a"], 2);
    assert!(read.to_string().contains("nested deeper than"), "{read}");
    assert!(super::answer_json(deep(MESSAGE_DEPTH + 1).as_bytes()).is_err());
}
