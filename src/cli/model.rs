//! `trellis model`: lists providers and tries models.

use super::CliContext;
use super::exit::{Exit, Failure};
use super::output::{CommandOutput, remark};
use crate::app;
use crate::domain::chat::ModelSettings;
use crate::domain::decode;
use crate::domain::media::MediaType;
use crate::domain::wire::dialect::{DIALECTS, Dialect, ReasoningRequest, StructuredOutput, WireFormat};
use crate::model::trial::{self, TrialFinding};
use crate::view::to_json;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};

/// Models and their providers.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Call a model a few times and show what works: text, streaming, tools, structured output
    ///
    /// It needs no running process; the calls are paid like any other. Exits with 1 when a feature does not work, with
    /// 8 when the provider fails the first call or doesn't answer another.
    Try(TryArgs),
    /// List the providers with their URLs, the variables of their keys and what is supported
    Providers(ProvidersArgs),
}

/// Arguments of `trellis model try`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  trellis model try anthropic/claude-sonnet-4-5\n  \
                        trellis model try llamacpp/any --base-url http://127.0.0.1:8080/v1")]
pub(crate) struct TryArgs {
    /// Provider and name of the model
    #[arg(value_name = "PROVIDER/NAME")]
    model: String,
    /// Another URL of the provider's protocol, up to and including its version; it is sent no key without `--key-env`
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Variable with the key for `--base-url`
    #[arg(long, value_name = "NAME", requires = "base_url")]
    key_env: Option<String>,
    /// How much it reasons: none, low, medium, high or a number of tokens
    #[arg(long, value_name = "EFFORT")]
    reasoning: Option<String>,
}

/// Lists the providers.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis model providers")]
pub(crate) struct ProvidersArgs {}

impl ModelCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        match self {
            Self::Try(command) => command.run(context).await,
            Self::Providers(_) => providers(context),
        }
    }
}

impl TryArgs {
    async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let (provider, name) = self.model.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(|| {
            Failure::usage(format!("`{}`: expected `PROVIDER/NAME`, as `openai/gpt-5.1`", self.model))
        })?;
        let [url, key] = ["base_url", "api_key_env"].map(|leaf| format!("models.endpoints.{provider}.{leaf}"));
        let flags = [(url.as_str(), &self.base_url), (key.as_str(), &self.key_env)];
        let flags = flags.into_iter().filter_map(|(key, value)| Some((key, value.clone()?)));
        let config = context.load(flags.collect())?.config;
        let reasoning = self.reasoning.as_ref().map(|effort| effort.parse::<u32>().map_or(json!(effort), Value::from));
        let reasoning = reasoning.map(decode::into_type).transpose();
        let reasoning = reasoning.map_err(|error| Failure::usage(format!("--reasoning: {error}")))?;
        let settings = ModelSettings { reasoning, ..ModelSettings::new(provider, name) };
        let models = app::models(&config).map_err(|error| Failure::usage(error.to_string()))?;
        remark(&format!("calling `{}` …", settings.id()));
        let findings = trial::run(&*models, &settings, &[]).await;
        let findings = findings.map_err(|error| Failure::new(Exit::Unreachable, error.to_string()))?;
        let shown = ModelTrial { model: settings.id(), findings: findings.iter().map(FeatureRow::from).collect() };
        context.out.value(&to_json(&shown), || table(context.out, &shown.findings))?;
        check_findings(&findings)
    }
}

/// Fails if a feature does not work, or the provider was unavailable for one.
fn check_findings(findings: &[TrialFinding]) -> Result<Exit, Failure> {
    let names = |is_meant: fn(&TrialFinding) -> bool| {
        let meant = findings.iter().filter(|finding| is_meant(finding));
        meant.map(|finding| finding.feature).collect::<Vec<_>>().join(", ")
    };
    let (broken, unknown) = (names(|finding| finding.works == Some(false)), names(|finding| finding.is_unavailable));
    match (broken.is_empty(), unknown.is_empty()) {
        (true, true) => Ok(Exit::Ok),
        (false, _) => Err(Failure::internal(format!("does not work with this model: {broken}"))),
        (true, false) => {
            let text = format!("the provider did not answer to the calls for: {unknown}; try again");
            Err(Failure::new(Exit::Unreachable, text))
        }
    }
}

/// What a model can do, as the command prints it.
#[derive(Serialize)]
struct ModelTrial {
    /// The model, `provider/name`.
    model: String,
    findings: Vec<FeatureRow>,
}

/// A feature of a model.
#[derive(Serialize)]
struct FeatureRow {
    feature: &'static str,
    /// `yes`, `no` or `not seen`.
    works: &'static str,
    detail: String,
}

impl From<&TrialFinding> for FeatureRow {
    fn from(finding: &TrialFinding) -> Self {
        let works = match finding.works {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not seen",
        };
        Self { feature: finding.feature, works, detail: finding.detail.clone() }
    }
}

fn table(out: CommandOutput, findings: &[FeatureRow]) -> String {
    let cells = |row: &FeatureRow| vec![row.feature.to_owned(), row.works.to_owned(), row.detail.clone()];
    let rows: Vec<_> = findings.iter().map(cells).collect();
    out.table(&["FEATURE", "WORKS", "SEEN"], &rows)
}

fn providers(context: &CliContext) -> Result<Exit, Failure> {
    let rows: Vec<ProviderRow> = DIALECTS.iter().map(ProviderRow::from).collect();
    context.out.value(&to_json(&rows), || {
        let cells: Vec<_> = rows.iter().map(ProviderRow::cells).collect();
        let headings =
            ["PROVIDER", "FORMAT", "TOOLS", "STREAMING", "OUTPUT", "REASONING", "CACHING", "IMAGES", "KEY", "URL"];
        context.out.table(&headings, &cells)
    })?;
    Ok(Exit::Ok)
}

/// The supported features of a provider, as the command prints them.
#[derive(Serialize)]
struct ProviderRow {
    provider: &'static str,
    format: &'static str,
    tools: &'static str,
    streaming: &'static str,
    structured: &'static str,
    reasoning: &'static str,
    caching: &'static str,
    images: String,
    /// Variable with the key.
    key: &'static str,
    url: &'static str,
}

impl From<&Dialect> for ProviderRow {
    fn from(dialect: &Dialect) -> Self {
        let yes = |is: bool| if is { "yes" } else { "no" };
        Self {
            provider: dialect.provider,
            format: match dialect.format {
                WireFormat::OpenAiChat => "chat",
                WireFormat::OpenAiResponses => "responses",
                WireFormat::Anthropic => "messages",
                WireFormat::Gemini => "gemini",
            },
            tools: "yes",
            streaming: "yes",
            structured: match (dialect.structured, dialect.structured_with_tools) {
                (StructuredOutput::Unsupported, _) => "no",
                (StructuredOutput::JsonObject, _) => "json",
                (StructuredOutput::Schema, true) => "yes",
                (StructuredOutput::Schema, false) => "without tools",
            },
            reasoning: yes(dialect.reasoning != ReasoningRequest::Unsupported),
            caching: yes(dialect.caches),
            images: images(dialect),
            key: dialect.key_env.unwrap_or("none"),
            url: dialect.base_url.unwrap_or("named by the configuration"),
        }
    }
}

impl ProviderRow {
    fn cells(&self) -> Vec<String> {
        let Self { provider, format, tools, streaming, structured, reasoning, caching, images, key, url } = self;
        [*provider, *format, *tools, *streaming, *structured, *reasoning, *caching, images.as_str(), *key, *url]
            .map(str::to_owned)
            .into()
    }
}

/// Returns the types of pictures and files that a provider accepts, in short.
fn images(dialect: &Dialect) -> String {
    if dialect.media.is_empty() {
        return "no".to_owned();
    }
    let short = |media: &MediaType| media.as_str().rsplit('/').next().unwrap_or_default();
    dialect.media.iter().map(short).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_has_a_row_for_each_provider_as_the_codecs_know_it() {
        let guide = include_str!("../guide/models.md");
        let rows = DIALECTS.iter().map(|dialect| {
            // Without the provider, the key and the address.
            let cells = ProviderRow::from(dialect).cells()[1..8].join(" | ");
            let key = dialect.key_env.map(|name| format!("`{name}`")).unwrap_or_default();
            format!("| `{}` | {cells} | {key} |", dialect.provider)
        });
        for row in rows {
            assert!(guide.lines().any(|line| line == row), "src/guide/models.md lacks the row:\n{row}");
        }
        let told = guide.lines().filter(|line| line.starts_with("| `") && line.matches('|').count() == 10).count();
        assert_eq!(told, DIALECTS.len(), "the guide has a row of no provider");
    }
}
