//! The meaning of a failed publish: whether the message may be stored, and whether a repetition can succeed.

use super::super::{BusError, error_chain};
use super::options::TIMEOUT;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{self, ErrorCode};
use std::error::Error;

/// Errors while another publish on the same subject, or with the same id, is on its way to the replicas: a repetition
/// succeeds a moment later.
const IN_FLIGHT: [ErrorCode; 2] =
    [ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT, ErrorCode::STREAM_DUPLICATE_MESSAGE_CONFLICT];

/// Converts the error of a publish for the caller.
pub(super) fn publish_error(bus: &str, error: &PublishError, subject: &str, is_job: bool) -> BusError {
    let bus = bus.to_owned();
    let reason = match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => {
            return BusError::TooLarge { bus, reason: "it exceeds the server's `max_payload`".to_owned() };
        }
        PublishErrorKind::StreamNotFound => format!(
            "nobody takes messages on `{subject}`: its stream has no leader as long as most of the servers that have it \
             are down, or it is gone and is made again; `trellis doctor` shows it"
        ),
        PublishErrorKind::TimedOut => format!(
            "no acknowledgement of a message on `{subject}` within {} s: its stream may have lost its leader, or most of \
             the servers that have it",
            TIMEOUT.as_secs()
        ),
        _ => {
            if let Some(answer) = server_answer(error) {
                return answer_error(bus, answer, is_job);
            }
            error_chain(error)
        }
    };
    BusError::Unavailable { bus, reason }
}

pub(super) fn server_answer(error: &PublishError) -> Option<&jetstream::Error> {
    error.source().and_then(|source| source.downcast_ref())
}

/// Whether no stream takes messages on the subject, so that nothing was stored.
pub(super) fn is_not_taken(error: &PublishError) -> bool {
    error.kind() == PublishErrorKind::StreamNotFound
}

pub(super) fn is_in_flight(error: &PublishError) -> bool {
    server_answer(error).is_some_and(|answer| IN_FLIGHT.contains(&answer.error_code()))
}

/// Converts an answer of the server: with a 4xx code or from a full stream the message is not stored, except for
/// passing errors.
fn answer_error(bus: String, answer: &jetstream::Error, is_job: bool) -> BusError {
    let (code, reason) = (answer.error_code(), answer.to_string());
    // The code alone also means that a disk is full or a server shuts down.
    let is_full = code == ErrorCode::STREAM_STORE_FAILED && reason.starts_with("maximum ");
    // Too many requests: more arrive than the replicas take.
    let passes = IN_FLIGHT.contains(&code) || code == ErrorCode::STREAM_TOO_MANY_REQUESTS;
    if code == ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM {
        return BusError::TooLarge { bus, reason };
    }
    match (is_full, is_job) {
        (true, true) => BusError::Full { bus, reason },
        (true, false) => BusError::Refused { bus, reason },
        (false, _) if answer.code() < 500 && !passes => BusError::Refused { bus, reason },
        (false, _) => BusError::Unavailable { bus, reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_errors_that_prove_nothing_was_stored_are_refusals() {
        for (code, error_code, text, task, job) in [
            (503, 10077, "maximum bytes exceeded", "refused", "full"),
            (400, 10077, "maximum messages exceeded", "refused", "full"),
            (503, 10077, "no space left on device", "unavailable", "unavailable"),
            (503, 10077, "store is closed", "unavailable", "unavailable"),
            (400, 10054, "message size exceeds maximum allowed", "too large", "too large"),
            (400, 10164, "wrong last sequence", "unavailable", "unavailable"),
            (409, 10158, "duplicate message id is in process", "unavailable", "unavailable"),
            (429, 10167, "too many requests", "unavailable", "unavailable"),
            (503, 10008, "JetStream system temporarily unavailable", "unavailable", "unavailable"),
        ] {
            let answer = json!({"code": code, "err_code": error_code, "description": text});
            let answer: jetstream::Error = serde_json::from_value(answer).unwrap();
            let kinds = [false, true].map(|is_job| match answer_error("b".to_owned(), &answer, is_job) {
                BusError::Refused { .. } => "refused",
                BusError::Full { .. } => "full",
                BusError::TooLarge { .. } => "too large",
                BusError::Unavailable { .. } => "unavailable",
                BusError::NoStream { .. } => "no stream",
            });
            assert_eq!(kinds, [task, job], "{text}");
        }
    }
}
