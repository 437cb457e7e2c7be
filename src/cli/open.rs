//! `trellis open`: the console in a browser.

use super::CliContext;
use super::client::{Client, ServerArgs};
use super::exit::{Exit, Failure};
use super::output::note;
use crate::domain::ids::JobId;
use crate::view::to_json;
use clap::Args;
use serde::Serialize;

/// Arguments of `trellis open`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  trellis open\n  trellis open /approvals\n  trellis open JOB --print")]
pub(crate) struct OpenArgs {
    /// Path of a page, or the id of a job
    #[arg(value_name = "PAGE", default_value = "/")]
    page: String,
    /// Print the address and start no browser
    #[arg(long)]
    print: bool,
    /// The server whose console it is
    #[command(flatten)]
    server: ServerArgs,
}

/// Answer of the command.
#[derive(Debug, Serialize)]
struct OpenedPage {
    /// Address of the page.
    url: String,
}

impl OpenArgs {
    /// Opens the page if a venue answers, and prints its address.
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let client = Client::new(&self.server)?;
        let path = page_path(&self.page)?;
        client.check_answers().await?;
        let url = format!("{}{path}", client.base());
        context.out.value(&to_json(&OpenedPage { url: url.clone() }), || url.clone())?;
        if self.print {
            return Ok(Exit::Ok);
        }
        if let Err(error) = open::that_detached(&url) {
            note(&format!("no browser could be started ({error}): open the address yourself"));
        }
        Ok(Exit::Ok)
    }
}

/// Returns the path that an argument means: a path as it is, or that of a job.
fn page_path(page: &str) -> Result<String, Failure> {
    if let Ok(job) = JobId::new(page) {
        return Ok(format!("/jobs/{job}"));
    }
    if page.starts_with('/') && !page.starts_with("//") && page.chars().all(|c| c.is_ascii_graphic()) {
        return Ok(page.to_owned());
    }
    Err(Failure::usage(format!(
        "`{page}` is no page: expected a path as `/approvals` or `/agents/NAME`, or a job's id"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_a_path_or_a_job() {
        let job = "0f".repeat(16);
        for (page, expected) in [
            ("/", Some("/".to_owned())),
            ("/agents/a?session=s", Some("/agents/a?session=s".to_owned())),
            (job.as_str(), Some(format!("/jobs/{job}"))),
            ("//evil.example", None),
            ("approvals", None),
            ("/a b", None),
        ] {
            assert_eq!(page_path(page).ok(), expected, "{page}");
        }
    }
}
