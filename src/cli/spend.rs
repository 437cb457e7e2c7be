//! `trellis spend`, and the formatting of usage and cost.

use super::CliContext;
use super::client::{Client, ServerArgs};
use super::exit::{Exit, Failure};
use super::output::time;
use super::output::{CommandOutput, field};
use crate::domain::ids::{AgentId, SessionId};
use clap::Args;
use serde_json::Value;

/// What was spent today, by model and session, and what the caps leave.
///
/// What was spent is what sessions have committed. A cap also counts the calls that run, and those whose worker died.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  trellis spend\n  trellis spend --agent helper --session s1 --output json")]
pub(crate) struct SpendArgs {
    /// The cap of a session of this agent, too
    #[arg(long, value_name = "AGENT", requires = "session")]
    agent: Option<AgentId>,
    /// That session
    #[arg(long, value_name = "SESSION", requires = "agent")]
    session: Option<SessionId>,
    /// The cap of the day of this user, in the place of your own
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Sessions to show, those that have used most first
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

impl SpendArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let mut query = vec![("limit", self.limit.to_string())];
        query.extend(self.agent.map(|agent| ("agentId", agent.to_string())));
        query.extend(self.session.map(|session| ("sessionId", session.to_string())));
        query.extend(self.user.map(|user| ("user", user)));
        let shown = Client::new(&self.server)?.get("spend", &query).await?;
        context.out.value(&shown, || report(context.out, &shown))?;
        Ok(Exit::Ok)
    }
}

/// Formats the report of a day.
fn report(out: CommandOutput, shown: &Value) -> String {
    let head = format!(
        "{} on {} ({}): {}",
        field(shown, "owner"),
        field(shown, "day"),
        field(shown, "zone"),
        format_usage(&shown["spent"])
    );
    let list = |key: &str| shown[key].as_array().map_or(&[][..], Vec::as_slice);
    let mut parts = vec![head];
    let amounts = |of: &Value| {
        [
            field(of, "calls"),
            field(of, "input"),
            field(of, "output"),
            of["cost"].as_f64().map(dollars).unwrap_or_default(),
        ]
    };
    let rows = |key: &str, name: fn(&Value) -> String| -> Vec<Vec<String>> {
        list(key).iter().map(|of| std::iter::once(name(of)).chain(amounts(of)).collect()).collect()
    };
    let session = |of: &Value| format!("{}/{}", field(of, "agentId"), field(of, "sessionId"));
    for (heading, rows) in [("MODEL", rows("models", |of| field(of, "model"))), ("SESSION", rows("sessions", session))]
    {
        if !rows.is_empty() {
            parts.push(out.table(&[heading, "CALLS", "IN", "OUT", "COST"], &rows));
        }
    }
    let caps: Vec<_> = list("caps").iter().map(cap).collect();
    if !caps.is_empty() {
        parts.push(out.table(&["CAP", "TOKENS", "COST", "RESETS"], &caps));
    }
    parts.join("\n\n")
}

/// Formats a cap: used and reserved amount, and the limit.
fn cap(cap: &Value) -> Vec<String> {
    let name = [field(cap, "of"), field(cap, "user"), field(cap, "model")].join(" ");
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let reached = if cap["reached"] == true { " (reached)" } else { "" };
    let tokens = |of: &Value| format!("{}+{} of {}", of["used"], of["held"], of["limit"]);
    let money = |key: &str| cap["cost"][key].as_f64().map(dollars).unwrap_or_default();
    let cost = || format!("{}+{} of {}", money("used"), money("held"), money("limit"));
    let shown = |there: bool, text: &dyn Fn() -> String| if there { text() } else { String::new() };
    vec![
        format!("{}{reached}", name.trim_end()),
        shown(!cap["tokens"].is_null(), &|| tokens(&cap["tokens"])),
        shown(!cap["cost"].is_null(), &cost),
        shown(!cap["resets"].is_null(), &|| time(&cap["resets"])),
    ]
}

/// Formats calls, tokens and cost in words.
fn format_usage(of: &Value) -> String {
    let number = |key: &str| of[key].as_u64().unwrap_or_default();
    let cost = match (of["cost"].as_f64(), number("unpriced")) {
        (None, _) => ", no price".to_owned(),
        (Some(cost), 0) => format!(", {}", dollars(cost)),
        (Some(cost), calls) => format!(", {} and {calls} calls without a price", dollars(cost)),
    };
    let tokens = format_token_classes(of, |number| number.as_u64().unwrap_or_default().to_string());
    let told = [("estimated", "estimated"), ("fallbacks", "answered by a fallback")];
    let told = told.into_iter().filter(|(key, _)| number(key) > 0);
    let notes = told.map(|(key, what)| format!(", {} {what}", number(key))).collect::<Vec<_>>().concat();
    format!("{} calls, {tokens}{cost}{notes}", number("calls"))
}

/// Formats tokens of prompts and replies by class, as `300 tokens in (120 from the cache), 20 out`.
pub(crate) fn format_token_classes(usage: &Value, shown: impl Fn(&Value) -> String) -> String {
    let classes = |classes: &[(&str, &str)]| {
        let told = classes.iter().filter(|(key, _)| usage[key].as_u64().is_some_and(|tokens| tokens > 0));
        let told: Vec<_> = told.map(|(key, what)| format!("{} {what}", shown(&usage[key]))).collect();
        if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) }
    };
    let read = classes(&[("cacheRead", "from the cache"), ("cacheWrite", "written to it")]);
    let written = classes(&[("reasoning", "of reasoning")]);
    format!("{} tokens in{read}, {} out{written}", shown(&usage["input"]), shown(&usage["output"]))
}

/// Formats dollars to a millionth.
fn dollars(cost: f64) -> String {
    let text = format!("{cost:.6}");
    format!("${}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns the sum of a job and the jobs under it; its own where only that is known.
fn known_total(spend: &Value) -> &Value {
    if spend["tree"].is_null() { &spend["own"] } else { &spend["tree"] }
}

/// Formats tokens of prompts and replies; empty if unknown.
pub(crate) fn tokens(spend: &Value) -> String {
    let total = known_total(spend);
    match (total["input"].as_u64(), total["output"].as_u64()) {
        (Some(input), Some(output)) => format!("{input}+{output}"),
        _ => String::new(),
    }
}

/// Formats the cost; empty if unknown, with `>` if some calls have no price.
pub(crate) fn cost(spend: &Value) -> String {
    let total = known_total(spend);
    let at_least = if total["unpriced"].is_null() && total["partial"] != true { "" } else { ">" };
    total["cost"].as_f64().map(|cost| format!("{at_least}{}", dollars(cost))).unwrap_or_default()
}

/// Formats the own usage of a job and that of its tree, in one line.
pub(crate) fn format_spend(spend: &Value) -> String {
    let own = (!spend["own"].is_null()).then(|| format_usage(&spend["own"]));
    let tree = &spend["tree"];
    let jobs = tree["jobs"].as_u64().unwrap_or_default();
    let more = if tree["partial"] == true { "or more " } else { "" };
    let below = (jobs > 0).then(|| format!("with {jobs} {more}jobs under it: {}", format_usage(tree)));
    own.into_iter().chain(below).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_amounts_are_not_shown() {
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
                json!({"own": {"calls": 1, "input": 30, "output": 9, "cacheRead": 20, "cacheWrite": 5, "reasoning": 7, "cost": 0.1}}),
                [
                    "30+9",
                    "$0.1",
                    "1 calls, 30 tokens in (20 from the cache, 5 written to it), 9 out (7 of reasoning), $0.1",
                ],
            ),
            (
                json!({"own": {"calls": 2, "input": 3, "output": 2, "cost": 0.1, "estimated": 1, "fallbacks": 2}}),
                ["3+2", "$0.1", "2 calls, 3 tokens in, 2 out, $0.1, 1 estimated, 2 answered by a fallback"],
            ),
            (
                json!({"own": {"calls": 1, "input": 3, "output": 2, "unpriced": 1}}),
                ["3+2", "", "1 calls, 3 tokens in, 2 out, no price"],
            ),
        ] {
            assert_eq!([tokens(&spend), cost(&spend), format_spend(&spend)], shown, "{spend}");
        }
        assert_eq!(dollars(0.0), "$0");
    }

    #[test]
    fn a_cap_shows_its_known_amounts_and_omits_unknown_ones() {
        let tokens = json!({"limit": 100, "used": 60, "held": 20});
        let money = json!({"limit": 2.5, "used": 1.0, "held": 0.25});
        for (shown, expected) in [
            (
                json!({"of": "owner", "tokens": tokens, "cost": money, "resets": 0, "reached": false}),
                ["owner", "60+20 of 100", "$1+$0.25 of $2.5", "1970-01-01T00:00:00.000Z"],
            ),
            (
                json!({"of": "session", "tokens": tokens, "reached": true}),
                ["session (reached)", "60+20 of 100", "", ""],
            ),
            (json!({"of": "model", "model": "openai", "reached": true}), ["model openai (reached)", "", "", ""]),
        ] {
            assert_eq!(cap(&shown), expected, "{shown}");
        }
    }
}
