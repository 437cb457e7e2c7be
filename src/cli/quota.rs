//! `trellis quota [set]`: shows and sets quotas of an owner.

use super::CliContext;
use super::client::{Client, ServerArgs};
use super::exit::{Exit, Failure};
use super::output::{CommandOutput, field};
use crate::domain::ids::Owner;
use crate::domain::quota::QuotaKind;
use clap::{Args, Subcommand};
use serde_json::{Map, Value};

/// What an owner keeps in the store, and what it may keep at most.
///
/// Documents are everything that is kept: values, agents, assets, records of jobs and turns. Beyond a limit new work and
/// writes are refused with `QUOTA_EXCEEDED`; what was accepted ends, and deleting is always possible.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  trellis quota\n  trellis quota acme/ann --output json\n  trellis quota set acme/ann --bytes 1073741824 --jobs 100000"
)]
pub(crate) struct QuotaArgs {
    #[command(subcommand)]
    set: Option<QuotaCommand>,
    /// Whose; your own without it
    #[arg(value_name = "TENANT/USER")]
    of: Option<Owner>,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

/// What operators do.
#[derive(Debug, Subcommand)]
enum QuotaCommand {
    /// Set limits of one owner, in the place of the venue's (`[quota]`); 0 = any number, `default` = the venue's again
    #[command(
        after_help = "Examples:\n  trellis quota set acme/ann --documents 100000\n  trellis quota set acme/ann --bytes default"
    )]
    Set {
        /// Whose
        #[arg(value_name = "TENANT/USER")]
        of: Owner,
        /// Documents
        #[arg(long, value_name = "N")]
        documents: Option<String>,
        /// Bytes
        #[arg(long, value_name = "N")]
        bytes: Option<String>,
        /// Sessions
        #[arg(long, value_name = "N")]
        sessions: Option<String>,
        /// Records of jobs, ended ones included
        #[arg(long, value_name = "N")]
        jobs: Option<String>,
        /// Which server
        #[command(flatten)]
        server: ServerArgs,
    },
}

impl QuotaArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let shown = match self.set {
            None => {
                let owner = self.of.or(self.server.owner.clone());
                Client::new(&ServerArgs { owner, ..self.server })?.get("quota", &[]).await?
            }
            Some(QuotaCommand::Set { of, documents, bytes, sessions, jobs, server }) => {
                let named = QuotaKind::ALL.into_iter().zip([documents, bytes, sessions, jobs]);
                let limits = named.filter_map(|(kind, text)| Some((kind, text?)));
                let limits = limits.map(|(kind, text)| Ok((kind.as_str().to_owned(), limit(kind, &text)?)));
                let limits: Map<String, Value> = limits.collect::<Result<_, Failure>>()?;
                let server = ServerArgs { owner: Some(of), ..server };
                Client::new(&server)?.put("quota", &Value::Object(limits)).await?
            }
        };
        context.out.value(&shown, || table(context.out, &shown))?;
        Ok(Exit::Ok)
    }
}

fn limit(kind: QuotaKind, text: &str) -> Result<Value, Failure> {
    if text == "default" {
        return Ok(Value::Null);
    }
    let bad = |_| Failure::usage(format!("--{} `{text}`: expected a number or `default`", kind.as_str()));
    text.parse::<u64>().map(Value::from).map_err(bad)
}

fn table(out: CommandOutput, shown: &Value) -> String {
    let row = |kind: &QuotaKind| {
        let of = &shown[kind.as_str()];
        let limit = if of["limit"].is_null() { "any".to_owned() } else { field(of, "limit") };
        let set = if of["own"] == true { "an operator" } else { "the venue" };
        vec![kind.as_str().to_owned(), field(of, "used"), limit, set.to_owned()]
    };
    let rows: Vec<_> = QuotaKind::ALL.iter().map(row).collect();
    format!("{}\n\n{}", field(shown, "owner"), out.table(&["QUOTA", "USED", "LIMIT", "SET BY"], &rows))
}
