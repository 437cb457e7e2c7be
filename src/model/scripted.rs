//! Scripted models, without a network: the built-in names `echo` and `never`, or rules of the venue.

use crate::domain::charge::CallStage;
use crate::domain::chat::{ModelRequest, Reply, TokenUsage};
use crate::model::calls_log::{CallsLog, LogError, LoggedCall};
use crate::model::facts::{RequestFacts, tokens};
use crate::model::rules::{RuleAnswer, ScriptFault, ScriptRules};
use crate::model::rules_path::{self, FoundRules, RulesPathError, RulesStamp};
use crate::model::template::TemplateError;
use crate::model::{LiveText, Model, ModelError};
use crate::venue::secrets::OpenedSecret;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Name of the model that answers with the text of the last task or message.
pub const ECHO: &str = "echo";
/// Name of the model that never answers.
pub const NEVER: &str = "never";

/// Key of the configured rules file; no file can have this name.
const CONFIGURED_KEY: &str = "";

/// Files of a folder that stay loaded.
const LOADED_SCRIPTS_MAX: usize = 1_000;

/// Characters of one piece of a streamed text.
const CHUNK_CHARS: usize = 12;
/// Paths of the rules and of the log of calls.
#[derive(Debug, Clone, Default)]
pub struct ScriptedOptions {
    /// File or folder of rules. A file answers for all names but the built-in ones, and `when.model` tells them apart;
    /// in a folder, the name of a model is the relative path of a rules file. `None`: only the built-in names.
    pub rules: Option<PathBuf>,
    /// Log with one JSON line per call; the `calls_log` of a rules file takes precedence.
    pub calls_log: Option<CallsLog>,
}

/// Answers behind a name.
#[derive(Debug)]
enum ScriptSource {
    Echo,
    Never,
    Rules(ScriptRules),
}

/// A rules file or a built-in name, with its counts of calls.
#[derive(Debug)]
pub struct Script {
    name: String,
    source: ScriptSource,
    hits: Vec<AtomicU64>,
    calls: Arc<AtomicU64>,
    log: Option<CallsLog>,
    /// The file as it was read; `None` of names without one.
    stamp: Option<RulesStamp>,
}

/// Error of a scripted call; a repetition doesn't help.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The rules can't be loaded.
    #[error(transparent)]
    Rules(#[from] RulesPathError),
    /// Too many files of the folder are in use.
    #[error(
        "more than {LOADED_SCRIPTS_MAX} rules files are in use; put their rules into fewer, told apart by `when.agent`"
    )]
    TooMany,
    /// No rule matches the request.
    #[error("no rule of `{file}` answers turn {turn} of agent `{agent}`, last role {last_role}, text `{text}`{}", .tool.as_ref().map(|tool| format!(", result of `{tool}`")).unwrap_or_default())]
    NoRule {
        /// Name of the script.
        file: String,
        /// Number of model calls of the task.
        turn: usize,
        /// Id of the agent.
        agent: String,
        /// Role of the last message.
        last_role: &'static str,
        /// Start of the last message.
        text: String,
        /// Tool of the last result.
        tool: Option<String>,
    },
    /// A template has no value.
    #[error("rule {rule} of `{file}`: {error}")]
    Template {
        /// Name of the script.
        file: String,
        /// Number of the rule, from 1.
        rule: usize,
        /// Error of the template.
        error: TemplateError,
    },
    /// The call can't be logged.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// A call that a script has answered and that has not ended.
#[derive(Debug)]
pub struct ScriptCall {
    /// Answer to the call.
    pub answer: RuleAnswer,
    log: Option<CallsLog>,
    entry: LoggedCall,
}

impl Script {
    /// Loads a built-in name, or any rules file. It blocks.
    pub fn load(name: &str, calls_log: Option<CallsLog>) -> Result<Script, ScriptError> {
        let calls = Arc::default();
        Ok(match built_in(name) {
            Some(source) => Script::new(name, source, calls_log, calls),
            None => Script::from_found(rules_path::file(Path::new(name))?, calls_log, calls),
        })
    }

    /// Makes a script of rules that are no file; `name` is for messages.
    pub fn from_rules(name: &str, rules: ScriptRules) -> Script {
        Script::new(name, ScriptSource::Rules(rules), None, Arc::default())
    }

    fn from_found(found: FoundRules, log: Option<CallsLog>, calls: Arc<AtomicU64>) -> Script {
        let script = Script::new(&found.name, ScriptSource::Rules(found.rules), found.log.or(log), calls);
        Script { stamp: found.stamp, ..script }
    }

    fn new(name: &str, source: ScriptSource, log: Option<CallsLog>, calls: Arc<AtomicU64>) -> Script {
        let hits = match &source {
            ScriptSource::Rules(rules) => rules.rules.len(),
            ScriptSource::Echo | ScriptSource::Never => 0,
        };
        let hits = std::iter::repeat_with(AtomicU64::default).take(hits).collect();
        Script { name: name.to_owned(), source, hits, calls, log, stamp: None }
    }

    /// Counts a call, logs it as started and returns its answer.
    pub async fn take(&self, request: &ModelRequest) -> Result<ScriptCall, ScriptError> {
        let mut facts = RequestFacts::from_request(request);
        if matches!(&self.source, ScriptSource::Rules(rules) if rules.needs_prompt()) {
            facts = facts.with_prompt(request);
        }
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let (rule, answer) = match &self.source {
            ScriptSource::Echo => (0, echo(&facts)),
            ScriptSource::Never => (0, RuleAnswer { fault: Some(ScriptFault::Hang), ..echo(&facts) }),
            ScriptSource::Rules(rules) => {
                let (at, rule) = rules.find(&facts).ok_or_else(|| self.no_rule_error(&facts))?;
                let hit = self.hits[at].fetch_add(1, Ordering::Relaxed) + 1;
                let answer = rule.answer(&facts, call, hit).map_err(|error| ScriptError::Template {
                    file: self.name.clone(),
                    rule: at + 1,
                    error,
                })?;
                (at + 1, answer)
            }
        };
        let entry = LoggedCall { turn: request.turn.clone(), model: request.model.id(), rule, call };
        if let Some(log) = &self.log {
            log.log_start(&entry).await?;
        }
        Ok(ScriptCall { answer, log: self.log.clone(), entry })
    }

    /// Returns the name of the script, then the models that its rules name, sorted.
    pub fn models(&self) -> Vec<&str> {
        let rules = match &self.source {
            ScriptSource::Rules(rules) => rules.rules.as_slice(),
            ScriptSource::Echo | ScriptSource::Never => &[],
        };
        let mut named: Vec<&str> = rules.iter().filter_map(|rule| rule.when.model.as_deref()).collect();
        named.sort_unstable();
        named.dedup();
        named.insert(0, &self.name);
        named
    }

    fn no_rule_error(&self, facts: &RequestFacts) -> ScriptError {
        ScriptError::NoRule {
            file: self.name.clone(),
            turn: facts.turn,
            agent: facts.agent.clone(),
            last_role: facts.last_role,
            text: facts.last_text.chars().take(200).collect(),
            tool: facts.tool.as_ref().map(|(name, _)| name.clone()),
        }
    }
}

impl ScriptCall {
    /// Logs the call as `replied` or `failed`.
    pub async fn finish(&self, replied: bool) -> Result<(), ScriptError> {
        match &self.log {
            Some(log) => Ok(log.log_end(&self.entry, replied).await?),
            None => Ok(()),
        }
    }
}

fn built_in(name: &str) -> Option<ScriptSource> {
    match name {
        ECHO => Some(ScriptSource::Echo),
        NEVER => Some(ScriptSource::Never),
        _ => None,
    }
}

/// Splits a text into the pieces it is streamed in.
pub fn chunks(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(CHUNK_CHARS).map(|chunk| chunk.iter().collect()).collect()
}

fn echo(facts: &RequestFacts) -> RuleAnswer {
    let text = facts.echo();
    let usage = TokenUsage::new(facts.prompt_tokens, tokens(&text));
    RuleAnswer {
        delay: Duration::ZERO,
        chunk_delay: Duration::ZERO,
        reply: Reply { text, usage, ..Reply::default() },
        fault: None,
        retry_after: None,
    }
}

/// The provider `scripted`. Files stay loaded until they change.
#[derive(Debug, Default)]
pub struct ScriptedModel {
    options: ScriptedOptions,
    calls: Arc<AtomicU64>,
    scripts: Mutex<ScriptCache>,
}

type ScriptCache = BTreeMap<String, Arc<Script>>;

impl ScriptedModel {
    /// Makes the provider with its options.
    pub fn new(options: ScriptedOptions) -> ScriptedModel {
        ScriptedModel { options, ..ScriptedModel::default() }
    }

    /// Returns why there are no rules for this name. It reads the file of the rules.
    pub fn missing_rules(&self, name: &str) -> Option<String> {
        if built_in(name).is_some() {
            return None;
        }
        rules_path::find(self.options.rules.as_deref(), name).err().map(|error| error.to_string())
    }

    /// Returns the script of a model's name, and loads its file at the first call.
    async fn script(&self, name: &str) -> Result<Arc<Script>, ScriptError> {
        // All names that the configured file answers share one script, which counts their calls together.
        let known = |scripts: &ScriptCache| match built_in(name) {
            Some(_) => scripts.get(name).cloned(),
            None => scripts.get(CONFIGURED_KEY).or_else(|| scripts.get(name)).cloned(),
        };
        let loaded = known(&self.scripts.lock());
        // A look at the file's time takes a microsecond or two.
        let is_current = |script: &Arc<Script>| !script.stamp.as_ref().is_some_and(RulesStamp::has_changed);
        if let Some(script) = loaded.clone().filter(is_current) {
            return Ok(script);
        }
        let (log, calls) = (self.options.calls_log.clone(), Arc::clone(&self.calls));
        let (key, script) = if let Some(source) = built_in(name) {
            (name, Script::new(name, source, log, calls))
        } else {
            let (configured, asked) = (self.options.rules.clone(), name.to_owned());
            let found = tokio::task::spawn_blocking(move || rules_path::find(configured.as_deref(), &asked)).await;
            let broken = |reason: String| RulesPathError::Unreadable { file: name.to_owned(), reason };
            let found = found.unwrap_or_else(|error| Err(broken(error.to_string())))?;
            (if found.answers_all_names { CONFIGURED_KEY } else { name }, Script::from_found(found, log, calls))
        };
        let mut scripts = self.scripts.lock();
        if scripts.len() >= LOADED_SCRIPTS_MAX && !scripts.contains_key(key) {
            return Err(ScriptError::TooMany);
        }
        // Another call may have been faster: its script is used.
        let is_newer = |known: &&Arc<Script>| loaded.as_ref().is_none_or(|old| !Arc::ptr_eq(old, known));
        if let Some(known) = scripts.get(key).filter(is_newer) {
            return Ok(Arc::clone(known));
        }
        let script = Arc::new(script);
        scripts.insert(key.to_owned(), Arc::clone(&script));
        Ok(script)
    }
}

#[async_trait]
impl Model for ScriptedModel {
    async fn complete(
        &self,
        request: &ModelRequest,
        _secrets: &[OpenedSecret],
        live: &LiveText,
    ) -> Result<Reply, ModelError> {
        let model = || format!("{}/{}", request.model.provider, request.model.name);
        let permanent = |error: ScriptError| ModelError::Permanent { model: model(), reason: error.to_string() };
        let unusable = |error: ScriptError| ModelError::Unusable { model: model(), reason: error.to_string() };
        let script = self.script(&request.model.name).await.map_err(unusable)?;
        let taken = script.take(request).await.map_err(permanent)?;
        let outcome = play_answer(&taken.answer, model(), live).await;
        taken.finish(outcome.is_ok()).await.map_err(permanent)?;
        outcome
    }
}

async fn play_answer(answer: &RuleAnswer, model: String, live: &LiveText) -> Result<Reply, ModelError> {
    live.meter.mark(CallStage::Sent);
    // Even the shortest sleep lasts a tick of the timer.
    if !answer.delay.is_zero() {
        tokio::time::sleep(answer.delay).await;
    }
    let transient = |model, reason: &str| {
        Err(ModelError::Transient { model, reason: reason.to_owned(), retry_after: answer.retry_after })
    };
    let pieces = chunks(&answer.reply.text);
    live.meter.mark(match answer.fault {
        None | Some(ScriptFault::BadJson | ScriptFault::CutStream) => CallStage::Accepted,
        Some(
            ScriptFault::RateLimit | ScriptFault::Overloaded | ScriptFault::Unauthorized | ScriptFault::BadRequest,
        ) => CallStage::Refused,
        Some(ScriptFault::Hang) => CallStage::Sent,
    });
    match answer.fault {
        None | Some(ScriptFault::BadJson) => {
            stream(&pieces, answer.chunk_delay, live).await;
            Ok(answer.reply.clone())
        }
        Some(ScriptFault::CutStream) => {
            stream(&pieces[..pieces.len() / 2], answer.chunk_delay, live).await;
            transient(model, "the reply ended in the middle")
        }
        Some(ScriptFault::RateLimit) => transient(model, "429: too many requests"),
        Some(ScriptFault::Overloaded) => transient(model, "503: overloaded"),
        Some(ScriptFault::Unauthorized) => Err(ModelError::Unusable { model, reason: "401: no such key".into() }),
        Some(ScriptFault::BadRequest) => Err(ModelError::Permanent { model, reason: "400: bad request".into() }),
        Some(ScriptFault::Hang) => std::future::pending().await,
    }
}

async fn stream(pieces: &[String], delay: Duration, live: &LiveText) {
    let mut said_bytes = 0;
    for (at, piece) in pieces.iter().enumerate() {
        if at > 0 && !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        said_bytes += piece.len();
        live.meter.record(TokenUsage::default(), said_bytes, false);
        live.send(piece.clone());
    }
}

#[cfg(test)]
#[path = "scripted_tests.rs"]
mod tests;
