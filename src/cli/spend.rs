//! What was spent, as people read it.

use serde_json::Value;

/// Dollars, to a millionth.
fn dollars(cost: f64) -> String {
    let text = format!("{cost:.6}");
    format!("${}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// That of a job with the jobs under it, or its own, where that is all that is known.
fn total(spend: &Value) -> &Value {
    if spend["tree"].is_null() { &spend["own"] } else { &spend["tree"] }
}

/// Tokens of prompts and replies; nothing where it isn't known.
pub fn tokens(spend: &Value) -> String {
    let total = total(spend);
    match (total["input"].as_u64(), total["output"].as_u64()) {
        (Some(input), Some(output)) => format!("{input}+{output}"),
        _ => String::new(),
    }
}

/// The money; nothing where it isn't known, `>` where it is that of some of the calls.
pub fn cost(spend: &Value) -> String {
    let total = total(spend);
    let at_least = if total["unpriced"].is_null() && total["partial"] != true { "" } else { ">" };
    total["cost"].as_f64().map(|cost| format!("{at_least}{}", dollars(cost))).unwrap_or_default()
}

/// Both parts of what a job has used, in one line.
pub fn line(spend: &Value) -> String {
    let part = |of: &Value| {
        let number = |key: &str| of[key].as_u64().unwrap_or_default();
        let cost = match (of["cost"].as_f64(), number("unpriced")) {
            (None, _) => ", no price".to_owned(),
            (Some(cost), 0) => format!(", {}", dollars(cost)),
            (Some(cost), calls) => format!(", {} and {calls} calls without a price", dollars(cost)),
        };
        format!("{} calls, {} tokens in, {} out{cost}", number("calls"), number("input"), number("output"))
    };
    let own = (!spend["own"].is_null()).then(|| part(&spend["own"]));
    let tree = &spend["tree"];
    let jobs = tree["jobs"].as_u64().unwrap_or_default();
    let more = if tree["partial"] == true { "or more " } else { "" };
    let below = (jobs > 0).then(|| format!("with {jobs} {more}jobs under it: {}", part(tree)));
    own.into_iter().chain(below).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_known_is_not_shown() {
        let own = json!({"calls": 2, "input": 300, "output": 20, "cost": 0.0012});
        let tree = json!({"calls": 3, "input": 400, "output": 30, "cost": 0.5, "unpriced": 1, "jobs": 1});
        for (spend, shown) in [
            (Value::Null, ["", "", ""]),
            (json!({"own": own}), ["300+20", "$0.0012", "2 calls, 300 tokens in, 20 out, $0.0012"]),
            (
                json!({"own": own, "tree": tree}),
                [
                    "400+30",
                    ">$0.5",
                    "2 calls, 300 tokens in, 20 out, $0.0012; with 1 jobs under it: 3 calls, 400 tokens in, 30 out, \
                     $0.5 and 1 calls without a price",
                ],
            ),
            (
                json!({"own": {"calls": 1, "input": 3, "output": 2, "unpriced": 1}}),
                ["3+2", "", "1 calls, 3 tokens in, 2 out, no price"],
            ),
        ] {
            assert_eq!([tokens(&spend), cost(&spend), line(&spend)], shown, "{spend}");
        }
        assert_eq!(dollars(0.0), "$0");
    }
}
