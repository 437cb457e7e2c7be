//! What the code may not contain: the rules that are stated as absences, each violation with its place.

mod arrows;
mod names;
mod score;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};

const FILE_LINES: usize = 500;
const SEAM_METHODS: usize = 14;
const FUNCTION_LINES: usize = 70;

/// Words that mean time, randomness, concurrency or I/O.
const NOT_IN_DOMAIN: [&str; 19] = [
    "tokio",
    "futures",
    "async",
    "await",
    "Instant",
    "SystemTime",
    "Zoned::now",
    "Timestamp::now",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::thread",
    "rand",
    "new_v4",
    "now_v7",
    "tracing",
    "println",
];

/// Where one of them means something else.
const IN_MEMORY: [(&str, &str, &str); 1] =
    [("src/domain/canonical.rs", "std::io", "the words of a formatter of serde_json, which writes to memory")];

/// Concrete backends, and where they may be named besides `src/app.rs`.
const BACKENDS: [(&str, &[&str]); 4] = [
    ("RedisStore", &["src/platform/store/redis"]),
    ("EmbeddedStore", &["src/platform/store/embedded", "src/platform/bus/embedded"]),
    ("NatsBus", &["src/platform/bus/nats"]),
    ("EmbeddedBus", &["src/platform/bus/embedded"]),
];

/// Where the machine may be asked for the time, and why there.
const TIME_AT: [(&str, &str); 12] = [
    ("src/platform/process/clock.rs", "it is the clock"),
    ("src/main.rs", "a command's own time"),
    ("src/cli/", "a command's own time"),
    ("src/bench/", "it measures the machine"),
    ("src/platform/bus/nats/", "limits of calls over the network, which nothing injected can hurry"),
    ("src/platform/bus/rights.rs", "how old a word of the server is, which nothing injected can renew"),
    ("src/platform/store/redis/attempts.rs", "limits of calls over the network, which nothing injected can hurry"),
    ("src/platform/store/redis/sentinel.rs", "how old an answer over the network is, which nothing injected can renew"),
    ("src/platform/store/embedded/clock.rs", "it finds out whether the injected clock was set, by one that can't be"),
    ("src/platform/process/retry.rs", "how long a connection has been tried, for the log"),
    ("src/platform/process/shutdown.rs", "the process ends in time though an injected clock stand still"),
    ("src/http/sse.rs", "paces the looks at a job; each look decides by what the store says"),
];

/// Who may choose the machine's clock; everybody else is given one.
const CLOCK_AT: [&str; 7] = [
    "src/platform/store/embedded/reclaim.rs",
    "src/platform/store/embedded/clock.rs",
    "src/platform/process/clock.rs",
    "src/app.rs",
    "src/platform/bus/nats/connect.rs",
    "src/cli/",
    "src/bench/",
];

/// Who may read JSON or TOML by itself, and what; all others read by `domain::decode`.
const PARSES: [(&str, &str); 15] = [
    ("src/domain/decode/", "it is the entrance"),
    ("src/domain/agent/schema.rs", "built in"),
    ("src/domain/context/record/", "written by the venue"),
    ("src/platform/bus/embedded", "written by the venue"),
    ("src/platform/store/embedded/", "written by the venue"),
    ("src/platform/bus/nats/alarms.rs", "written by the venue"),
    ("src/venue/resources/memory.rs", "written by the venue"),
    ("src/venue/jobs/mod.rs", "written by the venue; a field that may be large stays text"),
    ("src/http/sse.rs", "written by the venue, for a client"),
    ("src/platform/config/", "reads key by key and names each"),
    ("src/model/rules.rs", "keeps TOML errors from showing a line of the file"),
    ("src/model/json5.rs", "single words"),
    ("src/model/mock_server/", "a server for tests"),
    ("src/cli/", "a client: its own files and what its queue says"),
    ("src/bench/", "measures this machine"),
];

/// Types that serde reads through a buffer that takes lists for structs, and why no stranger's list gets there.
const BUFFERED: [(&str, &str); 31] = [
    ("src/domain/decode/place.rs", "only written"),
    ("src/domain/context/ledger.rs", "rows of a ledger are written by the venue alone"),
    ("src/venue/auth/jwks.rs", "a text or a list of texts"),
    ("src/domain/token/claims.rs", "a text or a list of texts"),
    ("src/domain/resource/memory/settings.rs", "a word or a list of texts"),
    ("src/domain/resource/mod.rs", "the rest is a map of values, read again by its provider"),
    ("src/domain/scope/mod.rs", "read by hand"),
    ("src/domain/agent/tool.rs", "read by `decode::typed`"),
    ("src/domain/agent/entry.rs", "read by `decode::typed`"),
    ("src/domain/event.rs", "stored; of a submission only under the seal"),
    ("src/domain/secret/record.rs", "stored"),
    ("src/domain/budget.rs", "stored"),
    ("src/domain/chat.rs", "stored"),
    ("src/domain/call.rs", "stored"),
    ("src/domain/job.rs", "stored"),
    ("src/domain/lattice/layout.rs", "stored"),
    ("src/domain/timer/mod.rs", "stored"),
    ("src/domain/approval/", "stored"),
    ("src/domain/agent.rs", "stored"),
    ("src/domain/cap/mod.rs", "stored"),
    ("src/domain/dead.rs", "stored"),
    ("src/domain/turn/recorded_reply.rs", "stored"),
    ("src/domain/outcome.rs", "stored"),
    ("src/domain/invocation.rs", "stored"),
    ("src/domain/job/watch.rs", "stored"),
    ("src/domain/rate.rs", "stored"),
    ("src/domain/worker_registry.rs", "stored"),
    ("src/domain/session.rs", "stored"),
    ("src/view/", "answers of a venue, which only its client reads"),
    ("src/cli/agent/apply.rs", "only written"),
    ("src/cli/bulk.rs", "only written"),
];

struct Source {
    /// Relative to the crate, with `/`.
    path: String,
    text: String,
    /// Lines before the tests at its end; 0 when all of it is tests.
    production: usize,
}

impl Source {
    fn read(root: &Path, path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let path = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        let lines: Vec<&str> = text.lines().collect();
        let is_test = path.starts_with("tests/")
            || path.contains("/tests/")
            || path.ends_with("/tests.rs")
            || path.ends_with("_tests.rs");
        let tests = lines.windows(2).position(|two| two[0] == "#[cfg(test)]" && two[1].ends_with('{'));
        let production = if is_test { 0 } else { tests.unwrap_or(lines.len()) };
        Self { path, text, production }
    }

    /// Numbered lines of production code without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().take(self.production);
        lines.map(|(at, line)| (at + 1, line.split("//").next().unwrap_or_default()))
    }

    fn at(&self, line: usize, what: impl Display) -> String {
        format!("{}:{line}: {what}", self.path)
    }
}

fn sources() -> Vec<Source> {
    files("rs")
}

/// The sources of a language.
fn files(extension: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> = Vec::new();
    let mut folders = vec![root.join("src"), root.join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == extension) {
                files.push(path);
            }
        }
    }
    files.sort();
    assert!(files.len() > 20, "the sources are found");
    files.iter().map(|file| Source::read(root, file)).collect()
}

fn report(violations: &[String]) {
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

/// Whether `line` has `word` with nothing of a name beside it.
fn has_word(line: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(inside)
            && !line[at + word.len()..].chars().next().is_some_and(inside)
    })
}

#[test]
fn domain_uses_no_clock_socket_or_backend() {
    let mut violations = Vec::new();
    for source in sources().iter().filter(|source| source.path.starts_with("src/domain/")) {
        for (number, line) in source.code() {
            let means = |word: &str| IN_MEMORY.iter().any(|(home, w, _why)| source.path == *home && *w == word);
            let words = NOT_IN_DOMAIN.iter().filter(|word| has_word(line, word) && !means(word));
            violations.extend(words.map(|word| source.at(number, format!("`{word}` in the core"))));
        }
    }
    report(&violations);
}

#[test]
fn only_the_composition_root_names_a_backend() {
    let mut violations = Vec::new();
    for source in sources().iter().filter(|source| !source.path.starts_with("src/app")) {
        for (backend, homes) in BACKENDS {
            if homes.iter().any(|home| source.path.starts_with(home)) {
                continue;
            }
            let named = source.code().filter(|(_, line)| has_word(line, backend));
            violations.extend(named.map(|(number, _)| source.at(number, format!("names `{backend}`"))));
        }
    }
    report(&violations);
}

#[test]
fn time_is_asked_of_the_clock_that_was_injected() {
    let mut violations = Vec::new();
    for source in sources() {
        let asks = !TIME_AT.iter().any(|(home, _why)| source.path.starts_with(home));
        let chooses = !CLOCK_AT.iter().any(|home| source.path.starts_with(home));
        for (number, line) in source.code() {
            if asks && line.contains("::now()") {
                violations.push(source.at(number, "asks the machine for the time, expected a `Clock`"));
            }
            if chooses && line.contains("Clock::system()") {
                violations.push(source.at(number, "chooses a clock, expected to be given one"));
            }
        }
    }
    report(&violations);
}

#[test]
fn every_file_opens_with_what_it_is_for_and_is_short() {
    let mut violations = Vec::new();
    for source in files("rs").into_iter().chain(files("lua")) {
        if !source.text.starts_with("//! ") && !source.text.starts_with("-- ") {
            violations.push(source.at(1, "expected a sentence"));
        }
        let lines = source.text.lines().count();
        if lines > FILE_LINES {
            violations.push(source.at(lines, format!("expected at most {FILE_LINES} lines, got {lines}")));
        }
    }
    report(&violations);
}

#[test]
fn functions_are_short() {
    let mut violations = Vec::new();
    for source in files("rs").into_iter().chain(files("lua")) {
        let lines: Vec<&str> = source.text.lines().collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| begins_function(line)) {
            let indent = &line[..line.len() - line.trim_start().len()];
            let signature =
                lines[at..].iter().position(|line| line.ends_with(['{', ';', '}', ')'])).unwrap_or_default();
            if lines[at + signature].ends_with([';', '}']) {
                continue;
            }
            let ends =
                |line: &&str| line.strip_prefix(indent).is_some_and(|rest| rest == "}" || rest.starts_with("end"));
            let end = lines[at..].iter().position(ends);
            let length = end.map_or(lines.len() - at, |end| end + 1);
            if length > FUNCTION_LINES {
                let what = format!("expected at most {FUNCTION_LINES} lines in a function, got {length}");
                violations.push(source.at(at + 1, what));
            }
        }
    }
    report(&violations);
}

#[test]
fn seams_are_small() {
    let mut violations = Vec::new();
    for source in sources() {
        let lines: Vec<&str> = source.text.lines().take(source.production).collect();
        for (at, _) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("pub trait ")) {
            let body = lines[at..].iter().take_while(|line| **line != "}");
            let methods = body.filter(|line| begins_function(line)).count();
            if methods > SEAM_METHODS {
                let what = format!("expected at most {SEAM_METHODS} methods in a trait, got {methods}");
                violations.push(source.at(at + 1, what));
            }
        }
    }
    report(&violations);
}

fn begins_function(line: &str) -> bool {
    // Of Lua.
    if line.trim_start().starts_with("local function ") || line.starts_with("register(") && line.contains("function(") {
        return true;
    }
    let mut words = line.split_whitespace();
    let before = ["pub", "const", "async", "pub(crate)", "pub(super)"];
    words.find(|word| !before.contains(word) && !word.starts_with("pub(in")) == Some("fn")
}

#[test]
fn foreign_json_is_decoded_only_by_domain_decode() {
    let mut violations = Vec::new();
    for source in sources() {
        let parses = PARSES.iter().any(|(home, _why)| source.path.starts_with(home));
        let buffers = BUFFERED.iter().any(|(home, _why)| source.path.starts_with(home));
        for (number, line) in source.code() {
            let reads = ["serde_json::from_", "toml::from_", "<toml::Table>", ": toml::Table"];
            if !parses && reads.iter().any(|read| line.contains(read)) {
                violations.push(source.at(number, "reads JSON or TOML by itself, expected `domain::decode`"));
            }
            let serde = line.trim_start().starts_with("#[serde(");
            let buffered = ["flatten", "untagged", "tag = "].iter().any(|word| line.contains(word));
            if serde && buffered && !buffers && !source.path.starts_with("src/bench/") {
                violations
                    .push(source.at(number, "serde takes a list for a struct here; expected a reason in `BUFFERED`"));
            }
        }
    }
    report(&violations);
}

/// What reads a page of the store behind a place, and what a write of documents has answered.
const BY_HAND: [&str; 5] = ["store.scan(", "store.sessions(", "store.owners(", "store.page(", "WriteOutcome::"];

/// Arguments of a read of the first page.
const FIRST_PAGE: [&str; 3] = [" None, false,", " None, true,", ", None, SESSIONS)"];

/// Who does so in a loop of his own, and why neither `Pages` nor `edit` does it for him.
const LOOPS: [(&str, &str); 2] = [
    ("src/venue/assets.rs", "an upload is of many writes, and takes all of them away where one finds no room"),
    ("src/venue/agents/copies.rs", "leaves out what somebody has written over, and doesn't read it"),
];

#[test]
fn only_the_store_loops_over_versions_and_cursors() {
    let (mut violations, mut needed) = (Vec::new(), BTreeSet::new());
    for source in sources().iter().filter(|source| !source.path.starts_with("src/platform/store/")) {
        // Loops around the line, by how far they are indented.
        let mut loops: Vec<usize> = Vec::new();
        for (number, line) in source.code().filter(|(_, line)| !line.trim().is_empty()) {
            let indent = line.len() - line.trim_start().len();
            if line.trim_start().starts_with('}') {
                loops.retain(|around| *around < indent);
            }
            let is_first = FIRST_PAGE.iter().any(|arguments| line.contains(arguments));
            let calls = BY_HAND.iter().find(|call| line.contains(**call));
            if let Some(call) = calls.filter(|_| !loops.is_empty() && !is_first) {
                match LOOPS.iter().find(|(home, _why)| *home == source.path) {
                    Some((home, _)) => drop(needed.insert(*home)),
                    None => {
                        violations.push(source.at(number, format!("`{call}` in a loop, expected `edit` or `Pages`")));
                    }
                }
            }
            if ["loop {", "for ", "while "].iter().any(|word| line.trim_start().starts_with(word)) {
                loops.push(indent);
            }
        }
    }
    let gone = LOOPS.iter().filter(|(home, _)| !needed.contains(home));
    violations.extend(gone.map(|(home, _)| format!("{home}: needs no exception any more")));
    report(&violations);
}

#[test]
fn nothing_is_left_for_later() {
    let mut violations = Vec::new();
    // Put together, so that this file doesn't have them.
    let later = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("X", "XX"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
    ];
    let skipped = concat!("#[ig", "nore");
    for source in sources() {
        for (at, line) in source.text.lines().enumerate() {
            let left = later.iter().find(|word| has_word(line, word) || (word.ends_with('(') && line.contains(*word)));
            violations.extend(left.map(|word| source.at(at + 1, format!("`{word}`"))));
            if line.trim_start().starts_with(skipped) {
                violations.push(source.at(at + 1, "a test that is not run"));
            }
        }
    }
    report(&violations);
}

#[test]
fn errors_are_handled_outside_tests() {
    let mut violations = Vec::new();
    for source in sources() {
        let poison = source.code().filter(|(_, line)| has_word(line, "PoisonError"));
        violations.extend(poison.map(|(number, _)| source.at(number, "a lock with poison, expected `parking_lot`")));
        let unwraps = source.code().filter(|(_, line)| line.contains(".unwrap()"));
        violations.extend(unwraps.map(|(number, _)| source.at(number, "`.unwrap()` outside tests")));
    }
    report(&violations);
}

#[test]
fn connections_are_retried_in_one_file() {
    let mut violations = Vec::new();
    for source in sources().iter().filter(|source| source.path != "src/platform/process/retry.rs") {
        let uses = source.code().filter(|(_, line)| line.contains("backoff::"));
        violations.extend(uses.map(|(number, _)| source.at(number, "`backoff` outside src/platform/process/retry.rs")));
    }
    report(&violations);
}

/// Where lines are written that models read.
const WRITERS: [&str; 4] = ["src/domain/", "src/venue/", "src/ops/", "src/worker/"];

/// Texts there that begin with a bracket and are no line of the venue, and why.
const NO_LINE: [(&str, &str); 5] = [
    ("[{}]\", foreign::one_line", "what notes begin with is learned from prompts by `context/tests/forged_lines.rs`"),
    ("[{error}]", "stands for what a model said, and is quoted as that"),
    ("[{} (source: {})]", "a type of the library that no prompt is made with"),
    ("[DONE]", "the end of a stream of events"),
    ("[Task \", lines::MESSAGE", "how records of before began, which is read and not written"),
];

#[test]
fn every_line_of_the_venue_is_made_by_its_head() {
    let (mut violations, mut excepted) = (Vec::new(), 0);
    for source in sources() {
        let place = &source.path;
        let is_writer = WRITERS.iter().any(|folder| place.starts_with(folder));
        if !is_writer || place.contains("tests") || place == "src/domain/lines.rs" {
            continue;
        }
        for (at, line) in source.code() {
            let begins = ["\"[", "\\n[", "\"## ", "\\n## "].iter().flat_map(|begin| line.match_indices(begin));
            for (from, begin) in begins {
                let head = &line[from + begin.trim_end_matches(['[', '#', ' ']).len()..];
                let is_text = head.starts_with('#') || head[1..].starts_with(|c: char| c.is_alphabetic() || c == '{');
                if NO_LINE.iter().any(|(known, _)| head.starts_with(known)) {
                    excepted += 1;
                } else if is_text {
                    violations.push(source.at(at, format!("`{head}`, expected a head of `domain::lines`")));
                }
            }
        }
    }
    report(&violations);
    assert!(excepted >= NO_LINE.len(), "{excepted} exceptions are found");
}

#[test]
fn no_text_has_the_indentation_of_its_code() {
    let is_text = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || matches!(c, ',' | ';' | '.' | '`'));
    let mut violations = Vec::new();
    for source in sources() {
        for (at, line) in source.code() {
            let line = line.trim();
            let gaps = line.match_indices("         ").map(|(from, _)| (&line[..from], line[from..].trim_start()));
            let inside =
                gaps.filter(|(before, after)| is_text(before.chars().next_back()) && is_text(after.chars().next()));
            violations.extend(inside.map(|(_, after)| source.at(at, format!("blanks before `{after}`"))));
        }
    }
    report(&violations);
}
