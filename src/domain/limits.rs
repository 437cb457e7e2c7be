//! Every limit of the design, with its unit and reason. Settings that operators may change: `config/default.toml`.

mod a2a;
mod declared;
mod http;
mod mcp;
mod mcp_login;
mod notifications;
pub mod pipeline;
mod places;
mod published;
mod timers;

pub use self::a2a::*;
pub use self::declared::{
    DECLARED_ATTEMPTS, DECLARED_BYTES, DECLARED_HEADERS, DECLARED_PAUSE, DECLARED_PAUSE_MAX, DECLARED_QUERY,
    DECLARED_REFUSAL_BYTES, DECLARED_REQUEST_BYTES, DECLARED_STATUSES, DECLARED_URL_BYTES, IMPORTED_REFERENCES,
    IMPORTED_SCHEMAS, IMPORTED_TOOLS,
};
pub use self::http::*;
pub use self::mcp::{
    MCP_CALL_SECONDS, MCP_CALL_SECONDS_RANGE, MCP_CURSOR_BYTES, MCP_ERROR_BYTES, MCP_FRESH, MCP_FRESH_RANGE,
    MCP_HEADER_BYTES, MCP_HEADERS, MCP_INPUT_NAME_BYTES, MCP_INPUT_OPTION_BYTES, MCP_INPUT_OPTIONS, MCP_INPUT_REQUESTS,
    MCP_INPUT_TEXT_BYTES, MCP_LATE_RESULT_BYTES, MCP_LIST_BYTES, MCP_LIST_PAGES, MCP_LIST_TIME, MCP_LISTED_TOOLS,
    MCP_MEDIA, MCP_MESSAGE_BYTES, MCP_NAME_CHARS, MCP_PARAM_HEADER_BYTES, MCP_PARAM_HEADERS, MCP_PATTERNS,
    MCP_PIN_BYTES, MCP_POLL, MCP_POLL_RANGE, MCP_REQUEST_STATE_BYTES, MCP_ROUNDS, MCP_SERVERS, MCP_SESSION_ID_BYTES,
    MCP_STREAM_BYTES, MCP_STREAM_MESSAGES, MCP_TASK_ID_BYTES, MCP_TASK_RETRY_PAUSES, MCP_TASK_TIMES,
    MCP_TOOL_NAME_BYTES, MCP_URL_BYTES,
};
pub use self::mcp_login::*;
pub use self::notifications::*;
pub use self::places::*;
pub use self::published::{
    PUBLISHED_AGENTS_BYTES, PUBLISHED_BYTES, PUBLISHED_DESCRIPTION_BYTES, PUBLISHED_NAME_BYTES, PUBLISHED_OF_AGENTS,
    PUBLISHED_OPERATIONS, PUBLISHED_OWNER_BYTES, PUBLISHED_PER_OWNER, PUBLISHED_PER_SOURCE, PUBLISHED_SCHEMA_BYTES,
    PUBLISHED_SCHEMA_DEPTH, PUBLISHED_SOURCES, PUBLISHED_VERSION_BYTES,
};
pub use self::timers::{
    TIMER_BACKOFF, TIMER_BYTES, TIMER_CATCH_UP, TIMER_EVERY, TIMER_FARTHEST, TIMER_GRACE, TIMER_KEPT, TIMER_LATE,
    TIMER_NAME_BYTES, TIMER_PROMPT, TIMERS_PER_AGENT,
};
use std::{ops::RangeInclusive, time::Duration};

/// Pending events of one session: a backlog that no agent works off in a day.
pub const MAILBOX_EVENTS: u32 = 1_000;

/// Number of agents, of timers and of jobs that the answer to a revocation lists.
pub const REVOKED_LISTED: usize = 500;
/// Pages of the list of jobs that a revocation reads: the newest ones, which hold the open jobs.
pub const REVOKED_LOOKS: usize = 20;

/// Capabilities of a list in a configuration or a policy, and of an intersection of lists: far more than people write.
/// Two lists of 256 may give 65,536, which each read would compare.
pub const CAPABILITIES: usize = 1_024;

/// Turns of one task: far more than a working agent needs, few enough that a loop stays cheap.
pub const TURNS_PER_TASK: u32 = 50;

/// Mailbox entries that are handed out with a lease: as many as one turn can show.
pub const GRANT_EVENTS: u32 = 64;

/// Bytes of these entries after which no further one is handed out: a turn decodes all of them, and shows far less.
pub const GRANT_BYTES: usize = 1024 * 1024;

/// Levels of maps and lists of a value from outside, and of a document of the lattice. The decoder takes 127: the rest
/// is for wrapping the value (result, record, event, message).
pub const VALUE_DEPTH: usize = 64;

/// Values in a value from outside, counting each element and entry: a list of short numbers takes sixteen times its
/// text in memory with each copy. More than a prompt ever shows.
pub const VALUE_PARTS: usize = 50_000;

/// Values in a message that the venue itself sends: those that a turn hands on besides its own.
pub const MESSAGE_PARTS: usize = 4 * VALUE_PARTS;

/// Levels that the JSON decoder reads.
pub const DECODER_DEPTH: usize = 127;

/// Levels of the output of an operation and of what a turn fetches: a value with its wrapping.
pub const RESULT_DEPTH: usize = VALUE_DEPTH + 16;

/// Levels of a message that the venue itself sends: values that turns hand on through a chain of jobs.
pub const MESSAGE_DEPTH: usize = RESULT_DEPTH + 24;

/// Bytes of a submission's body: NATS' default `max_payload` less room for headers.
pub const SUBMISSION_BYTES: usize = 900_000;

/// Time that a session's name is reserved for a copy after the copy's last step: longer than any step.
pub const COPY_CLAIM: Duration = Duration::from_mins(2);

/// Longest time that an agent may give a person to answer its questions: 30 days.
pub const APPROVAL_TIME_MAX: Duration = Duration::from_hours(30 * 24);

/// Longest time that a venue may give one call of a model (`models.timeout`).
pub const MODEL_CALL_MAX: Duration = Duration::from_hours(1);

/// Time that a model call may hold a part of a budget before it counts as spent: longer than any call with the work
/// around it. Holds of a worker that died are counted at the next call of its session.
pub const BUDGET_HOLD: Duration = Duration::from_mins(90);

/// Questions that an agent may ask a person at once: what fits on one screen.
pub const QUESTIONS: usize = 20;

/// Document conflicts after which a commit backs off.
pub const COMMIT_CONFLICTS: u32 = 8;

/// Bytes of a tool result in a prompt.
pub const TOOL_RESULT_BYTES: usize = 32 * 1024;

/// Bytes of a prompt by default, about 45,000 tokens.
pub const CONTEXT_BYTES: usize = 180_000;

/// Range of the bytes of a prompt, up to a million tokens. The least still shows the fixed texts.
pub const CONTEXT_BYTES_RANGE: RangeInclusive<usize> = 4_096..=4_000_000;

/// Range of the tokens of a prompt.
pub const CONTEXT_TOKENS_RANGE: RangeInclusive<usize> = 1_024..=1_000_000;

/// Bytes of the turn records that a turn reads of its session: twice what the largest prompt shows.
pub const TRANSCRIPT_BYTES: usize = 2 * *CONTEXT_BYTES_RANGE.end();

/// Bytes that one context entry may ask for: a whole prompt.
pub const ENTRY_BYTES: usize = *CONTEXT_BYTES_RANGE.end();

/// Fewest bytes of a shrunk entry: fewer are of no use.
pub const ENTRY_FLOOR: usize = 256;

/// Context entries of one configuration.
pub const CONTEXT_ENTRIES: usize = 200;

/// Entries of an agent's `tools`: four times what a provider takes, and as many as an owner may publish. Each is worked
/// out with its bindings, and each of a pin has a schema of its own.
pub const TOOLS: usize = PUBLISHED_PER_OWNER;

/// Bytes of the schemas that the pins of an agent have together: more than a prompt has room for.
pub const PINNED_SCHEMAS_BYTES: usize = 512 * 1024;

/// Bytes of a label.
pub const CONTEXT_LABEL_BYTES: usize = 200;

/// Bytes of a fetched value that are stored whole with a turn. Of a larger value only the bytes within its budget are
/// stored, so that a turn's record holds nothing that no prompt showed.
pub const INPUT_BYTES: usize = 1_000_000;

/// Bytes of all fetched values of one turn together: each is part of the turn's one commit.
pub const INPUTS_BYTES: usize = 8_000_000;

/// Range of the bytes of a loaded path.
pub const LOAD_BYTES: RangeInclusive<usize> = 256..=10_000;

/// Bytes of a loaded path by default.
pub const LOAD_BYTES_DEFAULT: usize = 500;

/// Number of loaded paths per level: each is a line in the context map, which is never cut.
pub const LOADS: usize = 100;

/// Number of operations found with `more_tools` that a session keeps.
pub const FOUND_TOOLS: usize = 30;

/// Time that one operation of a context entry may run.
pub const CONTEXT_OPERATION_TIME: Duration = Duration::from_secs(10);

/// Bytes of a queue's name: it is part of a subject.
pub const QUEUE_NAME_BYTES: usize = 100;

/// Time that an external worker may take to begin a job by default: a queue that is longer than that is not worked off.
pub const OUTBOUND_START: Duration = Duration::from_hours(1);

/// Time that an external worker may be silent by default: few steps of a job take longer.
pub const OUTBOUND_HEARTBEAT: Duration = Duration::from_mins(10);

/// Time that a job of an external worker may take in all by default.
pub const OUTBOUND_DEADLINE: Duration = Duration::from_hours(24);

/// Longest deadline of a job of an external worker, and retention of its message: 30 days.
pub const OUTBOUND_DEADLINE_MAX: Duration = Duration::from_hours(30 * 24);

/// Time between the first look at an expired job of an external worker and its failure: a message of its worker may
/// still be in the queue, above all after this venue was down.
pub const OUTBOUND_GRACE: Duration = Duration::from_secs(5);

/// Time that a watch waits for its job to be opened, which usually follows at once: longer than any lease.
pub const OUTBOUND_ORPHAN: Duration = Duration::from_hours(1);

/// Bytes of an external worker's output: as many as of a submission, because it is sent on as one.
pub const OUTBOUND_BYTES: usize = SUBMISSION_BYTES;

/// Bytes of a piece of progress, and of an error, of an external worker.
pub const OUTBOUND_NOTE_BYTES: usize = 8 * 1024;

/// Ignored answers of external workers that are kept per job, the newest ones.
pub const OUTBOUND_IGNORED: usize = 10;

/// Time that an operation that only reads the venue may run where it is invoked, before a worker runs it: people don't
/// notice such a wait, and it is far longer than a read of a healthy store.
pub const INVOKED_HERE: Duration = Duration::from_millis(250);

/// Time between the expiry of an operation's lease and another worker's claim: their clocks differ.
pub const INVOKED_GRACE: Duration = Duration::from_secs(5);

/// Operations of one owner that were invoked and have not ended; further ones are refused. They take the slots for
/// operations of a worker some minutes.
pub const INVOKED_OPEN: usize = 1_000;

/// Open operations of an owner beyond which no task elsewhere is begun: one may be open for days, and others need room.
pub const OPEN_TASKS: usize = INVOKED_OPEN / 2;

/// Pause before another look at an operation with effects whose result found no room in its owner's quota.
pub const INVOKED_ROOM: Duration = Duration::from_secs(5);

/// Bytes of a result, a reason or an answer that no quota refuses: it ends work that was accepted.
pub const END_BYTES: usize = 4 * 1024;

/// Depth of a chain of jobs.
pub const JOB_DEPTH: u32 = 5;

/// Children that one session may wait for.
pub const SESSION_CHILDREN: usize = 8;

/// Children that one run of a session may start: from the task's first turn to its end.
pub const RUN_CHILDREN: usize = 50;

/// Frames of a goal tree inside one another, the session's own conversation excepted.
pub const FRAME_DEPTH: usize = 8;

/// Bytes of a goal: a paragraph; data belongs into the tree.
pub const GOAL_BYTES: usize = 4 * 1024;

/// Layers of one configuration of an agent.
pub const CONFIG_LAYERS: usize = 16;

/// Bytes of a session's title.
pub const SESSION_TITLE_BYTES: usize = 200;

/// Number of documents of a session that its deletion removes in one write.
pub const SESSION_ERASED: usize = 3_000;

/// Bytes of the summary that replaces compacted turns.
pub const SUMMARY_BYTES: usize = 16 * 1024;

/// Number of summaries of one frame that are kept apart; beyond it the oldest two are merged.
pub const SEGMENTS: usize = 20;

/// Number of invalid answers to a task with typed outputs that the model may correct before the task fails.
pub const OUTPUT_REFUSALS: u32 = 2;

/// Number of calls of one reply that are made: models that make several at once make about ten.
pub const REPLY_CALLS: usize = 128;

/// Bytes of the sections that one call hands on.
pub const HAND_OFF_BYTES: usize = 64 * 1024;

/// Bytes of the sections that the calls of one reply hand on together: they are recorded with the reply.
pub const HAND_OFFS_BYTES: usize = 1024 * 1024;

/// Time that a fast child may take to answer inside the turn that started it.
pub const CHILD_WAIT: Duration = Duration::from_secs(5);

/// Time that one operation may run.
pub const OPERATION_TIME: Duration = Duration::from_mins(5);

/// Bytes of a value that `lattice/read` returns in full.
pub const READ_BYTES: usize = 1_000_000;

/// Documents that one read may gather.
pub const READ_DOCUMENTS: usize = 10_000;

/// Bytes that one placeholder inserts: more than any text that belongs into the middle of another.
pub const PLACEHOLDER_BYTES: usize = 32 * 1024;

/// Bytes that all placeholders of one text insert: as much as a whole prompt.
pub const PLACEHOLDERS_BYTES: usize = CONTEXT_BYTES;

/// Bytes of a `sessionContext`: ids and short texts; larger values belong into `w/`.
pub const SESSION_CONTEXT_BYTES: usize = 64 * 1024;

/// Bytes of `v/context/project`, and of a user's values: each turn that uses one reads them.
pub const SHARED_VALUES_BYTES: usize = 256 * 1024;

/// Bytes of an asset: a long document or a picture; larger content belongs into a file store.
pub const ASSET_BYTES: usize = 8 * 1024 * 1024;

/// Bytes of an asset's name, and of its description, which a context shows in place of the asset.
pub const ASSET_DESCRIPTION_BYTES: usize = 16 * 1024;

/// Bytes of a schema that an operation gets: far more than people write, compiled in milliseconds.
pub const SCHEMA_BYTES: usize = 64 * 1024;

/// Pictures and files that one request shows: with more, Anthropic takes only pictures of at most 2,000 pixels a side.
pub const ATTACHMENTS: usize = 20;

/// Bytes of a picture or a file in a request: Anthropic refuses pictures of more than 5 MiB as Base64.
pub const ATTACHMENT_BYTES: usize = 5 * 1024 * 1024 / 4 * 3;

/// Bytes of all attachments of one request: Gemini refuses requests of more than 20 MB, Base64 and texts included.
pub const ATTACHMENTS_BYTES: usize = 12 * 1024 * 1024;

/// Pixels of a side of a picture: Anthropic refuses more.
pub const ATTACHMENT_SIDE: u32 = 8_000;

/// References to assets that are looked up for a prompt, the newest ones: a few times as many as it can show.
pub const ATTACHMENTS_READ: usize = 3 * ATTACHMENTS;

/// Bytes of memory that the attachments of all model calls of a process take at once.
pub const ATTACHMENTS_MEMORY: usize = 256 * 1024 * 1024;

/// Steps of checking one value against a schema: a second of work at most.
pub const SCHEMA_CHECKS: u64 = 1_000_000;

/// Steps of a check above which its first misfit alone is listed: all of them are made before the first is known, and a
/// hundred thousand take 50 MB.
pub const SCHEMA_LISTED_CHECKS: u64 = 100_000;

/// Depth of schemas inside one another while a value is checked: twice the depth of JSON that is read.
pub const SCHEMA_DEPTH: usize = 260;

/// Number of misfits that one validation lists: more than anybody corrects at once.
pub const SCHEMA_ERRORS: usize = 100;

/// Number of different keys in inferred samples above which an object is taken for a map.
pub const INFER_PROPERTIES: usize = 256;

/// Bytes of a secret: private keys and certificates with their chains are smaller.
pub const SECRET_BYTES: usize = 64 * 1024;

/// Bytes of a secret at least: shorter ones occur in ordinary text, which masking would spoil.
pub const SECRET_BYTES_LEAST: usize = 8;

/// Secrets of one owner: all of them are listed at once.
pub const SECRETS: usize = 1_000;

/// Bytes of a token; identity providers stay below half of it.
pub const TOKEN_BYTES: usize = 8 * 1024;

/// Bytes of a token with the tokens that it narrows: below the 64 KiB of a message's headers.
pub const TOKEN_CHAIN_BYTES: usize = 32 * 1024;

/// Tokens of a delegation chain, the presented one included.
pub const TOKEN_LINKS: usize = 5;

/// Resources of one agent: each has tools, which cost their schemas in every turn.
pub const RESOURCES: usize = 16;

/// Bytes of one memory entry: a paragraph or two; longer texts are files.
pub const MEMORY_CONTENT_BYTES: usize = 8 * 1024;

/// Entries of one scope of a memory: a turn that shows its topics reads all of them.
pub const MEMORY_ENTRIES: usize = 1_000;

/// Topics of one memory entry.
pub const MEMORY_TOPICS: usize = 16;

/// Bytes of a topic.
pub const MEMORY_TOPIC_BYTES: usize = 64;

/// Entries that one read of a memory returns by default.
pub const MEMORY_READ: usize = 50;
/// Entries that one search of a memory returns by default.
pub const MEMORY_SEARCH: usize = 100;
/// Entries that one read or search of a memory returns at most.
pub const MEMORY_LIMIT: usize = 200;

/// Entries that a memory preloads into a prompt by default.
pub const MEMORY_PRELOAD: usize = 50;
/// Entries that a memory preloads at most, whatever its settings say.
pub const MEMORY_PRELOAD_MOST: usize = 200;

/// Characters of the entries that a memory preloads by default.
pub const MEMORY_PRELOAD_CHARS: usize = 12_000;
/// Characters that a memory preloads at most, whatever its settings say.
pub const MEMORY_PRELOAD_CHARS_MOST: usize = 50_000;

/// Items that one answer of a remote provider shows: more than a prompt has room for.
pub const REMOTE_ITEMS: usize = 100;

/// Bytes of the reason that a remote provider gives for a refusal: a sentence or two.
pub const REMOTE_SAID_BYTES: usize = 500;

/// Kinds of resources that a venue's configuration adds: tools and errors of each agent name them.
pub const REMOTE_KINDS: usize = 100;

/// Bytes of a `replyTo`: ids of a tenant and a user, encoded, and an inbox; NATS' control lines have 4 KiB.
pub const REPLY_SUBJECT_BYTES: usize = 1_024;

/// Bytes of one reply of a model, counting its text, its reasoning and the arguments of its calls: twice the longest
/// that providers let a model write, 128,000 tokens of 8 bytes.
pub const REPLY_BYTES: usize = 2 * 1024 * 1024;

/// Bytes of one token of a reply at most, where `maxTokens` limits their number; the longest words of the usual
/// vocabularies.
pub const REPLY_TOKEN_BYTES: usize = 64;

/// Bytes that a reply may have in any case, whatever `maxTokens` says.
pub const REPLY_BYTES_LEAST: usize = 16 * 1024;

/// Bytes of one reply in its wire format: providers wrap each token into some hundred bytes.
pub const REPLY_WIRE_BYTES: usize = 64 * 1024 * 1024;

/// Tokens of a reply of a Claude model where `maxTokens` is absent, because its format requires a number: the most that
/// each model of version 3.7 or later takes (Opus 4 and 4.1 take no more).
pub const CLAUDE_REPLY_TOKENS: u32 = 32_000;

/// Tokens of a reply of Claude 3.5 and of other models behind Anthropic's format where `maxTokens` is absent: most of
/// them take as many.
pub const ANTHROPIC_REPLY_TOKENS: u32 = 8_192;

/// Tokens of a reply of Claude 3 where `maxTokens` is absent, which takes no more.
pub const CLAUDE_3_REPLY_TOKENS: u32 = 4_096;

/// Smallest number of tokens that Anthropic takes as the budget of a model's reasoning.
pub const CLAUDE_THINKING_TOKENS_LEAST: u32 = 1_024;

/// Bytes of one token in its wire format at most, where `maxTokens` limits the number of tokens.
pub const REPLY_TOKEN_WIRE_BYTES: usize = 2 * 1024;

/// Bytes in the wire format that a reply may have in any case: some protocols repeat the request at its end.
pub const REPLY_WIRE_BYTES_LEAST: usize = 4 * 1024 * 1024;

/// Bytes of one piece of a reply in its wire format, or of a whole one that doesn't come in pieces.
pub const REPLY_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of one file of a resource: a model can write and read as much within a task.
pub const FILE_BYTES: usize = 256 * 1024;

/// Bytes of a file that one read returns: a tool's result shows them whole.
pub const FILE_READ_BYTES: usize = 24 * 1024;

/// Files of one listing.
pub const FILES_LISTED: usize = 500;

/// Buckets that a request may name.
pub const CONTEXT_IDS: usize = 16;

/// Entries of a bucket that a turn shows.
pub const BUCKET_SHOWN: usize = 20;

/// Entries of a bucket that are kept: those that are shown, and some older ones.
pub const BUCKET_KEPT: usize = 200;

/// Bytes of one entry of a bucket.
pub const BUCKET_ENTRY_BYTES: usize = 16 * 1024;

/// Crashes of a session after its last commit that are kept in detail, the last ones: several times the number that
/// kills a task by default.
pub const ATTEMPTS_KEPT: usize = 20;

/// Records of losses with a server that are kept, one for each process that found a loss.
pub const LOSSES_KEPT: usize = 1_000;

/// Messages with an unreadable subject that are kept: enough to recognise their senders.
pub const UNREADABLE_KEPT: usize = 1_000;

/// Bytes of the body of a message with an unreadable subject that are kept.
pub const UNREADABLE_BYTES: usize = 1024;

/// Sessions of one page of a list.
pub const SESSIONS_PAGE: usize = 200;

/// Turns of one page of a transcript.
pub const TURNS_PAGE: usize = 100;

/// Retention of the amounts spent per day, in days: a month's bill can be compared.
pub const SPEND_DAYS: u32 = 40;

/// Number of jobs below others that one request reads for the sum of their use; the answer says when there are more.
pub const TREE_JOBS: usize = 1_000;

/// Number of records that one request of a filtered list reads; the answer has the cursor of the next page.
pub const LIST_LOOKS: usize = 1_000;

/// Bytes of the records of one page of any list. The page ends where they are more, and has the cursor of the next one.
/// A page of a thousand small records has fewer.
pub const LIST_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of the records that one request of a filtered list reads.
pub const LIST_LOOK_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of an input or output that a list shows whole; for a larger one it shows the size.
pub const LISTED_VALUE_BYTES: usize = 8 * 1024;

/// Bytes of a text of a listed record that a list shows.
pub const LISTED_TEXT_BYTES: usize = 1024;

/// Characters of a person's note about a call of unknown outcome.
pub const SETTLEMENT_NOTE_CHARS: usize = 2_000;

/// Records of one page of a list at most, and by default.
pub const LIST_PAGE: usize = 1_000;

/// Bytes of the documents that are read for one value: a larger value can be read in parts.
pub const READ_WHOLE_BYTES: usize = 4 * 1024 * 1024;

/// Newest turns of a session in use that retention keeps at any age: its conversation.
pub const TURNS_KEPT: u64 = 50;

/// Percentage of a store's memory above which no new work is accepted: accepted work needs room to end.
pub const STORE_TIGHT_PERCENT: u64 = 80;
/// Age at which the known use of a store's memory is read again.
pub const STORE_LOOK: Duration = Duration::from_secs(1);
