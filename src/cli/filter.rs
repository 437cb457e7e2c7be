//! Options of lists: filters by state, time and text.

use super::client::{Client, read_view};
use super::exit::Failure;
use super::output::remark;
use crate::domain::decode::{self, DataError};
use crate::domain::ids::{AgentId, SessionId};
use crate::domain::job::{ErrorCode, JobStatus};
use crate::domain::time::Millis;
use crate::view::job::error_code_name;
use crate::view::job_list::JobFilterRequest;
use serde::Deserialize;
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// Which records of a list are wanted.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Which ones")]
pub(crate) struct Filter {
    /// In one of these states, e.g. `FAILED,REJECTED`
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = status)]
    state: Vec<JobStatus>,
    /// That ended with one of these codes, e.g. `DEAD,LIMIT_REACHED`
    #[arg(long, value_name = "CODE", value_delimiter = ',', value_parser = code)]
    code: Vec<ErrorCode>,
    /// Since then: a time as `2026-11-21T22:00:00Z`, a date, or how long ago, as `2h`
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Millis>,
    /// Until this time, written as for `--since`
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Millis>,
    /// With this text; case does not matter
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Go on behind this place, the `next` of the list before
    #[arg(long, value_name = "PLACE")]
    cursor: Option<String>,
}

impl Filter {
    /// Returns the filter as a query of the API.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        let states: Vec<_> = self.state.iter().map(|status| status.as_str()).collect();
        let named = [
            ("status", (!states.is_empty()).then(|| states.join(","))),
            ("code", (!self.code.is_empty()).then(|| code_names(&self.code))),
            ("since", self.since.map(|at| at.to_string())),
            ("until", self.until.map(|at| at.to_string())),
            ("q", self.text.clone()),
            ("cursor", self.cursor.clone()),
        ];
        named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// Which jobs are wanted.
#[derive(Debug, clap::Args)]
pub(crate) struct JobFilterArgs {
    /// Served by this agent
    #[arg(long, value_name = "AGENT")]
    agent: Option<AgentId>,
    /// In this session
    #[arg(long, value_name = "SESSION")]
    session: Option<SessionId>,
    #[command(flatten)]
    filter: Filter,
}

impl JobFilterArgs {
    /// Whether no filter is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.query().is_empty()
    }

    /// Returns the filter as arguments of an operation.
    pub(crate) fn request(&self) -> JobFilterRequest {
        let Self { agent, session, filter } = self;
        let Filter { state, code, since, until, text, cursor } = filter.clone();
        JobFilterRequest {
            status: state,
            code,
            since,
            until,
            q: text,
            cursor,
            agent: agent.clone(),
            session: session.clone(),
        }
    }

    /// Returns the filter as a query of the API.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        self.filter.query().into_iter().chain(self.place()).collect()
    }

    fn place(&self) -> impl Iterator<Item = (&'static str, String)> {
        let agent = self.agent.as_ref().map(|agent| ("agent", agent.to_string()));
        agent.into_iter().chain(self.session.as_ref().map(|session| ("session", session.to_string())))
    }
}

/// Where a page of a filtered list of any kind ends.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FilteredPageEnd {
    /// The `cursor` of the next page; `None` after the last.
    pub(crate) next: Option<String>,
    /// Time of the oldest record that was searched, in milliseconds since 1970.
    looked_back_to: Option<Millis>,
}

/// Reads a filtered list until `limit` items are found or it ends: one answer of the API searches at most 1,000
/// records.
pub(crate) async fn read_filtered(
    client: &Client,
    path: &str,
    key: &str,
    mut query: Vec<(&'static str, String)>,
    limit: usize,
) -> Result<Value, Failure> {
    let mut items: Vec<Value> = Vec::new();
    loop {
        let mut asked = query.clone();
        asked.push(("limit", (limit - items.len()).to_string()));
        let mut page = client.get(path, &asked).await?;
        if let Some(Value::Array(found)) = page.get_mut(key).map(Value::take) {
            items.extend(found);
        }
        let FilteredPageEnd { next, looked_back_to } = read_view(page.clone())?;
        let Some(next) = next.filter(|_| items.len() < limit) else {
            page[key] = items.into();
            return Ok(page);
        };
        if let Some(at) = looked_back_to {
            remark(&format!("{} found, looked back to {}", items.len(), at.rfc3339()));
        }
        query.retain(|(name, _)| *name != "cursor");
        query.push(("cursor", next));
    }
}

/// Appends a line that says how the list goes on.
pub(crate) fn append_next(text: String, shown: usize, next: Option<&str>) -> String {
    match next {
        None => text,
        Some(next) if shown == 0 => format!("{text}\n… none so far; `--cursor {next}` looks on"),
        Some(next) => format!("{text}\n… `--cursor {next}` shows the next"),
    }
}

/// Reason why the value of a filter is refused; the error of the argument parser shows the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum FilterValueError {
    /// No error has such a code.
    #[error(transparent)]
    Code(DataError),
    /// No job has such a status.
    #[error("expected one of {}", JobStatus::ALL.map(JobStatus::as_str).join(", "))]
    Status,
    /// The text is neither a time nor an age.
    #[error("expected a time as `2026-11-21T22:00:00Z`, a date, or how long ago, as `2h`")]
    Time,
}

fn code(text: &str) -> Result<ErrorCode, FilterValueError> {
    decode::into_type(text.to_ascii_uppercase().into()).map_err(FilterValueError::Code)
}

/// Returns the names of codes, separated by commas.
fn code_names(codes: &[ErrorCode]) -> String {
    codes.iter().filter_map(|code| error_code_name(*code)).collect::<Vec<_>>().join(",")
}

fn status(text: &str) -> Result<JobStatus, FilterValueError> {
    JobStatus::parse(&text.to_ascii_uppercase()).ok_or(FilterValueError::Status)
}

fn time(text: &str) -> Result<Millis, FilterValueError> {
    if let Some(at) = Millis::parse(text) {
        return Ok(at);
    }
    let ago = humantime::parse_duration(text).map_err(|_| FilterValueError::Time)?;
    let at = SystemTime::now().checked_sub(ago).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    Ok(Millis(at.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_instants_dates_or_ages() {
        assert_eq!(time("1700000000000"), Ok(Millis(1_700_000_000_000)));
        assert_eq!(time("1970-01-02"), Ok(Millis(86_400_000)));
        assert_eq!(time("1970-01-01T00:00:01Z"), Ok(Millis(1_000)));
        assert!(time("2h").unwrap() < time("1h").unwrap());
        assert!(time("yesterday").unwrap_err().to_string().contains("how long ago"));
        assert_eq!(status("failed"), Ok(JobStatus::Failed));
        assert!(status("done").unwrap_err().to_string().contains("COMPLETE"));
        assert_eq!(code_names(&[code("limit_reached").unwrap()]), "LIMIT_REACHED");
        let error = code("MODEL_ERORR").unwrap_err().to_string();
        assert!(error.contains("`OUTCOME_UNKNOWN`") && error.ends_with("did you mean `MODEL_ERROR`"), "{error}");
    }
}
