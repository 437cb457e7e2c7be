//! Every limit, with its unit and the reason for its number. What operators may change is in
//! `config/default.toml`; these are the bounds of the design itself.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Pending events of one session: a backlog that no agent works off in a day.
pub const MAILBOX_EVENTS: u32 = 1_000;

/// Agents, timers and jobs that a revocation lists, of each.
pub const REVOKED_LISTED: usize = 500;
/// Pages of the list of jobs that a revocation looks at: the newest, of which open ones are.
pub const REVOKED_LOOKS: usize = 20;

/// Turns of one task: far more than a working agent needs, few enough that a loop stays cheap.
pub const TURNS_PER_TASK: u32 = 50;

/// Mailbox entries that come with a grant: what one turn can show.
pub const GRANT_EVENTS: u32 = 64;

/// Bytes of these behind which no other comes with them: a turn decodes all of them, and shows far less.
pub const GRANT_BYTES: usize = 1024 * 1024;

/// Levels of maps and lists of a value from outside, and of a document of the tree. The decoder takes
/// 127: what is between is for what a value is wrapped into (result, record, event, message).
pub const VALUE_DEPTH: usize = 64;

/// Values in a value from outside, each element and entry of it counted: a list of short numbers takes sixteen times
/// its text in memory, each time that it is copied. More than a prompt ever shows.
pub const VALUE_PARTS: usize = 50_000;

/// Values in a message that the venue sends itself: what a turn hands on beside its own.
pub const MESSAGE_PARTS: usize = 4 * VALUE_PARTS;

/// Levels that the JSON decoder reads.
pub const DECODER_DEPTH: usize = 127;

/// Levels of what an operation returns and of what a turn fetches: a value with what it stands in.
pub const RESULT_DEPTH: usize = VALUE_DEPTH + 16;

/// Levels of a message that the venue sends itself: what a turn hands on, through a chain of jobs.
pub const MESSAGE_DEPTH: usize = RESULT_DEPTH + 24;

/// Bytes of a submission's body: NATS' default `max_payload` less room for headers.
pub const SUBMISSION_BYTES: usize = 900_000;

/// How long a name is kept for who copies a session to it, since his last step: longer than any step of a copy.
pub const COPY_CLAIM: Duration = Duration::from_mins(2);

/// Longest time that an agent may give a person to answer its questions: 30 days.
pub const APPROVAL_TIME_MAX: Duration = Duration::from_hours(30 * 24);

/// Longest time that a venue may give one call of a model (`models.timeout`).
pub const MODEL_CALL_MAX: Duration = Duration::from_hours(1);

/// How long a model call may hold a part of a budget before it counts as spent: longer than any call, and what its
/// worker does around it. What the worker of a session that died left held counts with the next call of that session.
pub const BUDGET_HOLD: Duration = Duration::from_mins(90);

/// Questions that an agent may ask a person at once: what fits on one screen.
pub const QUESTIONS: usize = 20;

/// Document conflicts after which a commit backs off.
pub const COMMIT_CONFLICTS: u32 = 8;

/// Bytes of a tool result in a prompt.
pub const TOOL_RESULT_BYTES: usize = 32 * 1024;

/// Bytes of a prompt when nothing else is said, about 45,000 tokens.
pub const CONTEXT_BYTES: usize = 180_000;

/// Bytes that a prompt may be given: a million tokens. The least still shows the fixed texts.
pub const CONTEXT_BYTES_RANGE: RangeInclusive<usize> = 4_096..=4_000_000;

/// Tokens that a prompt may be given.
pub const CONTEXT_TOKENS_RANGE: RangeInclusive<usize> = 1_024..=1_000_000;

/// Bytes of the turn records that a turn reads of its session: twice what the largest prompt shows.
pub const TRANSCRIPT_BYTES: usize = 2 * *CONTEXT_BYTES_RANGE.end();

/// Bytes that one context entry may ask for: a whole prompt.
pub const ENTRY_BYTES: usize = *CONTEXT_BYTES_RANGE.end();

/// Fewest bytes that a shrunk entry gets: less says nothing.
pub const ENTRY_FLOOR: usize = 256;

/// Context entries of one configuration.
pub const CONTEXT_ENTRIES: usize = 200;

/// Bytes of a label.
pub const CONTEXT_LABEL_BYTES: usize = 200;

/// Bytes of a fetched value that are kept whole for a prompt; of a larger one only what its budget
/// shows, so that a turn's record doesn't grow with what nobody saw.
pub const INPUT_BYTES: usize = 1_000_000;

/// Bytes of all fetched values of one turn together: each of them goes into the turn's one commit.
pub const INPUTS_BYTES: usize = 8_000_000;

/// Bytes of a loaded path, and what it gets when nothing is said.
pub const LOAD_BYTES: RangeInclusive<usize> = 256..=10_000;

/// See [`LOAD_BYTES`].
pub const LOAD_BYTES_DEFAULT: usize = 500;

/// Loaded paths of one level: each is a line in the context map, which is never cut.
pub const LOADS: usize = 100;

/// Operations that a session keeps of those that it found with `more_tools`.
pub const FOUND_TOOLS: usize = 30;

/// How long one operation of a context entry may run.
pub const CONTEXT_OPERATION_TIME: Duration = Duration::from_secs(10);

/// Bytes of a queue's name: it is part of a subject.
pub const QUEUE_NAME_BYTES: usize = 100;

/// How long an external worker may take to begin a job when nothing else is said: a queue that is
/// longer than that is not worked off.
pub const OUTBOUND_START: Duration = Duration::from_hours(1);

/// How long an external worker may be silent when nothing else is said: few steps of a job take longer.
pub const OUTBOUND_HEARTBEAT: Duration = Duration::from_mins(10);

/// How long a job of an external worker may take in all when nothing else is said.
pub const OUTBOUND_DEADLINE: Duration = Duration::from_hours(24);

/// Longest deadline of a job of an external worker, and how long its message is kept: 30 days.
pub const OUTBOUND_DEADLINE_MAX: Duration = Duration::from_hours(30 * 24);

/// What an external worker has sent may still be in the queue when its time is over, above all after
/// this venue was down: it is given up only so long after that was first seen.
pub const OUTBOUND_GRACE: Duration = Duration::from_secs(5);

/// How long a watch waits for its job to be opened, which comes right after it: longer than any lease.
pub const OUTBOUND_ORPHAN: Duration = Duration::from_hours(1);

/// Bytes of an external worker's output: as much as a submission, for it travels on as one.
pub const OUTBOUND_BYTES: usize = SUBMISSION_BYTES;

/// Bytes of a piece of progress, and of an error, of an external worker.
pub const OUTBOUND_NOTE_BYTES: usize = 8 * 1024;

/// Answers of external workers that changed nothing, kept per job: the newest say enough.
pub const OUTBOUND_IGNORED: usize = 10;

/// How long an operation that only reads the venue may take where it is invoked, before a worker does it: what
/// people wait for without noticing, and far longer than a read of a healthy store takes.
pub const INVOKED_HERE: Duration = Duration::from_millis(250);

/// How long after the lease of an operation another worker goes on: their clocks differ.
pub const INVOKED_GRACE: Duration = Duration::from_secs(5);

/// Operations of one owner that were invoked and have not ended: what is beyond is refused until some have. Some
/// minutes of work for a worker's places for operations.
pub const INVOKED_OPEN: usize = 1_000;

/// Pause before an operation with effects is looked at again whose owner had no room for what it returns.
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

/// Documents of a session that its deletion takes with it in one write.
pub const SESSION_ERASED: usize = 3_000;

/// Bytes of the summary that stands for compacted turns.
pub const SUMMARY_BYTES: usize = 16 * 1024;

/// Summaries of one frame that are kept apart; past it the oldest become one.
pub const SEGMENTS: usize = 20;

/// Answers to a task with typed outputs that are given back with what is wrong, before it fails.
pub const OUTPUT_REFUSALS: u32 = 2;

/// Calls of one reply that are made: models that make several at once make some ten.
pub const REPLY_CALLS: usize = 128;

/// Bytes of the sections that one call hands on.
pub const HAND_OFF_BYTES: usize = 64 * 1024;

/// Bytes of the sections that the calls of one reply hand on together: they are recorded with it.
pub const HAND_OFFS_BYTES: usize = 1024 * 1024;

/// How long a fast child may answer inside the turn that started it.
pub const CHILD_WAIT: Duration = Duration::from_secs(5);

/// How long one operation may run.
pub const OPERATION_TIME: Duration = Duration::from_mins(5);

/// Bytes of a value that `lattice/read` returns in full.
pub const READ_BYTES: usize = 1_000_000;

/// Documents that one read may gather.
pub const READ_DOCUMENTS: usize = 10_000;

/// Bytes that one placeholder inserts: more than any text that belongs into the middle of another.
pub const PLACEHOLDER_BYTES: usize = 32 * 1024;

/// Bytes that all placeholders of one text insert: as much as a whole prompt.
pub const PLACEHOLDERS_BYTES: usize = CONTEXT_BYTES;

/// Bytes of a `sessionContext`: ids and short texts; what is larger belongs into `w/`.
pub const SESSION_CONTEXT_BYTES: usize = 64 * 1024;

/// Bytes of `v/context/project`, and of a user's values: they are read in every turn that uses any.
pub const SHARED_VALUES_BYTES: usize = 256 * 1024;

/// Bytes of an asset: a long document or a picture; larger things belong into a file store.
pub const ASSET_BYTES: usize = 8 * 1024 * 1024;

/// Bytes of an asset's name, and of its description: it stands in a context in the asset's stead.
pub const ASSET_DESCRIPTION_BYTES: usize = 16 * 1024;

/// Bytes of a schema that an operation is given: far more than people write, compiled in milliseconds.
pub const SCHEMA_BYTES: usize = 64 * 1024;

/// Pictures and files that one request shows: with more Anthropic takes only pictures of at most 2,000 pixels a side.
pub const ATTACHMENTS: usize = 20;

/// Bytes of one of them: Anthropic refuses pictures of more than 5 MiB as Base64.
pub const ATTACHMENT_BYTES: usize = 5 * 1024 * 1024 / 4 * 3;

/// Bytes of all that one request shows: Gemini refuses requests of more than 20 MB, Base64 and texts included.
pub const ATTACHMENTS_BYTES: usize = 12 * 1024 * 1024;

/// Pixels of a side of a picture: Anthropic refuses more.
pub const ATTACHMENT_SIDE: u32 = 8_000;

/// References to assets that are looked up for a prompt, the newest: a few times as many as it can show.
pub const ATTACHMENTS_READ: usize = 3 * ATTACHMENTS;

/// Bytes of memory that the attachments of all model calls of a process take at once.
pub const ATTACHMENTS_MEMORY: usize = 256 * 1024 * 1024;

/// Steps of checking one value against a schema: a second of work at most.
pub const SCHEMA_CHECKS: u64 = 1_000_000;

/// Schemas inside one another while a value is checked: twice the depth of JSON that is read.
pub const SCHEMA_DEPTH: usize = 260;

/// Misfits that one validation lists: more than anybody mends at once.
pub const SCHEMA_ERRORS: usize = 100;

/// Different keys of an object in inferred samples, beyond which it is taken for a map.
pub const INFER_PROPERTIES: usize = 256;

/// Bytes of a secret: private keys and certificates with their chains are below it.
pub const SECRET_BYTES: usize = 64 * 1024;

/// Fewest bytes of a secret: shorter ones occur in ordinary text, which masking would spoil.
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

/// Bytes of one memory entry: a paragraph or two; what is longer is a file.
pub const MEMORY_CONTENT_BYTES: usize = 8 * 1024;

/// Entries of one scope of a memory: all of them are looked at in a turn that shows its topics.
pub const MEMORY_ENTRIES: usize = 1_000;

/// Topics of one memory entry.
pub const MEMORY_TOPICS: usize = 16;

/// Bytes of a topic.
pub const MEMORY_TOPIC_BYTES: usize = 64;

/// Entries that one read of a memory returns when it doesn't say how many.
pub const MEMORY_READ: usize = 50;
/// The same of one search.
pub const MEMORY_SEARCH: usize = 100;
/// Entries that one read or search of a memory returns at most.
pub const MEMORY_LIMIT: usize = 200;

/// Entries that a memory shows by itself where it doesn't say how many.
pub const MEMORY_PRELOAD: usize = 50;
/// Entries that it shows at most, whatever number it says.
pub const MEMORY_PRELOAD_MOST: usize = 200;

/// Characters of the entries that a memory shows by itself where it doesn't say how many.
pub const MEMORY_PRELOAD_CHARS: usize = 12_000;
/// Characters that it shows at most, whatever number it says.
pub const MEMORY_PRELOAD_CHARS_MOST: usize = 50_000;

/// Items that one answer of a provider elsewhere shows: more than a prompt has room for.
pub const REMOTE_ITEMS: usize = 100;

/// Bytes of the reason that a provider elsewhere gives for a refusal: a sentence or two.
pub const REMOTE_SAID_BYTES: usize = 500;

/// Kinds of resources that a venue's configuration adds: each agent's tools and errors name them.
pub const REMOTE_KINDS: usize = 100;

/// Bytes of a `replyTo`: ids of a tenant and a user, encoded, and an inbox; NATS' control lines have 4 KiB.
pub const REPLY_SUBJECT_BYTES: usize = 1_024;

/// Bytes of what one reply of a model says, its text, its reasoning and the arguments of its calls: twice the longest
/// that providers let a model write, 128,000 tokens of 8 bytes.
pub const REPLY_BYTES: usize = 2 * 1024 * 1024;

/// Bytes that one token of a reply stands for at most, where `maxTokens` says how many it has; the longest words of the
/// usual vocabularies.
pub const REPLY_TOKEN_BYTES: usize = 64;

/// Bytes of a reply whatever `maxTokens` says.
pub const REPLY_BYTES_LEAST: usize = 16 * 1024;

/// Bytes of one reply as it comes over the wire: providers wrap each token into some hundred bytes.
pub const REPLY_WIRE_BYTES: usize = 64 * 1024 * 1024;

/// Tokens of a reply of a Claude model where `maxTokens` is absent, because its format requires a number: the most that
/// each of them since 3.7 takes (Opus 4 and 4.1 take no more).
pub const CLAUDE_REPLY_TOKENS: u32 = 32_000;

/// The same of Claude 3.5 and of other models behind Anthropic's format: most of them take as many.
pub const ANTHROPIC_REPLY_TOKENS: u32 = 8_192;

/// The same of Claude 3, which takes no more.
pub const CLAUDE_3_REPLY_TOKENS: u32 = 4_096;

/// The smallest number of tokens that Anthropic takes as the budget of a model's reasoning.
pub const CLAUDE_THINKING_TOKENS_LEAST: u32 = 1_024;

/// Bytes on the wire of one token at most, where `maxTokens` says how many there are.
pub const REPLY_TOKEN_WIRE_BYTES: usize = 2 * 1024;

/// Bytes on the wire of a reply whatever `maxTokens` says: some protocols repeat the request at its end.
pub const REPLY_WIRE_BYTES_LEAST: usize = 4 * 1024 * 1024;

/// Bytes of one piece of a reply on the wire, or of a whole one that doesn't come in pieces.
pub const REPLY_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of what a provider says when it refuses a request; the rest isn't read.
pub const ERROR_BODY_BYTES: usize = 64 * 1024;

/// Bytes of a request to a provider: the largest context with its tools, as JSON.
pub const MODEL_REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of one file of a resource: what a model can write and read within a task.
pub const FILE_BYTES: usize = 256 * 1024;

/// Bytes of a file that one read returns: a tool's result shows them whole.
pub const FILE_READ_BYTES: usize = 24 * 1024;

/// Files of one listing.
pub const FILES_LISTED: usize = 500;

/// Buckets that a request may name.
pub const CONTEXT_IDS: usize = 16;

/// Entries of a bucket that a turn shows.
pub const BUCKET_SHOWN: usize = 20;

/// Entries of a bucket that are kept: those that are shown, and some to look back at.
pub const BUCKET_KEPT: usize = 200;

/// Bytes of one entry of a bucket.
pub const BUCKET_ENTRY_BYTES: usize = 16 * 1024;

/// Crashes of a session since its last commit of which more than their number is kept, the last ones:
/// several times what kills a task by default.
pub const ATTEMPTS_KEPT: usize = 20;

/// Records of what was lost with a server that are kept, one for each process that found something.
pub const LOSSES_KEPT: usize = 1_000;

/// Messages whose subject means nothing that are kept: enough to see who sends them.
pub const STRAYS_KEPT: usize = 1_000;

/// Bytes of such a message's body that are kept.
pub const STRAY_BYTES: usize = 1024;

/// Timers of one agent that still fire: an agent that sets one in every turn is stopped here.
pub const TIMERS_PER_AGENT: usize = 100;

/// Bytes of what a timer sends, its authority and values included: it is written again with every fire.
pub const TIMER_BYTES: usize = 128 * 1024;

/// Bytes of a timer's name.
pub const TIMER_NAME_BYTES: usize = 128;

/// Shortest time between two fires of a timer, and until the first of one that a turn sets: each costs a turn, which
/// may set the next.
pub const TIMER_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Farthest time of a timer: ten years. What is farther away is a wrong unit.
pub const TIMER_FARTHEST: Duration = Duration::from_hours(24 * 3_653);

/// Planned times of one downtime that a timer makes up for: a day of quarters of an hour.
pub const TIMER_CATCH_UP: usize = 100;

/// A timer that is late by no more has not been missed: a sweep on a busy machine takes as long, a restart is longer.
pub const TIMER_LATE: Duration = Duration::from_secs(10);

/// The same behind times that were missed: two sweeps, as nothing else tells it from them.
pub const TIMER_PROMPT: Duration = Duration::from_secs(2);

/// A time that has passed by no more may be named for a timer, and is tried again at a full mailbox: a model's own
/// thinking takes as long.
pub const TIMER_GRACE: Duration = Duration::from_mins(1);

/// How long a timer that fires no more is shown, and stays in the way of a turn that would set it again.
pub const TIMER_KEPT: Duration = Duration::from_hours(24);

/// First and longest pause before a timer is sent to a full mailbox again.
pub const TIMER_BACKOFF: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(5));

/// Sessions of one page of a list.
pub const SESSIONS_PAGE: usize = 200;

/// Turns of one page of a transcript.
pub const TURNS_PAGE: usize = 100;

/// Days for which it is kept what was spent on them: a month's bill can be compared.
pub const SPEND_DAYS: u32 = 40;

/// Jobs under others that one request looks at to add up what they have used; the answer says when there are more.
pub const TREE_JOBS: usize = 1_000;

/// Records that one request of a filtered list looks at; the answer says where to go on.
pub const LIST_LOOKS: usize = 1_000;

/// Bytes of the records of one page of any list; the page ends where they are more, and says where the
/// list goes on. A page of a thousand small records has less.
pub const LIST_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of the records that one request of a filtered list looks at.
pub const LIST_LOOK_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of an input or output that a list shows whole; of a larger one it says the size.
pub const LISTED_VALUE_BYTES: usize = 8 * 1024;

/// Bytes of a text that a list shows of what it lists.
pub const LISTED_TEXT_BYTES: usize = 1024;

/// Characters of a person's note about a call of unknown outcome.
pub const SETTLEMENT_NOTE_CHARS: usize = 2_000;

/// Records of one page of a list at most, and when nothing is said.
pub const LIST_PAGE: usize = 1_000;

/// Bytes of the documents that are read for one value: of a larger one parts can be read.
pub const READ_WHOLE_BYTES: usize = 4 * 1024 * 1024;

/// Newest turns of a session in use that retention leaves, however old they are: its conversation.
pub const TURNS_KEPT: u64 = 50;

/// Bytes of a request's header, and of what is buffered of an answer: a chain of tokens fits four times.
pub const HTTP_HEADER_BYTES: usize = 128 * 1024;

/// Connections beyond the limit that are told so, or asked about health, at once; the oldest is closed for the next.
pub const HTTP_REFUSALS: usize = 32;

/// Longest time for telling one, or for an answer about health.
pub const HTTP_REFUSAL_TIME: Duration = Duration::from_secs(5);

/// How long the rest of a body that nobody wants is waited for, before its connection is closed.
pub const HTTP_DISCARD_TIME: Duration = Duration::from_secs(1);

/// How long a request waits for the memory that it may take; past it the answer is 503.
pub const HTTP_ROOM_TIME: Duration = Duration::from_secs(10);

/// Hundredths of a store's memory from which on no new work is taken: what was accepted needs room to end.
pub const STORE_TIGHT_PERCENT: u64 = 80;
/// How old what is known of a store's memory may be.
pub const STORE_LOOK: Duration = Duration::from_secs(1);
