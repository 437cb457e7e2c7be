//! Which rule answers which request, and which files are refused.

use super::*;
use serde_json::json;

fn facts() -> RequestFacts {
    RequestFacts {
        model: "small".into(),
        agent: "clerk".into(),
        turn_name: "o/clerk/s/3".into(),
        turn: 2,
        last_role: "tool",
        user_text: "pay invoice 7".into(),
        last_text: "status: overdue".into(),
        tool: Some(("get_invoice".into(), "status: overdue".into())),
        input: json!({"id": 7}),
        prompt: String::new(),
        prompt_tokens: 11,
    }
}

#[test]
fn a_rule_answers_when_all_its_conditions_hold() {
    let table = [
        ("", true),
        ("model = 'small'", true),
        ("model = 'smal'", false),
        ("agent = 'clerk'", true),
        ("agent = 'ann'", false),
        ("turn = 2", true),
        ("turn = 1", false),
        ("last_role = 'tool'", true),
        ("last_role = 'user'", false),
        ("text = 'invoice'", true),
        ("text = 'overdue'", true),
        ("text = 'paid'", false),
        ("tool = 'get_invoice'", true),
        ("tool = 'get'", false),
        ("tool_result = 'overdue'", true),
        ("tool_result = 'invoice'", false),
        ("turn = 2, tool = 'get_invoice', text = 'pay'", true),
        ("turn = 2, tool = 'get_invoice', text = 'no'", false),
    ];
    for (when, expected) in table {
        let rules = ScriptRules::parse(&format!("[[rule]]\nwhen = {{ {when} }}\nthen = {{ text = 'x' }}")).unwrap();
        assert_eq!(rules.find(&facts()).is_some(), expected, "{when}");
    }
    let without_tool = RequestFacts { tool: None, ..facts() };
    let rules = ScriptRules::parse("[[rule]]\nwhen = { tool_result = '' }\nthen = { text = 'x' }").unwrap();
    assert_eq!(rules.find(&without_tool), None);
}

#[test]
fn the_first_match_answers_and_its_templates_are_filled() {
    let rules = ScriptRules::parse(
        r#"
        [[rule]]
        when = { turn = 9 }
        then = { text = "no" }
        [[rule]]
        [rule.then]
        text = "call {{call}}"
        delay_ms = 5
        calls = [{ tool = "pay", arguments = { id = "{{input.id}}" } }, { tool = "log" }]
        [[rule]]
        then = { text = "never" }
        "#,
    )
    .unwrap();
    let (at, rule) = rules.find(&facts()).unwrap();
    let answer = rule.answer(&facts(), 4, 1).unwrap();
    assert_eq!((at, answer.delay), (1, Duration::from_millis(5)));
    let call = |id: &str, name: &str, arguments| ToolCall { id: id.into(), name: name.into(), arguments };
    assert_eq!(
        answer.reply,
        Reply {
            text: "call 4".into(),
            calls: vec![
                call("call_t3_0", "pay", Arguments::Json(json!({"id": 7}))),
                call("call_t3_1", "log", Arguments::Json(json!({}))),
            ],
            usage: TokenUsage::new(11, 2 + 1 + 2 + 1 + 1),
            ..Reply::default()
        }
    );
}

#[test]
fn a_fault_ends_after_its_times() {
    let rules = ScriptRules::parse(
        "[[rule]]\nthen = { text = 'ok', fault = 'rate_limit', retry_after_ms = 20, times = 2, usage = { input = 1 } }",
    )
    .unwrap();
    let faults = |hit| {
        let answer = rules.rules[0].answer(&facts(), hit, hit).unwrap();
        (answer.fault, answer.retry_after, answer.reply.text)
    };
    let after = Some(Duration::from_millis(20));
    assert_eq!(faults(1), (Some(ScriptFault::RateLimit), after, String::new()));
    assert_eq!(faults(2), (Some(ScriptFault::RateLimit), after, String::new()));
    assert_eq!(faults(3), (None, None, "ok".into()));
}

#[test]
fn bad_json_spoils_the_first_call_only() {
    let rules = ScriptRules::parse("[[rule]]\nthen = { calls = [{ tool = 'a' }, { tool = 'b' }], fault = 'bad_json' }")
        .unwrap();
    let reply = rules.rules[0].answer(&facts(), 1, 1).unwrap().reply;
    assert_eq!(reply.calls[0].arguments, Arguments::Malformed("{".into()));
    assert_eq!(reply.calls[1].arguments, Arguments::Json(json!({})));
}

#[test]
fn a_wrong_file_is_refused_with_its_place() {
    let table = [
        ("rules = []", "unknown key `rules` in the file, did you mean `rule`"),
        ("[[rule]]\nwen = {}", "unknown key `wen` in rule 1, did you mean `when`"),
        (
            "[[rule]]\nwhen = { toool = 'x' }\nthen = { text = 'x' }",
            "unknown key `toool` in rule 1 `when`, did you mean `tool`",
        ),
        ("[[rule]]\nthen = { txt = 'x' }", "unknown key `txt` in rule 1 `then`, did you mean `text`"),
        ("[[rule]]\nthen = { calls = [{ tool = 'x', args = {} }] }", "unknown key `args` in rule 1 `calls`"),
        (
            "[[rule]]\nthen = { text = 'x', usage = { inputs = 1 } }",
            "unknown key `inputs` in rule 1 `usage`, did you mean `input`",
        ),
        ("[[rule]]\nthen = { text = 'x' }\n[[rule]]", "rule 2: expected a `then`, got none"),
        ("[[rule]]\nthen = {}", "rule 1: expected `text`, `calls` or `fault`, got none of them"),
        ("[[rule]]\nthen = { text = 'x', times = 1 }", "rule 1: `times` needs a `fault`"),
        (
            "[[rule]]\nthen = { text = 'x', retry_after_ms = 1 }",
            "rule 1: `retry_after_ms` needs `fault = \"rate_limit\"` or `\"overloaded\"`",
        ),
        ("[[rule]]\nthen = { text = 'x', fault = 'bad_json' }", "rule 1: `fault = \"bad_json\"` needs `calls`"),
        (
            "[[rule]]\nthen = { text = '{{inptu}}' }",
            "rule 1: unknown template `{{inptu}}`, expected `input`, `tool_result`, `call` or `turn`",
        ),
        ("[[rule]]\nthen = { text = 'a {{b' }", "rule 1: template without `}}` in `a {{b`"),
    ];
    for (text, expected) in table {
        let error = ScriptRules::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    assert!(ScriptRules::parse("[[rule]]\nthen = { fault = 'boom' }").is_err());
    let syntax = ScriptRules::parse("[[rule]]\nroot:secret:0:0\n").unwrap_err().to_string();
    assert!(syntax.starts_with("line 2, column 16: ") && !syntax.contains("secret"), "{syntax}");
    assert!(ScriptRules::parse("{\"rule\": 1}").is_err());
}

#[test]
fn mistakes_have_a_line_and_a_column() {
    let table = [
        ("calls_log = 'x'\nrules = []", "(line 2, column 1)"),
        ("[[rule]]\nwen = {}", "(line 2, column 1)"),
        ("[[rule]]\nthen = { text = 'x' }\n[[rule]]\n  when = { tols = 'x' }\n", "(line 4, column 12)"),
        ("[[rule]]\nwhen = { turn = 'x' }\nthen = { text = 'x' }", "(line 2, column 10)"),
        ("[[rule]]\nthen = { text = 'x', calls = [{ tool = 'x' }, { args = {} }] }", "(line 2, column 49)"),
        ("[[rule]]\n[rule.then]\ntext = 'x'\nusage = { input = -1 }", "(line 4, column 11)"),
        ("[[rule]]\nthen = {}", "(line 2, column 1)"),
        ("[[rule]]\n[rule.then]\ntext = 'x'\ntimes = 1", "(line 4, column 1)"),
        ("[[rule]]\n[rule.then]\ntext = 'x'\nretry_after_ms = 1", "(line 4, column 1)"),
        ("[[rule]]\n[rule.then]\ntext = 'x'\nfault = 'bad_json'", "(line 4, column 1)"),
        ("[[rule]]\n[rule.then]\ndelay_ms = 1\ntext = '{{inptu}}'", "(line 4, column 1)"),
        (
            "[[rule]]\n[rule.then]\ncalls = [\n{ tool = 'a' },\n{ tool = 'b', arguments = { x = '{{inptu}}' } },\n]",
            "(line 5, column 15)",
        ),
        ("[[rule]]\n[[rule.then.calls]]\ntool = 'a'\narguments = 1", "(line 4, column 1)"),
        ("calls_log = 1", "(line 1, column 1)"),
        ("{\n  \"rule\": [\n    {\"then\": {\"txt\": 1}}]}", "(line 3, column 15)"),
    ];
    for (text, place) in table {
        let error = ScriptRules::parse(text).unwrap_err().to_string();
        assert!(error.ends_with(place), "{text}: {error}");
    }
}

#[test]
fn json_rules_equal_toml_rules() {
    let json = r#"{"rule": [{"when": {"turn": 2}, "then": {"text": "x"}}]}"#;
    let toml = "[[rule]]\nwhen = { turn = 2 }\nthen = { text = 'x' }";
    assert_eq!(ScriptRules::parse(json), ScriptRules::parse(toml));
}

#[test]
fn the_example_is_a_rules_file() {
    let rules = ScriptRules::parse(include_str!("../../config/examples/scripted.toml")).unwrap();
    assert!(rules.rules.len() >= 4);
}
