//! The status document of a job, one line that the stores decode, too.

use crate::domain::job::JobStatus;
use crate::domain::time::Millis;

/// Encodes a status document.
pub fn encode_status(status: JobStatus, updated: Millis) -> String {
    format!("{} {}", status.as_str(), updated.0)
}

/// Encodes the status document of a paused job that resumes with the status `before`.
pub fn encode_paused(before: JobStatus, updated: Millis) -> String {
    format!("{} {}", encode_status(JobStatus::Paused, updated), before.as_str())
}

/// Decodes status and time of a status document.
pub fn decode_status(bytes: &[u8]) -> Option<(JobStatus, Millis)> {
    let mut parts = std::str::from_utf8(bytes).ok()?.splitn(3, ' ');
    Some((JobStatus::parse(parts.next()?)?, Millis(parts.next()?.parse().ok()?)))
}

/// Returns the status with which the paused job of a status document resumes.
pub fn status_before(bytes: &[u8]) -> Option<JobStatus> {
    JobStatus::parse(std::str::from_utf8(bytes).ok()?.splitn(3, ' ').nth(2)?)
}
