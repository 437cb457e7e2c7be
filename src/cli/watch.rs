//! `trellis job watch`: shows status changes and live text.

use super::client::Client;
use super::escape;
use super::exit::{Exit, Failure};
use super::output::{CommandOutput, Format, field, format_plain, pretty, remark, write, write_json, write_line};
use super::sse::{SseEvent, SseParser};
use super::wait::{self, RECONNECT_RETRIES, WaitNotes};
use crate::domain::ids::JobId;
use futures::StreamExt;
use serde_json::Value;

/// Follows a job to its end.
pub(crate) async fn follow(client: &Client, out: CommandOutput, job: &JobId) -> Result<Exit, Failure> {
    let (status, reasons) = (String::new(), WaitNotes::default());
    let mut shown = WatchOutput { out, status, reasons, is_mid_line: false, last_event: None };
    let mut away = RECONNECT_RETRIES.wait_times();
    loop {
        match stream(client, job, &mut shown).await {
            Ok(Some(record)) => return shown.end(&record),
            Ok(None) => {}
            Err(failure) if failure.exit == Exit::Unreachable && !shown.status.is_empty() => {
                let Some(pause) = away.next_wait() else { return Err(failure) };
                shown.end_line()?;
                remark(&format!("waiting for the server: {failure}"));
                tokio::time::sleep(pause).await;
                continue;
            }
            Err(failure) => return Err(failure),
        }
        // The server closed the stream; the job may have ended meanwhile.
        let record = client.get(&format!("jobs/{job}"), &[]).await;
        match record {
            Ok(record) if wait::is_ended(&record) => {
                // The rest of its text precedes its record.
                let last = stream(client, job, &mut shown).await.ok().flatten();
                return shown.end(&last.unwrap_or(record));
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

/// Reads one stream; returns the record if the job has ended.
async fn stream(client: &Client, job: &JobId, shown: &mut WatchOutput) -> Result<Option<Value>, Failure> {
    let response = client.stream(&format!("jobs/{job}/sse"), shown.last_event.as_deref()).await?;
    let mut bytes = response.bytes_stream();
    let mut parser = SseParser::default();
    while let Some(piece) = bytes.next().await {
        let piece = piece.map_err(|e| client.unreachable(&e))?;
        for event in parser.feed(&piece) {
            if let Some(record) = shown.event(&event)? {
                return Ok(Some(record));
            }
        }
    }
    Ok(None)
}

struct WatchOutput {
    out: CommandOutput,
    status: String,
    reasons: WaitNotes,
    /// The cursor is behind streamed text, not at the start of a line.
    is_mid_line: bool,
    /// Id of the last event: a new stream goes on after it.
    last_event: Option<String>,
}

impl WatchOutput {
    /// Prints an event; returns the record if the job has ended.
    fn event(&mut self, event: &SseEvent) -> Result<Option<Value>, Failure> {
        let data: Value = serde_json::from_str(&event.data).unwrap_or_else(|_| event.data.clone().into());
        if event.name == "job-update" {
            let status = field(&data, "status");
            if wait::is_ended(&data) {
                return Ok(Some(data));
            }
            if status != self.status {
                self.end_line()?;
                self.json(&data)?;
                if self.out.format == Format::Text {
                    write_line(&self.out.status(&status, &status))?;
                }
                self.status = status;
            }
            if !data["waiting"].is_null() {
                self.end_line()?;
            }
            self.reasons.show(&data);
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
        let text = data["text"].as_str().or(data.as_str()).unwrap_or_default();
        if self.out.format == Format::Text && !text.is_empty() {
            // A model's text must not use this program's styles.
            write(&escape::escape_data(text))?;
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

    fn end(mut self, record: &Value) -> Result<Exit, Failure> {
        self.end_line()?;
        let status = field(record, "status");
        if self.out.format == Format::Text {
            write_line(&self.out.status(&status, &status))?;
        }
        let reported = wait::report(self.out, record, None);
        reported.map_err(|failure| failure.with_advice(Exit::Conflict, "use a new id for a new request"))
    }
}

/// Formats the progress of a turn; that of an external worker is shown unchanged.
fn progress(data: &Value) -> String {
    let Some(calls) = data["calls"].as_array() else { return format_plain(data) };
    let calls: Vec<_> = calls.iter().filter_map(Value::as_str).collect();
    format!("turn {} calls {}", data["turn"], calls.join(", "))
}
