//! `trellis spend`, and the formatting of usage and cost.

use super::CliContext;
use super::client::{Client, ServerArgs};
use super::escape::escape_data;
use super::exit::{Exit, Failure};
use super::output::CommandOutput;
use crate::domain::chat::TokenUsage;
use crate::domain::ids::{AgentId, SessionId};
use crate::domain::time::Millis;
use crate::view::spend::{CapView, JobSpendView, ModelUseView, SpendTodayView};
use clap::Args;

/// Arguments of `trellis spend`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  trellis spend\n  trellis spend --agent helper --session s1 --output json")]
pub(crate) struct SpendArgs {
    /// The cap of a session of this agent, too
    #[arg(long, value_name = "AGENT", requires = "session")]
    agent: Option<AgentId>,
    /// Session whose cap is shown, of `--agent`
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
        context.out.typed_value(shown, |today: &SpendTodayView| report(context.out, today))?;
        Ok(Exit::Ok)
    }
}

/// Formats the report of a day.
fn report(out: CommandOutput, today: &SpendTodayView) -> String {
    let head = format!(
        "{} on {} ({}): {}",
        escape_data(&today.owner),
        escape_data(&today.day),
        escape_data(&today.zone),
        format_usage(&today.spent)
    );
    let mut parts = vec![head];
    let models: Vec<_> = today.models.iter().map(|of| amounts(of.model.clone(), &of.spent)).collect();
    let sessions = today.sessions.iter();
    let sessions = sessions.map(|of| amounts(format!("{}/{}", of.agent_id, of.session_id), &of.spent));
    for (heading, rows) in [("MODEL", models), ("SESSION", sessions.collect())] {
        if !rows.is_empty() {
            parts.push(out.table(&[heading, "CALLS", "IN", "OUT", "COST"], &rows));
        }
    }
    let caps: Vec<_> = today.caps.iter().map(cap).collect();
    if !caps.is_empty() {
        parts.push(out.table(&["CAP", "TOKENS", "COST", "RESETS"], &caps));
    }
    parts.join("\n\n")
}

/// Returns the row of a use under a name.
fn amounts(name: String, spent: &ModelUseView) -> Vec<String> {
    let cost = spent.cost.map(dollars).unwrap_or_default();
    vec![name, spent.calls.to_string(), spent.input.to_string(), spent.output.to_string(), cost]
}

/// Formats a cap: used and reserved amount, and the limit.
fn cap(cap: &CapView) -> Vec<String> {
    let name = [Some(&cap.of), cap.user.as_ref(), cap.model.as_ref()].into_iter().flatten().map(String::as_str);
    let name = name.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    let reached = if cap.reached { " (reached)" } else { "" };
    let tokens = cap.tokens.map(|of| format!("{}+{} of {}", of.used, of.held, of.limit));
    let cost = cap.cost.map(|of| format!("{}+{} of {}", dollars(of.used), dollars(of.held), dollars(of.limit)));
    vec![
        format!("{name}{reached}"),
        tokens.unwrap_or_default(),
        cost.unwrap_or_default(),
        cap.resets.map(Millis::rfc3339).unwrap_or_default(),
    ]
}

/// Formats calls, tokens and cost in words.
fn format_usage(spent: &ModelUseView) -> String {
    let cost = match (spent.cost, spent.unpriced.unwrap_or_default()) {
        (None, _) => ", no price".to_owned(),
        (Some(cost), 0) => format!(", {}", dollars(cost)),
        (Some(cost), calls) => format!(", {} and {calls} calls without a price", dollars(cost)),
    };
    let usage = TokenUsage {
        input: spent.input,
        output: spent.output,
        cache_read: spent.cache_read.unwrap_or_default(),
        cache_write: spent.cache_write.unwrap_or_default(),
        reasoning: spent.reasoning.unwrap_or_default(),
    };
    let tokens = format_token_classes(usage, |number| number.to_string());
    let told = [(spent.estimated, "estimated"), (spent.fallbacks, "answered by a fallback")];
    let told = told.into_iter().filter_map(|(number, what)| Some((number.filter(|number| *number > 0)?, what)));
    let notes = told.map(|(number, what)| format!(", {number} {what}")).collect::<Vec<_>>().concat();
    format!("{} calls, {tokens}{cost}{notes}", spent.calls)
}

/// Formats tokens of prompts and replies by class, as `300 tokens in (120 from the cache), 20 out`.
pub(crate) fn format_token_classes(usage: TokenUsage, shown: impl Fn(u64) -> String) -> String {
    let classes = |classes: &[(u64, &str)]| {
        let told = classes.iter().filter(|(tokens, _)| *tokens > 0);
        let told: Vec<_> = told.map(|(tokens, what)| format!("{} {what}", shown(*tokens))).collect();
        if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) }
    };
    let read = classes(&[(usage.cache_read, "from the cache"), (usage.cache_write, "written to it")]);
    let written = classes(&[(usage.reasoning, "of reasoning")]);
    format!("{} tokens in{read}, {} out{written}", shown(usage.input), shown(usage.output))
}

/// Formats dollars to a millionth.
fn dollars(cost: f64) -> String {
    let text = format!("{cost:.6}");
    format!("${}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Formats tokens of prompts and replies of a job and the jobs under it; empty if unknown.
pub(crate) fn tokens(spend: Option<&JobSpendView>) -> String {
    let total = spend.and_then(JobSpendView::total);
    total.map(|total| format!("{}+{}", total.input, total.output)).unwrap_or_default()
}

/// Formats the cost of a job and the jobs under it; empty if unknown, with `>` if some calls have no price.
pub(crate) fn cost(spend: Option<&JobSpendView>) -> String {
    let Some(total) = spend.and_then(JobSpendView::total) else { return String::new() };
    let at_least = if total.unpriced.is_none() && total.partial != Some(true) { "" } else { ">" };
    total.cost.map(|cost| format!("{at_least}{}", dollars(cost))).unwrap_or_default()
}

/// Formats the own usage of a job and that of its tree, in one line.
pub(crate) fn format_spend(spend: &JobSpendView) -> String {
    let own = spend.own.as_ref().map(format_usage);
    let tree = spend.tree.as_ref().and_then(|tree| Some((tree, tree.jobs.filter(|jobs| *jobs > 0)?)));
    let below = tree.map(|(tree, jobs)| {
        let more = if tree.partial == Some(true) { "or more " } else { "" };
        format!("with {jobs} {more}jobs under it: {}", format_usage(tree))
    });
    own.into_iter().chain(below).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::decode;
    use serde_json::{Value, json};

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
            let view: Option<JobSpendView> = decode::into_type(spend.clone()).unwrap();
            let view = view.as_ref();
            let line = view.map(format_spend).unwrap_or_default();
            assert_eq!([tokens(view), cost(view), line], shown, "{spend}");
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
            let view: CapView = decode::into_type(shown.clone()).unwrap();
            assert_eq!(cap(&view), expected, "{shown}");
        }
    }
}
