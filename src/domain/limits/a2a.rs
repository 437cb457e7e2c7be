//! Limits of agents elsewhere that are reached by the Agent2Agent protocol. Other people run these agents: each of their
//! answers is bounded before it is read.

use std::{ops::RangeInclusive, time::Duration};

/// Agents elsewhere that one agent, or one venue, names.
pub const A2A_AGENTS: usize = 16;

/// Patterns in a list of skills.
pub const A2A_PATTERNS: usize = 256;

/// Keys that may sign the card of an agent.
pub const A2A_KEYS: usize = 8;
/// Bytes of one such key as JSON: an RSA key of 4,096 bits has a fifth.
pub const A2A_KEY_BYTES: usize = 4_096;

/// Signatures of a card that are looked at: one for each key and algorithm is enough.
pub const A2A_SIGNATURES: usize = 16;

/// Bytes of a card.
pub const A2A_CARD_BYTES: usize = 256 * 1024;

/// Time that a card may take. A turn waits so long once, when an agent is used for the first time.
pub const A2A_CARD_TIME: Duration = Duration::from_secs(15);

/// Skills and addresses of a card that are read.
pub const A2A_SKILLS: usize = 100;
/// Addresses of a card that are read.
pub const A2A_INTERFACES: usize = 16;

/// Bytes of an id that an agent gives to a task or to a context.
pub const A2A_ID_BYTES: usize = 512;

/// Bytes of the arguments of a message: they stand in the job, too.
pub const A2A_MESSAGE_BYTES: usize = 256 * 1024;

/// Bytes of one answer, decoded only up to here.
pub const A2A_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// Parts of an answer that are read.
pub const A2A_PARTS: usize = 200;

/// Bytes of a result: it is sent to the session as one message.
pub const A2A_RESULT_BYTES: usize = 256 * 1024;

/// Bytes of the texts of a result that is larger than it may be.
pub const A2A_TEXT_BYTES: usize = 64 * 1024;

/// Bytes of what an agent says in an error.
pub const A2A_ERROR_BYTES: usize = 2_000;

/// Seconds that one request may take, if the configuration doesn't say.
pub const A2A_REQUEST_SECONDS: u64 = 30;
/// Range of that setting, in seconds.
pub const A2A_REQUEST_SECONDS_RANGE: RangeInclusive<u64> = 1..=120;

/// Range of the time for a task, in seconds: a minute to 30 days.
pub const A2A_DEADLINE_RANGE: RangeInclusive<u64> = 60..=30 * 24 * 3_600;

/// Shortest and longest pause between two looks at a task. A task that changed long ago is looked at less often.
pub const A2A_LOOK_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// First and longest pause after a request that failed; each is twice the one before.
pub const A2A_RETRY_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Failed tries to send a message in a row after which it is given up: some minutes.
pub const A2A_SEND_TRIES: u32 = 8;

/// Age of a card at which the agent is asked for it again.
pub const A2A_FRESH: Duration = Duration::from_mins(5);
