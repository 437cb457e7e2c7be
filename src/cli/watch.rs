//! `trellis job watch`: shows status changes and live text.

use super::client::{Client, read_view};
use super::escape;
use super::exit::{Exit, Failure};
use super::output::{CommandOutput, Format, format_plain, pretty, remark, write, write_json, write_line};
use super::sse::{SseEvent, SseParser};
use super::wait::{AwaitedJob, RECONNECT_RETRIES, WaitNotes};
use crate::domain::ids::JobId;
use crate::domain::job::JobStatus;
use crate::view::job::{JobView, LiveTextView, TurnProgressView};
use futures::StreamExt;
use serde_json::Value;

/// Follows a job to its end.
pub(crate) async fn follow(client: &Client, out: CommandOutput, job: &JobId) -> Result<Exit, Failure> {
    let reasons = WaitNotes::default();
    let mut shown = WatchOutput { out, status: None, reasons, is_mid_line: false, last_event: None };
    let mut away = RECONNECT_RETRIES.wait_times();
    loop {
        match stream(client, job, &mut shown).await {
            Ok(Some(report)) => return shown.end(&report),
            Ok(None) => {}
            Err(failure) if failure.exit == Exit::Unreachable && shown.status.is_some() => {
                let Some(pause) = away.next_wait() else { return Err(failure) };
                shown.end_line()?;
                remark(&format!("waiting for the server: {failure}"));
                tokio::time::sleep(pause).await;
                continue;
            }
            Err(failure) => return Err(failure),
        }
        // The server closed the stream; the job may have ended meanwhile.
        let report = client.get(&format!("jobs/{job}"), &[]).await.and_then(AwaitedJob::from_record);
        match report {
            Ok(report) if report.status().is_terminal() => {
                // The rest of its text precedes its record.
                let last = stream(client, job, &mut shown).await.ok().flatten();
                return shown.end(&last.unwrap_or(report));
            }
            Ok(_) => tokio::time::sleep(RECONNECT_RETRIES.first).await,
            Err(failure) if failure.exit == Exit::Unreachable => {
                let Some(pause) = away.next_wait() else { return Err(failure) };
                tokio::time::sleep(pause).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Reads one stream; returns the job if it has ended.
async fn stream(client: &Client, job: &JobId, shown: &mut WatchOutput) -> Result<Option<AwaitedJob>, Failure> {
    let response = client.stream(&format!("jobs/{job}/sse"), shown.last_event.as_deref()).await?;
    let mut bytes = response.bytes_stream();
    let mut parser = SseParser::default();
    while let Some(piece) = bytes.next().await {
        let piece = piece.map_err(|e| client.unreachable(&e))?;
        for event in parser.feed(&piece) {
            if let Some(report) = shown.event(&event)? {
                return Ok(Some(report));
            }
        }
    }
    Ok(None)
}

struct WatchOutput {
    out: CommandOutput,
    /// Status that was shown last.
    status: Option<JobStatus>,
    reasons: WaitNotes,
    /// The cursor is behind streamed text, not at the start of a line.
    is_mid_line: bool,
    /// Id of the last event: a new stream goes on after it.
    last_event: Option<String>,
}

impl WatchOutput {
    /// Prints an event; returns the job if it has ended.
    fn event(&mut self, event: &SseEvent) -> Result<Option<AwaitedJob>, Failure> {
        let data: Value = serde_json::from_str(&event.data).unwrap_or_else(|_| event.data.clone().into());
        if event.name == "job-update" {
            let JobView { status, waiting, .. } = read_view(data.clone())?;
            if status.is_terminal() {
                return AwaitedJob::from_record(data).map(Some);
            }
            if self.status != Some(status) {
                self.end_line()?;
                self.json(&data)?;
                if self.out.format == Format::Text {
                    write_line(&self.out.status(status.as_str(), status.as_str()))?;
                }
                self.status = Some(status);
            }
            if waiting.is_some() {
                self.end_line()?;
            }
            self.reasons.show(waiting.as_ref());
            return Ok(None);
        }
        if event.id.is_some() {
            self.last_event.clone_from(&event.id);
        }
        self.json(&data)?;
        if event.name == "progress" {
            self.end_line()?;
            if self.out.format == Format::Text {
                remark(&progress(&data));
            }
            return Ok(None);
        }
        let plain = || data.as_str().unwrap_or_default().to_owned();
        let text = read_view(data.clone()).map_or_else(|_| plain(), |LiveTextView { text }| text);
        if self.out.format == Format::Text && !text.is_empty() {
            // A model's text must not use this program's styles.
            write(&escape::escape_data(&text))?;
            self.is_mid_line = !text.ends_with('\n');
        }
        Ok(None)
    }

    fn json(&self, data: &Value) -> Result<(), Failure> {
        match self.out.format {
            Format::Text => Ok(()),
            Format::Json => write_json(&pretty(data)),
            Format::Ndjson => write_json(&data.to_string()),
        }
    }

    fn end_line(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_mid_line) { write_line("") } else { Ok(()) }
    }

    fn end(mut self, report: &AwaitedJob) -> Result<Exit, Failure> {
        self.end_line()?;
        let status = report.status().as_str();
        if self.out.format == Format::Text {
            write_line(&self.out.status(status, status))?;
        }
        let printed = report.print(self.out, None);
        printed.map_err(|failure| failure.with_advice(Exit::Conflict, "use a new id for a new request"))
    }
}

/// Formats the progress of a turn; that of an external worker is shown unchanged.
fn progress(data: &Value) -> String {
    let turn = |TurnProgressView { turn, calls }| format!("turn {turn} calls {}", calls.join(", "));
    read_view(data.clone()).map_or_else(|_| format_plain(data), turn)
}
