//! A model without a network: the built-in names `echo` and `never`, or a rules file.

use crate::domain::chat::{ModelRequest, Reply, Usage};
use crate::model::facts::{Facts, tokens};
use crate::model::rules::{Answer, Fault, Rules, RulesError};
use crate::model::template::TemplateError;
use crate::model::{LiveText, Model, ModelError};
use async_trait::async_trait;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Answers with the text of the last task or message.
pub const ECHO: &str = "echo";
/// Hangs until it is dropped.
pub const NEVER: &str = "never";

/// Stands for the configured rules file; no file can have this name.
const CONFIGURED: &str = "";

/// Characters of one piece of a streamed text.
const CHUNK_CHARS: usize = 12;
/// Longest rules file read.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Where rules files may be, and where calls are logged.
#[derive(Debug, Clone, Default)]
pub struct ScriptedOptions {
    /// Answers for every name but the built-in ones, which `when.model` tells apart. When absent, the name is the path of
    /// a rules file.
    pub rules: Option<PathBuf>,
    /// Only files inside this folder, names relative to it; any path when absent. Does not bind `rules`.
    pub rules_dir: Option<PathBuf>,
    /// One JSON line per call; a file's own `calls_log` wins.
    pub calls_log: Option<PathBuf>,
}

/// What a name stands for.
#[derive(Debug)]
enum Source {
    Echo,
    Never,
    Rules(Rules),
}

/// A rules file or a built-in, with what it counts.
#[derive(Debug)]
pub struct Script {
    name: String,
    source: Source,
    hits: Vec<AtomicU64>,
    calls: Arc<AtomicU64>,
    log: Option<PathBuf>,
}

/// Why there is no answer; none of them goes away by asking again.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file can't be read.
    #[error("rules file `{file}` can't be read: {reason}")]
    Unreadable {
        /// As given.
        file: String,
        /// The system's words.
        reason: String,
    },
    /// It is outside the folder of rules files.
    #[error("rules file `{0}` is outside the folder of rules files")]
    Outside(String),
    /// It is not a rules file.
    #[error("rules file `{file}`: {error}")]
    Rules {
        /// As given.
        file: String,
        /// What is wrong.
        error: RulesError,
    },
    /// No rule answers.
    #[error("no rule of `{file}` answers turn {turn} of agent `{agent}`, last role {last_role}, text `{text}`{}", .tool.as_ref().map(|tool| format!(", result of `{tool}`")).unwrap_or_default())]
    NoRule {
        /// Name of the script.
        file: String,
        /// Of the task.
        turn: usize,
        /// Who asked.
        agent: String,
        /// Role of the last message.
        last_role: &'static str,
        /// Start of the last message.
        text: String,
        /// Whose result came last.
        tool: Option<String>,
    },
    /// A template has no value.
    #[error("rule {rule} of `{file}`: {error}")]
    Template {
        /// Name of the script.
        file: String,
        /// Counted from 1.
        rule: usize,
        /// Which template.
        error: TemplateError,
    },
    /// The call can't be logged.
    #[error("calls log `{file}` can't be written: {reason}")]
    Log {
        /// Its path.
        file: String,
        /// The system's words.
        reason: String,
    },
}

/// A call that a script has answered and not yet finished.
#[derive(Debug)]
pub struct Taken {
    /// What it gets.
    pub answer: Answer,
    script: Arc<Script>,
    turn: String,
    rule: usize,
    call: u64,
}

impl Script {
    /// A built-in or a rules file by its name.
    pub fn load(name: &str, options: &ScriptedOptions) -> Result<Script, ScriptError> {
        Script::load_counting(name, options, Arc::default())
    }

    /// Rules that are no file; `name` is for messages.
    pub fn of(name: &str, rules: Rules) -> Script {
        Script::new(name, Source::Rules(rules), None, Arc::default())
    }

    fn load_counting(name: &str, options: &ScriptedOptions, calls: Arc<AtomicU64>) -> Result<Script, ScriptError> {
        let source = match name {
            ECHO => Source::Echo,
            NEVER => Source::Never,
            file => Source::Rules(read_rules(file, options)?),
        };
        let shown = options.rules.as_ref().filter(|_| name == CONFIGURED).map(|path| path.display().to_string());
        Ok(Script::new(shown.as_deref().unwrap_or(name), source, options.calls_log.clone(), calls))
    }

    fn new(name: &str, source: Source, log: Option<PathBuf>, calls: Arc<AtomicU64>) -> Script {
        let (hits, own_log) = match &source {
            Source::Rules(rules) => (rules.rules.len(), rules.calls_log.clone()),
            Source::Echo | Source::Never => (0, None),
        };
        let hits = std::iter::repeat_with(AtomicU64::default).take(hits).collect();
        Script { name: name.to_owned(), source, hits, calls, log: own_log.or(log) }
    }

    /// Counts a call, logs it as started and says what it gets.
    pub fn take(self: &Arc<Self>, request: &ModelRequest) -> Result<Taken, ScriptError> {
        let mut facts = Facts::of(request);
        if matches!(&self.source, Source::Rules(rules) if rules.want_prompt()) {
            facts = facts.with_prompt(request);
        }
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let (rule, answer) = match &self.source {
            Source::Echo => (0, echo(&facts)),
            Source::Never => (0, Answer { fault: Some(Fault::Hang), ..echo(&facts) }),
            Source::Rules(rules) => {
                let (at, rule) = rules.find(&facts).ok_or_else(|| self.no_rule(&facts))?;
                let hit = self.hits[at].fetch_add(1, Ordering::Relaxed) + 1;
                let answer = rule.answer(&facts, call, hit).map_err(|error| ScriptError::Template {
                    file: self.name.clone(),
                    rule: at + 1,
                    error,
                })?;
                (at + 1, answer)
            }
        };
        let taken = Taken { answer, script: Arc::clone(self), turn: request.turn.clone(), rule, call };
        taken.log("started")?;
        Ok(taken)
    }

    /// Its name, then the models that its rules name, sorted.
    pub fn models(&self) -> Vec<&str> {
        let rules = match &self.source {
            Source::Rules(rules) => rules.rules.as_slice(),
            Source::Echo | Source::Never => &[],
        };
        let mut named: Vec<&str> = rules.iter().filter_map(|rule| rule.when.model.as_deref()).collect();
        named.sort_unstable();
        named.dedup();
        named.insert(0, &self.name);
        named
    }

    fn no_rule(&self, facts: &Facts) -> ScriptError {
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

impl Taken {
    /// Logs the call as `replied` or `failed`.
    pub fn finish(&self, replied: bool) -> Result<(), ScriptError> {
        self.log(if replied { "replied" } else { "failed" })
    }

    /// One `write` to a file opened for appending, so that lines of several processes don't mix.
    fn log(&self, event: &str) -> Result<(), ScriptError> {
        let Some(path) = &self.script.log else {
            return Ok(());
        };
        let pid = std::process::id();
        let line = json!({"turn": self.turn, "rule": self.rule, "call": self.call, "pid": pid, "event": event});
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
            .map_err(|error| ScriptError::Log { file: path.display().to_string(), reason: error.to_string() })
    }
}

/// The text in the pieces it is streamed in.
pub fn chunks(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(CHUNK_CHARS).map(|chunk| chunk.iter().collect()).collect()
}

fn echo(facts: &Facts) -> Answer {
    let text = facts.echo();
    let usage = Usage { input: facts.prompt_tokens, output: tokens(&text) };
    Answer {
        delay: Duration::ZERO,
        chunk_delay: Duration::ZERO,
        reply: Reply { text, calls: Vec::new(), usage },
        fault: None,
        retry_after: None,
    }
}

fn read_rules(file: &str, options: &ScriptedOptions) -> Result<Rules, ScriptError> {
    let shown = |path: &Path| path.display().to_string();
    let (path, file) = match (&options.rules, &options.rules_dir) {
        (Some(rules), _) if file == CONFIGURED => (rules.clone(), shown(rules)),
        (_, None) => (PathBuf::from(file), file.to_owned()),
        (_, Some(dir)) => {
            let inside =
                Path::new(file).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
            if !inside {
                return Err(ScriptError::Outside(file.to_owned()));
            }
            (dir.join(file), file.to_owned())
        }
    };
    let unreadable = |reason: String| ScriptError::Unreadable { file: file.clone(), reason };
    let size = std::fs::metadata(&path).map_err(|error| unreadable(error.to_string()))?.len();
    if size > FILE_BYTES_MAX {
        return Err(unreadable(format!("expected at most {FILE_BYTES_MAX} bytes, got {size}")));
    }
    let text = std::fs::read_to_string(&path).map_err(|error| unreadable(error.to_string()))?;
    Rules::parse(&text).map_err(|error| ScriptError::Rules { file: file.clone(), error })
}

/// The provider `scripted`. Files are read once and kept.
#[derive(Debug, Default)]
pub struct Scripted {
    options: ScriptedOptions,
    calls: Arc<AtomicU64>,
    scripts: Mutex<BTreeMap<String, Arc<Script>>>,
}

impl Scripted {
    /// With its options.
    pub fn new(options: ScriptedOptions) -> Scripted {
        Scripted { options, ..Scripted::default() }
    }

    fn script(&self, name: &str) -> Result<Arc<Script>, ScriptError> {
        // One script for all names that the configured file answers, so that it counts its calls together.
        let name = match &self.options.rules {
            Some(_) if !matches!(name, ECHO | NEVER) => CONFIGURED,
            _ => name,
        };
        let mut scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(script) = scripts.get(name) {
            return Ok(Arc::clone(script));
        }
        let script = Arc::new(Script::load_counting(name, &self.options, Arc::clone(&self.calls))?);
        scripts.insert(name.to_owned(), Arc::clone(&script));
        Ok(script)
    }
}

#[async_trait]
impl Model for Scripted {
    async fn complete(&self, request: &ModelRequest, live: &LiveText) -> Result<Reply, ModelError> {
        let model = || format!("{}/{}", request.model.provider, request.model.name);
        let permanent = |error: ScriptError| ModelError::Permanent { model: model(), reason: error.to_string() };
        let unusable = |error: ScriptError| ModelError::Unusable { model: model(), reason: error.to_string() };
        let script = self.script(&request.model.name).map_err(unusable)?;
        let taken = script.take(request).map_err(permanent)?;
        let outcome = perform(&taken.answer, model(), live).await;
        taken.finish(outcome.is_ok()).map_err(permanent)?;
        outcome
    }
}

async fn perform(answer: &Answer, model: String, live: &LiveText) -> Result<Reply, ModelError> {
    tokio::time::sleep(answer.delay).await;
    let transient = |model, reason: &str| {
        Err(ModelError::Transient { model, reason: reason.to_owned(), retry_after: answer.retry_after })
    };
    let pieces = chunks(&answer.reply.text);
    match answer.fault {
        None | Some(Fault::BadJson) => {
            stream(&pieces, answer.chunk_delay, live).await;
            Ok(answer.reply.clone())
        }
        Some(Fault::CutStream) => {
            stream(&pieces[..pieces.len() / 2], answer.chunk_delay, live).await;
            transient(model, "the reply ended in the middle")
        }
        Some(Fault::RateLimit) => transient(model, "429: too many requests"),
        Some(Fault::Overloaded) => transient(model, "503: overloaded"),
        Some(Fault::Unauthorized) => Err(ModelError::Unusable { model, reason: "401: no such key".into() }),
        Some(Fault::BadRequest) => Err(ModelError::Permanent { model, reason: "400: bad request".into() }),
        Some(Fault::Hang) => std::future::pending().await,
    }
}

async fn stream(pieces: &[String], delay: Duration, live: &LiveText) {
    for (at, piece) in pieces.iter().enumerate() {
        if at > 0 && !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        // Nobody watches: the reply is complete without it.
        let _ = live.send(piece.clone());
    }
}

#[cfg(test)]
#[path = "scripted_tests.rs"]
mod tests;
