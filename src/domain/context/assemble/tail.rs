//! The end of a prompt: the date, the task, running children and the rules of completion.

use crate::agent::{CompletionRule, PromptStyle};
use crate::context::inputs::{Inputs, Layout};
use crate::context::text;
use crate::context::transcript::{self, OpenTask};
use crate::event::{Event, Payload};
use crate::ids::JobId;

pub struct PromptTail {
    pub date: String,
    /// Lines of the children that are still running.
    pub open: Option<String>,
    /// Text of the task, if it has a message of its own.
    pub task: Option<String>,
    /// The task and how it ends, or the note that there is nothing to do.
    pub input: Option<String>,
}

/// Returns the tail of the prompt.
pub fn tail(inputs: &Inputs) -> PromptTail {
    let served = &inputs.served;
    let open: Vec<_> = served.pending.iter().map(|(job, pending)| text::running_job(job, pending)).collect();
    let mut message = None;
    let input = match &served.task {
        Some(Event { payload: Payload::Task { job, input }, caller, .. }) => {
            let tools = inputs.tools.names();
            let how = |what, remind| {
                let (completion, inner) = (inputs.frame.completion, served.goals.goal.is_some());
                text::completion_rules(what, completion, &tools, inner, remind, served.last)
            };
            match inputs.layout {
                Layout::MapFirst => Some(text::task(job, caller.as_deref(), input, &how("it", served.remind))),
                Layout::StableFirst(_) => {
                    let is_plain = inputs.frame.prompt == PromptStyle::Plain;
                    let whole = || text::task_message(job, caller.as_deref(), input);
                    message = Some(if is_plain { text::plain_task(input) } else { whole() });
                    // The refusal of an earlier text has said what it lacks.
                    match inputs.output() {
                        output if is_plain && inputs.frame.completion == CompletionRule::Implicit => {
                            let remind = served.remind && output.is_none();
                            let lines = text::reminders(CompletionRule::Implicit, remind, served.last);
                            let lines: Vec<_> = lines.into_iter().flatten().collect();
                            (!lines.is_empty()).then(|| lines.join("\n"))
                        }
                        Some(_) => Some(format!("{} {}", text::TYPED, how("the task above", false))),
                        None => Some(how("the task above", served.remind)),
                    }
                }
            }
        }
        Some(_) | None if served.messages.is_empty() && served.results.is_empty() => Some(text::NOTHING.to_owned()),
        Some(_) | None => None,
    };
    PromptTail {
        date: match inputs.frame.prompt {
            PromptStyle::Full => text::date(&inputs.moment.date, &inputs.frame.venue),
            PromptStyle::Plain => String::new(),
        },
        open: (!open.is_empty()).then(|| open.join("\n")),
        task: message,
        input,
    }
}

/// Returns the task as the transcript shows it.
pub fn open_task<'i>(job: &'i JobId, tail: &PromptTail) -> OpenTask<'i> {
    let shown = tail.task.clone().unwrap_or_else(|| transcript::task_mark(job));
    OpenTask { job, shown, is_counted: tail.task.is_some() }
}
