//! `trellis quota [set]`: shows and sets quotas of an owner.

use super::CliContext;
use super::client::{Client, ServerArgs};
use super::escape::escape_data;
use super::exit::{Exit, Failure};
use super::output::CommandOutput;
use crate::domain::ids::Owner;
use crate::domain::quota::QuotaKind;
use crate::view::quota::QuotaView;
use clap::{Args, Subcommand};
use serde_json::{Map, Value};

/// Arguments of `trellis quota`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  trellis quota\n  trellis quota acme/ann --output json\n  trellis quota set acme/ann --bytes 1073741824 --jobs 100000"
)]
pub(crate) struct QuotaArgs {
    #[command(subcommand)]
    set: Option<QuotaCommand>,
    /// Owner whose quota is shown [default: `--owner`, else you]
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
        /// Owner whose limits are set
        #[arg(value_name = "TENANT/USER")]
        of: Owner,
        /// Documents that the owner may keep
        #[arg(long, value_name = "N")]
        documents: Option<String>,
        /// Bytes that the owner may keep
        #[arg(long, value_name = "N")]
        bytes: Option<String>,
        /// Sessions that the owner may keep
        #[arg(long, value_name = "N")]
        sessions: Option<String>,
        /// Records of jobs, ended ones included
        #[arg(long, value_name = "N")]
        jobs: Option<String>,
        /// Server to ask
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
        context.out.typed_value(shown, |quota: &QuotaView| table(context.out, quota))?;
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

fn table(out: CommandOutput, quota: &QuotaView) -> String {
    let row = |kind: QuotaKind| {
        let of = quota.get(kind);
        let limit = of.limit.map_or_else(|| "any".to_owned(), |limit| limit.to_string());
        let set = if of.own { "an operator" } else { "the venue" };
        vec![kind.as_str().to_owned(), of.used.to_string(), limit, set.to_owned()]
    };
    let mut rows: Vec<_> = QuotaKind::ALL.map(row).into();
    rows.extend(quota.tenant_users.map(|users| {
        vec!["users of the tenant".to_owned(), users.used.to_string(), users.limit.to_string(), "the venue".to_owned()]
    }));
    format!("{}\n\n{}", escape_data(&quota.owner), out.table(&["QUOTA", "USED", "LIMIT", "SET BY"], &rows))
}
