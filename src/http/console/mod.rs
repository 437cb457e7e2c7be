//! The console: pages for people over the API's own answers. `session` admits browsers, `page` frames what they get,
//! `text` makes foreign text harmless, and each page has a file with its model and its handlers.

mod agent;
mod agents;
mod approvals;
mod bulk;
mod failures;
mod figures;
mod fleet;
mod job;
mod jobs;
mod lattice;
mod lattice_edit;
mod origin;
mod page;
mod policy;
mod prompt_parts;
pub(super) mod queries;
mod replay;
mod secrets;
mod seen;
mod session;
mod text;
mod timeline;
mod timers;
mod turn;

pub(super) use agent::{TaskForm, agent, give_task, resume_agent, suspend_agent};
pub(super) use agents::agents;
pub(super) use approvals::{answer_approval, approvals};
pub(super) use bulk::{act_on_matching, act_on_selected, ask_bulk};
pub(super) use failures::failures;
pub(super) use fleet::fleet;
pub(super) use job::{cancel_job, delete_job, job, pause_job, redrive_job, resume_job};
pub(super) use jobs::jobs;
pub(super) use lattice::{lattice, lattice_root};
pub(super) use lattice_edit::{LatticeForm, change_value};
pub(super) use page::{script, style};
pub(super) use policy::policy;
pub(super) use replay::replay;
pub(super) use secrets::{SecretForm, delete_secret, secrets, set_secret};
pub(super) use session::{OwnerForm, SignInForm, adapt, sign_in, sign_in_form, sign_out, switch_owner};
pub(super) use timers::{TimerForm, cancel_timer, timers};
pub(super) use turn::turn;
