//! The command line: `trellis <noun> <verb>`, one file per command.
//!
//! Data goes to stdout, everything else to stderr; [`Exit`] lists the exit codes.

mod a2a;
mod abilities;
mod agent;
mod approval;
mod attach;
mod audit;
mod backup;
mod bench;
mod bulk;
mod chat;
mod client;
mod completions;
mod config;
mod confirm;
mod context;
mod dead;
mod demo;
mod doctor;
mod escape;
mod exit;
mod filter;
mod global;
mod input;
mod job;
mod lattice;
mod mcp;
mod mcp_login;
mod mcp_message;
mod mcp_servers;
mod message;
mod mock_llm;
mod model;
mod named_place;
mod open;
mod outcome;
mod output;
mod policy;
mod queue;
mod quota;
mod ready;
mod resource;
mod role;
mod running;
mod secret;
mod serve;
mod session;
mod spend;
mod sse;
mod submit;
mod timer;
mod token;
mod tool;
mod turn;
mod up;
mod wait;
mod watch;
mod webhook;
mod why;
mod worker;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
pub use exit::Exit;
use exit::Failure;
pub(crate) use global::CliContext;
use global::Global;
use std::collections::BTreeMap;
use std::ffi::OsString;
use tokio::runtime::Runtime;

const ABOUT: &str = "Runs fleets of persistent AI agents from a queue.";

const HELP_END: &str = "\
Begin with:
  trellis demo                                 # the whole story in under a minute
  trellis up                                   # everything in one process, no server needed
  trellis agent apply helper.toml              # in another terminal
  trellis submit helper 'Say hello' --wait

Exit codes: 0 ok, 1 internal, or a check found a problem, 2 usage, 3 the job failed or was rejected,
4 the wait timed out (the job goes on), 5 not found, 6 conflict, 7 denied, 8 backend unreachable.

An environment variable of an option that is set to nothing counts as not set.";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "trellis", version, about = ABOUT, after_help = HELP_END, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
}

/// Every command, in the order of the help.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the whole story in under a minute: no key, no server, and a worker killed in mid-turn
    ///
    /// It seeds a workspace, creates two agents, submits six tasks, shows every turn as it is committed, kills the
    /// server with SIGKILL in the middle of turns, and starts it again. Then it shows what goes wrong in a fleet: a
    /// typed output that is refused, a busy provider, a cancelled call, and a task that kills its workers and is driven
    /// again. An audit is its end.
    ///
    /// The model plays by rules, and everything is in a temporary folder. Exits with 1 when anything was lost, done
    /// twice or is unaccounted for.
    Demo(demo::Demo),
    /// Run everything in one process: worker and HTTP API
    ///
    /// Without a configuration it runs on the embedded store. SIGINT or SIGTERM stops it in stages: running turns reach
    /// their commit first. A second signal ends it at once; nothing accepted is lost either way.
    Up(up::UpArgs),
    /// Run turns only, as part of a fleet on NATS and Redis; list workers, and tell some to leave
    ///
    /// Needs `store.url = "redis://…"` and `bus.url = "nats://…"`. Start as many as you like: each takes what is
    /// free.
    Worker(worker::WorkerArgs),
    /// Serve the HTTP API only, as part of a fleet on NATS and Redis
    ///
    /// Needs `store.url = "redis://…"` and `bus.url = "nats://…"`; start at least one `trellis worker` beside it.
    Serve(serve::Serve),
    /// Open the console of a running server in a browser
    Open(open::OpenArgs),
    /// Give an agent a task
    Submit(submit::Submit),
    /// Send an agent a one-way message
    Message(message::MessageArgs),
    /// Send an agent a message and wait for its next reply
    ///
    /// Without a text each line of stdin is a message, until its end. Exits with 3 when a turn fails.
    Chat(chat::Chat),
    /// Look at, wait for and cancel jobs
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Create, change and look at agents
    #[command(subcommand)]
    Agent(agent::Agent),
    /// Look at and branch an agent's conversations
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Show what models saw, and build past prompts again
    #[command(subcommand)]
    Turn(turn::TurnCommand),
    /// Show what an agent's next turn would see, and change nothing
    ///
    /// Without `--session` it is the first turn of a new one. A task stands behind those that wait. `trellis turn show`
    /// shows what past turns saw.
    Context(context::PreviewArgs),
    /// List the turns in which bytes of a path reached a model
    ///
    /// They reached it as context, or as the result of a tool. What lies above and below the path counts, too. The
    /// result of a tool is listed with the turn that made the call: the model sees it from the next one on. A copy is
    /// listed with its target, and leads on: so do the answer of a job, a conversation that another agent reads, and
    /// the file that an agent was made of. What models have seen is kept for `retention.turns` after their session or
    /// their agent is removed.
    Why(why::Why),
    /// Read and write the owner's tree of values
    #[command(subcommand)]
    Lattice(lattice::Lattice),
    /// Store, list and delete secrets, and make and change the keys that seal them
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Say where the notifications of an owner are sent: approvals that wait, dead jobs, reached caps, …
    #[command(subcommand)]
    Webhook(webhook::WebhookCommand),
    /// Show what was spent today, and what caps leave of it
    ///
    /// What was spent is what sessions have committed. A cap also counts the calls that run, and those whose worker
    /// died.
    Spend(spend::SpendArgs),
    /// Show what an owner keeps and may keep, and set other limits
    ///
    /// Documents are everything that is kept: values, agents, assets, records of jobs and turns. Beyond a limit new
    /// work and writes are refused with `QUOTA_EXCEEDED`; what was accepted ends, and deleting is always possible.
    Quota(quota::QuotaArgs),
    /// List what agents wait for: calls to approve, questions to answer
    Approvals(approval::ApprovalsArgs),
    /// Approve a call that waits
    Approve(approval::ApproveArgs),
    /// Reject a call that waits
    Reject(approval::RejectArgs),
    /// Answer an agent's questions
    Answer(approval::AnswerArgs),
    /// Look at tasks that killed too many workers, and drive them again
    #[command(subcommand)]
    Dead(dead::DeadCommand),
    /// Give agents tasks and messages at a time, list and cancel timers
    #[command(subcommand)]
    Timer(timer::TimerCommand),
    /// What agents may do at most, and taking back what was granted
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Look at and erase what agents keep under a resource namespace
    #[command(subcommand)]
    Resource(resource::ResourceCommand),
    /// Write declarations of tools, and try tools
    #[command(subcommand)]
    Tool(tool::ToolCommand),
    /// Make keys and tokens, and look into a token
    #[command(subcommand)]
    Token(token::Token),
    /// Say which guarantees the configured servers give, and what to change
    ///
    /// Exits with 1 when a guarantee doesn't hold, or when the store has lost changes that no operator has settled. An
    /// embedded store that a running `trellis up` holds is asked over HTTP, and so is the server of `--url`.
    Doctor(doctor::DoctorArgs),
    /// Ask a running process whether it can take work, for health checks
    ///
    /// It may be `trellis up`, `trellis serve`, or a worker at its `worker.listen`. Exits with 8 when the process can't
    /// take work or doesn't answer. An API without a connection to the queue is ready, since it accepts work that
    /// waits, and says so.
    Ready(ready::Ready),
    /// Compare what was accepted with what has ended, is pending or is missing
    ///
    /// Reads the configured store and queue, of all owners. Exits with 1 when something is unaccounted for, a record is
    /// damaged, or a quota counts otherwise than what is kept. An embedded store that a running `trellis up` holds is
    /// asked over HTTP, and so is the server of `--url`.
    Audit(audit::AuditArgs),
    /// Copy an embedded store while work goes on
    ///
    /// The copy is a folder NAME under `backups` in the store's own folder, and a store like any other: take it
    /// elsewhere, and start `trellis up --data FOLDER` on it. The keys of secrets and the configuration are not in it.
    /// A store that a running `trellis up` holds is copied by that process, which is asked over HTTP, and so is that of
    /// `--url`. A store in Redis is copied by `redis-cli --rdb`.
    Backup(backup::BackupArgs),
    /// Measure turns per second and latency
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Show and check the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Try a model, and list the providers
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// Serve a rules file as a model provider, for tests without a key
    ///
    /// It speaks the protocols of the common providers, so that any client can be tried without a key or a network.
    MockLlm(mock_llm::MockLlm),
    /// Be an MCP server on stdin and stdout, for clients that start a program
    ///
    /// Each line of stdin is a message, which goes to `/mcp` of the venue; each line of stdout is one that came back. The
    /// command ends with stdin.
    Mcp(mcp::McpArgs),
    /// Show the agents elsewhere that agents give work to by A2A, and approve their changed cards
    #[command(subcommand)]
    A2a(a2a::A2aCommand),
    /// Print the completions of a shell
    Completions(completions::Completions),
}

/// Parses the arguments, runs the command, and writes errors to stderr. It is neither generic nor `async`: else the
/// compiler would compile all commands again for each crate that calls it.
pub fn main(args: Vec<OsString>, env: BTreeMap<String, String>) -> Exit {
    match Runtime::new() {
        Ok(runtime) => runtime.block_on(parse_and_run(args, env)),
        Err(error) => {
            output::note(&format!("error: no threads to run on: {error}"));
            Exit::Internal
        }
    }
}

/// Parses the arguments. An empty environment variable counts as not set.
fn parse(args: Vec<OsString>, env: &BTreeMap<String, String>) -> Result<Cli, clap::Error> {
    let mut parser = without_empty_variables(Cli::command(), env);
    let mut matches = parser.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut parser))
}

/// Removes the empty environment variables from the arguments of a command and its subcommands.
fn without_empty_variables(command: clap::Command, env: &BTreeMap<String, String>) -> clap::Command {
    let is_empty = |argument: &clap::Arg| {
        let variable = argument.get_env().and_then(|name| env.get(name.to_str()?));
        variable.is_some_and(String::is_empty)
    };
    command
        .mut_args(|argument| if is_empty(&argument) { argument.env(None::<&'static str>) } else { argument })
        .mut_subcommands(|subcommand| without_empty_variables(subcommand, env))
}

async fn parse_and_run(args: Vec<OsString>, env: BTreeMap<String, String>) -> Exit {
    let given = args.clone();
    let cli = match parse(args, &env) {
        Ok(cli) => cli,
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
            let text = error.render().to_string();
            if let (Some(format), true) = (output::requested_format(&given), error.use_stderr()) {
                let text = text.trim().strip_prefix("error: ").unwrap_or(text.trim());
                output::report(format, &Failure::new(exit, text));
            } else if escape::escape_data(&text) == text {
                // Without a terminal the error can't be printed.
                let _ = error.print();
            } else {
                output::note(escape::escape_data(text.trim_end()).as_ref());
            }
            return exit;
        }
    };
    let context = CliContext::new(cli.global, env);
    // Boxed: the future is as large as that of the largest command.
    match Box::pin(run(&context, cli.command)).await {
        Ok(exit) => exit,
        Err(failure) => {
            if !failure.text.is_empty() {
                output::report(context.out.format, &failure);
            }
            failure.exit
        }
    }
}

async fn run(context: &CliContext, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Demo(command) => Box::pin(command.run(context)).await,
        Command::Up(command) => command.run(context).await,
        Command::Worker(command) => Box::pin(command.run(context)).await,
        Command::Serve(command) => command.run(context).await,
        Command::Open(command) => command.run(context).await,
        Command::Submit(command) => command.run(context).await,
        Command::Message(command) => command.run(context).await,
        Command::Chat(command) => command.run(context).await,
        Command::Session(command) => command.run(context).await,
        Command::Job(command) => command.run(context).await,
        Command::Agent(command) => command.run(context).await,
        Command::Turn(command) => command.run(context).await,
        Command::Context(command) => command.run(context).await,
        Command::Why(command) => command.run(context).await,
        Command::Lattice(command) => command.run(context).await,
        Command::Secret(command) => command.run(context).await,
        Command::Webhook(command) => command.run(context).await,
        Command::Approvals(command) => command.run(context).await,
        Command::Approve(command) => command.run(context).await,
        Command::Reject(command) => command.run(context).await,
        Command::Answer(command) => command.run(context).await,
        Command::Dead(command) => command.run(context).await,
        Command::Timer(command) => command.run(context).await,
        Command::Policy(command) => command.run(context).await,
        Command::Quota(command) => command.run(context).await,
        Command::Resource(command) => command.run(context).await,
        Command::Tool(command) => command.run(context).await,
        Command::Token(command) => command.run(context).await,
        Command::Doctor(command) => command.run(context).await,
        Command::Ready(command) => command.run(context).await,
        Command::Spend(command) => command.run(context).await,
        Command::Audit(command) => command.run(context).await,
        Command::Backup(command) => command.run(context).await,
        Command::Bench(command) => Box::pin(command.run(context)).await,
        Command::Config(command) => command.run(context),
        Command::Model(command) => command.run(context).await,
        Command::MockLlm(command) => command.run(context).await,
        Command::Mcp(command) => command.run(context).await,
        Command::A2a(command) => command.run(context).await,
        Command::Completions(command) => command.run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    /// A command's own option with the id of a global one would get that one's value.
    #[test]
    fn no_command_has_an_option_with_a_global_id() {
        fn walk(command: &clap::Command, global: &[String], found: &mut Vec<String>) {
            for argument in command.get_arguments().filter(|argument| !argument.is_global_set()) {
                let id = argument.get_id().to_string();
                if global.contains(&id) {
                    found.push(format!("{} {id}", command.get_name()));
                }
            }
            command.get_subcommands().for_each(|command| walk(command, global, found));
        }
        let cli = Cli::command();
        let global = cli.get_arguments().filter(|argument| argument.is_global_set());
        let global: Vec<String> = global.map(|argument| argument.get_id().to_string()).collect();
        assert!(global.contains(&"config".to_owned()));
        let mut found = Vec::new();
        cli.get_subcommands().for_each(|command| walk(command, &global, &mut found));
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn every_command_has_an_example() {
        fn walk(command: &clap::Command, missing: &mut Vec<String>) {
            if command.has_subcommands() {
                command.get_subcommands().for_each(|c| walk(c, missing));
            } else if !command.get_after_help().is_some_and(|text| text.to_string().contains("Example")) {
                missing.push(command.get_name().to_owned());
            }
        }
        let mut missing = Vec::new();
        Cli::command().get_subcommands().for_each(|c| walk(c, &mut missing));
        assert_eq!(missing, Vec::<String>::new());
    }
}
