//! Limits of servers of the Model Context Protocol whose tools agents use. Other people run these servers: each of their
//! answers is bounded before it is read.

use std::{ops::RangeInclusive, time::Duration};

/// Characters of the name of a server: with the longest hash of a tool's name there is room for a readable rest.
pub const MCP_NAME_CHARS: usize = 32;

/// Servers that one agent, or one venue, names.
pub const MCP_SERVERS: usize = 16;

/// Patterns in one list of tools.
pub const MCP_PATTERNS: usize = 256;

/// Bytes of a pattern, and of the name of a tool at its server: the protocol recommends 128.
pub const MCP_TOOL_NAME_BYTES: usize = 128;

/// Bytes of the URL of a server.
pub const MCP_URL_BYTES: usize = 2_048;

/// Headers that a configuration adds, and bytes of each of them.
pub const MCP_HEADERS: usize = 16;
/// Bytes of one header of a configuration.
pub const MCP_HEADER_BYTES: usize = 2_048;

/// Headers that one tool asks for by `x-mcp-header`: more would be a list of a server that attacks.
pub const MCP_PARAM_HEADERS: usize = 32;
/// Bytes of these headers of one call: servers take about 8 KiB of all headers together.
pub const MCP_PARAM_HEADER_BYTES: usize = 6 * 1024;

/// Pictures, sounds and files of one result that become assets.
pub const MCP_MEDIA: usize = 32;

/// Pages of one list of tools. A cursor that comes twice ends the list before.
pub const MCP_LIST_PAGES: usize = 32;

/// Tools of all pages before the configuration's own list is applied.
pub const MCP_LISTED_TOOLS: usize = 1_024;

/// Bytes of all pages of one list.
pub const MCP_LIST_BYTES: usize = 4 * 1024 * 1024;

/// Time that all pages of a list may take. A turn waits so long once, when a server is used for the first time.
pub const MCP_LIST_TIME: Duration = Duration::from_secs(15);

/// Bytes of one message of a server, decoded only up to here.
pub const MCP_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of all messages that answer one request: progress may be reported often.
pub const MCP_STREAM_BYTES: usize = 16 * 1024 * 1024;

/// Messages that answer one request.
pub const MCP_STREAM_MESSAGES: usize = 10_000;

/// Bytes of a session id of a server.
pub const MCP_SESSION_ID_BYTES: usize = 1_024;

/// Bytes of the cursor of a list.
pub const MCP_CURSOR_BYTES: usize = 4_096;

/// Seconds that a call may take without progress, if the configuration doesn't say.
pub const MCP_CALL_SECONDS: u64 = 60;
/// Range of that setting, in seconds; a call as a whole is bounded as all operations are.
pub const MCP_CALL_SECONDS_RANGE: RangeInclusive<u64> = 1..=300;

/// Least and longest time for which a list counts as new, whatever the server says (`ttlMs`).
pub const MCP_FRESH_RANGE: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(1);

/// Time for which a list counts as new if the server doesn't say.
pub const MCP_FRESH: Duration = Duration::from_mins(5);

/// Bytes of the approved definitions of one server with a change that waits: the quota counts them.
pub const MCP_PIN_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of the text that stands for what a server says in an error.
pub const MCP_ERROR_BYTES: usize = 2_000;

/// Times that a server may ask a person in one call: a longer conversation is one of an agent.
pub const MCP_ROUNDS: u32 = 8;

/// Forms and links of one round.
pub const MCP_INPUT_REQUESTS: usize = 8;

/// Bytes of the text of a form or a link, and of the prompt of one of its fields.
pub const MCP_INPUT_TEXT_BYTES: usize = 1_000;

/// Options of one field, and bytes of each: a person reads all of them.
pub const MCP_INPUT_OPTIONS: usize = 100;
/// Bytes of one option.
pub const MCP_INPUT_OPTION_BYTES: usize = 200;

/// Bytes of the key of a form and of the name of a field.
pub const MCP_INPUT_NAME_BYTES: usize = 128;

/// Bytes of the state that a server has the client keep while a person is asked.
pub const MCP_REQUEST_STATE_BYTES: usize = 64 * 1024;

/// Bytes of the id of a task.
pub const MCP_TASK_ID_BYTES: usize = 1_024;

/// Shortest and longest pause between two looks at a task, whatever the server says.
pub const MCP_POLL_RANGE: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_mins(1);

/// Pause between two looks at a task if the server doesn't say.
pub const MCP_POLL: Duration = Duration::from_secs(2);

/// Time without progress, and whole time, of a request about a task: it holds a slot as long.
pub const MCP_TASK_TIMES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(30));

/// First and longest pause after a request about a task that failed; each is twice the one before.
pub const MCP_TASK_RETRY_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Bytes of the result of a call that goes on after its turn: it is sent to the session as one message.
pub const MCP_LATE_RESULT_BYTES: usize = 256 * 1024;
