//! `trellis doctor`: checks the guarantees of the configured servers, and advises changes.

use super::CliContext;
use super::client::read_view;
use super::exit::{Exit, Failure};
use super::output::CommandOutput;
use super::running::RunningArgs;
use crate::app::Role;
use crate::venue::Venue;
use crate::venue::upkeep::doctor;
use crate::view;
use crate::view::audit::{DoctorView, GuaranteeView, SettingView};
use clap::Args;
use serde_json::json;

/// Arguments of `trellis doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis doctor --set store.url=redis://127.0.0.1 --set bus.url=nats://127.0.0.1")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    running: RunningArgs,
}

/// State of a setting that must be changed.
const PROBLEM: &str = "problem";

impl DoctorArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let config = self.running.load(context)?;
        let here = async |venue: &Venue| match doctor::examine(venue).await {
            Ok(found) => Ok(view::to_json(&found.view())),
            Err(error) => Err(Failure::new(Exit::Unreachable, error.to_string())),
        };
        let found = self
            .running
            .server(context)
            .call_or_run_as(Role::Doctor, &config, "v/ops/venue/doctor", &json!({}), here)
            .await?;
        let report: DoctorView = read_view(found.clone())?;
        context.out.value(&found, || text(context.out, &report))?;
        match report.broken {
            0 if report.unsettled => Err(Failure::internal(
                "acknowledged changes are lost; `trellis audit --settle` when that is dealt with",
            )),
            0 => match report.settings.iter().filter(|setting| setting.state == PROBLEM).count() {
                0 => Ok(Exit::Ok),
                1 => Err(Failure::internal("one setting has a problem, which affects no guarantee")),
                count => Err(Failure::internal(format!(
                    "{count} settings have a problem, none of which affects a guarantee"
                ))),
            },
            broken => {
                let all = report.guarantees.len();
                Err(Failure::internal(format!("{broken} of {all} guarantees do not hold with these settings")))
            }
        }
    }
}

fn text(out: CommandOutput, report: &DoctorView) -> String {
    let setting =
        |SettingView { state, name, value, .. }: &SettingView| vec![state.clone(), name.clone(), value.clone()];
    let settings: Vec<_> = report.settings.iter().map(setting).collect();
    let guarantee = |GuaranteeView { verdict, number, text }: &GuaranteeView| {
        vec![verdict.clone(), number.to_string(), text.clone()]
    };
    let guarantees: Vec<_> = report.guarantees.iter().map(guarantee).collect();
    let settings = out.table(&["STATE", "SETTING", "VALUE"], &settings);
    let text = format!("{settings}\n\n{}", out.table(&["VERDICT", "#", "GUARANTEE"], &guarantees));
    let advice: Vec<_> = report.advice.iter().map(|line| format!("- {line}")).collect();
    if advice.is_empty() { text } else { format!("{text}\n\nTo change or check:\n{}", advice.join("\n")) }
}
