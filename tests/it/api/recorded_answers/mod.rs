//! Answers of the API, recorded: a change of one is a decision, made with `TRELLIS_RECORD_ANSWERS=1`, which writes them
//! anew.

use crate::support::api_calls::{CallNames, closing_site, request};
use crate::support::cli::Up;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const CALLS: &str = include_str!("calls.txt");

/// Jobs that ask a person begin with a delay: the answer to their submission tells the status of the first turn.
const RULES: &str = r#"
[[rule]]
when = { agent = "payer", turn = 1 }
then = { delay_ms = 250, calls = [{ tool = "pay", arguments = { path = "w/paid", value = "{{input}}" } }] }

[[rule]]
when = { agent = "asker", turn = 1 }
then = { delay_ms = 250, calls = [{ tool = "human_ask", arguments = { title = "The order", asks = [{ id = "size", type = "choice", prompt = "Which?", choices = ["S", "L"] }] } }] }

[[rule]]
when = { agent = "poster", turn = 1 }
then = { calls = [{ tool = "http_post", arguments = { url = "http://127.0.0.1:SITE/", body = {} } }] }

[[rule]]
when = { agent = "waker", turn = 1 }
then = { calls = [{ tool = "agent_wake", arguments = { after = "50m" } }] }

[[rule]]
when = { agent = "keeper", turn = 1 }
then = { calls = [{ tool = "memory_write", arguments = { content = "remember me" } }] }

[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "echo", input = "for the boss" } }] }

[[rule]]
when = { agent = "reader", turn = 1 }
then = { text = "I read.", calls = [{ tool = "lattice_read", arguments = { path = "w/map" } }] }

[[rule]]
when = { agent = "breaker" }
then = { fault = "bad_request" }

[[rule]]
then = { text = "done" }
"#;

/// Answers of a call that is repeated until it stays the same are this far apart.
const PAUSE: Duration = Duration::from_millis(150);

/// Puts a name in place of what no two runs have in common: ids, times, durations, ports.
#[derive(Default)]
struct Masks {
    /// Names of ids, in the order in which they came.
    ids: BTreeMap<String, usize>,
}

impl Masks {
    /// The text with each UUID and each run of 16 hexadecimal digits or more as `#N`, and each number of 12 digits or more
    /// as `<time>`.
    fn text(&mut self, text: &str) -> String {
        let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        let (mut out, mut rest) = (String::new(), text);
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|letter| is_of_word(letter) != is_of_word(first)).unwrap_or(rest.len());
            let (run, others) = rest.split_at(end);
            if run.len() == 36 && uuid::Uuid::try_parse(run).is_ok() {
                out.push_str(&self.id(run));
            } else {
                let words: Vec<_> = run.split('-').map(|word| self.word(word)).collect();
                out.push_str(&words.join("-"));
            }
            rest = others;
        }
        mask_times(&out)
    }

    fn id(&mut self, id: &str) -> String {
        let next = self.ids.len() + 1;
        format!("#{}", self.ids.entry(id.to_owned()).or_insert(next))
    }

    fn word(&mut self, word: &str) -> String {
        let is_number = word.len() >= 12 && word.bytes().all(|byte| byte.is_ascii_digit());
        let is_id = word.len() >= 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_number {
            return "<time>".to_owned();
        }
        if is_id {
            return self.id(word);
        }
        word.to_owned()
    }

    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Number(number) if number.as_f64().is_some_and(|number| number >= 1e11) => "<time>".into(),
            Value::Array(all) => all.iter().map(|one| self.value(one)).collect(),
            // What an embedded store takes on the disk.
            Value::Object(all) if all.get("value").is_some_and(is_size) => self.value(&without_value(all)),
            Value::Object(all) => {
                let one = |(key, value): (&String, &Value)| {
                    let is_own = value.is_number() && MEASURED.contains(&key.as_str());
                    let value = if is_own { "<measured>".into() } else { self.value(value) };
                    (self.text(key), value)
                };
                Value::Object(all.iter().map(one).collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }
}

fn is_size(value: &Value) -> bool {
    value.as_str().and_then(|text| text.split_once(" bytes")).is_some_and(|(n, _)| n.parse::<u64>().is_ok())
}

fn without_value(setting: &Map<String, Value>) -> Value {
    let mut setting = setting.clone();
    setting.insert("value".to_owned(), "<measured>".into());
    Value::Object(setting)
}

/// Keys of numbers that are measured.
const MEASURED: [&str; 26] = [
    "took",
    "ms",
    "millis",
    "duration",
    "age",
    "uptime",
    "bytes",
    "free",
    "behind",
    "wall",
    "queued",
    "latency",
    "seconds",
    "memory",
    "cpu",
    "calls_in_flight",
    "busy",
    "lag",
    "pid",
    "port",
    "sequence",
    "firstByte",
    "first",
    "elapsed",
    "totalBytes",
    "used",
];

/// `2026-01-02T03:04:05.678Z` as `<time>`, and dates alone as `<day>`.
fn mask_times(text: &str) -> String {
    let instant = regex_lite(text, "dddd-dd-ddTdd:dd:dd", "<time>");
    regex_lite(&instant, "dddd-dd-dd", "<day>")
}

/// Replaces what has the form of `pattern`, in which `d` is a digit, with what follows of a fraction and a `Z`.
fn regex_lite(text: &str, pattern: &str, name: &str) -> String {
    let (letters, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    let (mut out, mut at) = (String::new(), 0);
    while at < letters.len() {
        let fits = letters.len() - at >= pattern.len()
            && letters[at..].iter().zip(&pattern).all(|(letter, of)| match of {
                'd' => letter.is_ascii_digit(),
                other => letter == other,
            });
        if !fits {
            out.push(letters[at]);
            at += 1;
            continue;
        }
        at += pattern.len();
        while letters.get(at).is_some_and(|letter| letter.is_ascii_digit() || matches!(letter, '.' | 'Z')) {
            at += 1;
        }
        out.push_str(name);
    }
    out
}

struct Story {
    up: Up,
    client: reqwest::Client,
    names: CallNames,
    masks: Masks,
}

impl Story {
    async fn call(&self, call: &str) -> Value {
        let call = self.names.fill(call);
        let response = request(&self.client, &self.up.url, &call).send().await.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        let answer = serde_json::from_str(&text).unwrap_or(Value::String(text));
        json!({"status": status, "answer": answer})
    }

    /// Calls until three answers in a row are the same.
    async fn call_until_still(&self, call: &str) -> Value {
        let mut answers = vec![self.call(call).await];
        while answers.len() < 200 {
            tokio::time::sleep(PAUSE).await;
            answers.push(self.call(call).await);
            if answers.len() > 3 && answers[answers.len() - 4..].windows(2).all(|pair| pair[0] == pair[1]) {
                break;
            }
        }
        answers.pop().unwrap()
    }

    fn keep(&mut self, name: &str, answer: &Value) {
        let items = &answer["items"];
        match name {
            "approvals" => {
                let open = items.as_array().into_iter().flatten().find(|one| one["answer"].is_null());
                if let Some(id) = open.and_then(|one| one["id"].as_str()) {
                    self.names.0.insert("approval".to_owned(), id.to_owned());
                }
            }
            "outcome" => {
                drop(self.names.0.insert(name.to_owned(), items[0]["id"].as_str().unwrap_or_default().to_owned()));
            }
            _ => {}
        }
        self.names.keep(name, answer);
    }
}

async fn tell() -> Vec<(String, Value)> {
    let dir = tempfile::tempdir().unwrap();
    let site = closing_site();
    std::fs::write(dir.path().join("story.rules"), RULES.replace("SITE", &site.to_string())).unwrap();
    let allowed = format!("http_client.allow_hosts=127.0.0.1:{site}");
    let up = Up::start_in(dir, &[&allowed, "http_client.allow_private=true"]);
    let mut story = Story { up, client: reqwest::Client::new(), names: CallNames::default(), masks: Masks::default() };
    let workers = story.call("worker/list {}").await;
    let own_names = [
        (workers["answer"]["workers"][0]["name"].as_str().unwrap().to_owned(), "WORKER"),
        (story.up.url.rsplit(':').next().unwrap().to_owned(), "PORT"),
        (site.to_string(), "SITE"),
    ];
    let mut told = Vec::new();
    for line in CALLS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, call) = match line.split_once(": ") {
            Some((name, call)) if !name.contains([' ', '/']) => (name, call),
            _ => ("", line),
        };
        let answer = match call.strip_prefix("~ ") {
            Some(call) => story.call_until_still(call).await,
            None => story.call(call).await,
        };
        if !name.is_empty() {
            story.keep(name, &answer["answer"]);
        }
        let shown = own_names.iter().fold(answer.to_string(), |shown, (own, name)| shown.replace(own.as_str(), name));
        let shown = serde_json::from_str(&shown).unwrap();
        told.push((line.to_owned(), story.masks.value(&shown)));
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_as_recorded() {
    let told: Vec<Value> = tell().await.into_iter().map(|(call, answer)| json!({"call": call, "is": answer})).collect();
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/api/recorded_answers/answers.json");
    if std::env::var_os("TRELLIS_RECORD_ANSWERS").is_some() {
        std::fs::write(&file, serde_json::to_string_pretty(&told).unwrap() + "\n").unwrap();
        return;
    }
    let recorded: Vec<Value> = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let pairs = told.iter().zip(&recorded).filter(|(now, before)| now != before);
    let changed: Vec<_> = pairs.map(|(now, before)| format!("now: {now:#}\nbefore: {before:#}")).collect();
    assert!(changed.is_empty(), "{} of {} answers are others:\n{}", changed.len(), told.len(), changed.join("\n"));
    assert_eq!(told.len(), recorded.len());
}
