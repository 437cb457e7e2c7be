//! `trellis doctor`: checks the guarantees of the configured servers, and advises changes.

use super::CliContext;
use super::exit::{Exit, Failure};
use super::output::{CommandOutput, field};
use super::running::RunningArgs;
use crate::app::Role;
use crate::upkeep::doctor;
use crate::venue::Venue;
use clap::Args;
use serde_json::{Value, json};

/// Reads the settings of the configured store and queue and says which guarantees hold.
///
/// Exits with 1 when one doesn't hold, or the store has lost changes that no operator has settled. An embedded store that a running `trellis up` holds is asked over HTTP, and so
/// is the server of `--url`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis doctor --set store.url=redis://127.0.0.1 --set bus.url=nats://127.0.0.1")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    running: RunningArgs,
}

impl DoctorArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let config = self.running.load(context)?;
        let here = async |venue: &Venue| match doctor::examine(venue).await {
            Ok(found) => Ok(found.to_json()),
            Err(error) => Err(Failure::new(Exit::Unreachable, error.to_string())),
        };
        let found = self
            .running
            .server(context)
            .call_or_run_as(Role::Doctor, &config, ("v/ops/venue/doctor", &json!({})), here)
            .await?;
        context.out.value(&found, || text(context.out, &found))?;
        let all = found["guarantees"].as_array().map_or(0, Vec::len);
        match found["broken"].as_u64() {
            Some(0) if found["unsettled"] == true => {
                Err(Failure::internal("the store has lost changes; `trellis audit --settle` when that is dealt with"))
            }
            Some(0) => Ok(Exit::Ok),
            broken => {
                let broken = broken.unwrap_or_default();
                Err(Failure::internal(format!("{broken} of {all} guarantees do not hold with these settings")))
            }
        }
    }
}

fn rows(found: &Value, keys: [&str; 3]) -> Vec<Vec<String>> {
    found.as_array().into_iter().flatten().map(|row| keys.map(|key| field(row, key)).into()).collect()
}

fn text(out: CommandOutput, found: &Value) -> String {
    let settings = out.table(&["STATE", "SETTING", "VALUE"], &rows(&found["settings"], ["state", "name", "value"]));
    let verdicts = rows(&found["guarantees"], ["verdict", "number", "text"]);
    let text = format!("{settings}\n\n{}", out.table(&["VERDICT", "#", "GUARANTEE"], &verdicts));
    let advice = found["advice"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let advice: Vec<_> = advice.map(|line| format!("- {line}")).collect();
    if advice.is_empty() { text } else { format!("{text}\n\nTo change or check:\n{}", advice.join("\n")) }
}
