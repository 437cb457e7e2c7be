//! A server that says back what it was sent, in every encoding, and remembers it.

use crate::support::strict::{self, Judge};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Runs until the test process ends.
pub struct Parrot {
    pub port: u16,
    heard: Arc<Mutex<String>>,
}

impl Parrot {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard: Arc<Mutex<String>> = Arc::default();
        let log = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let log = Arc::clone(&log);
                std::thread::spawn(move || answer(stream, &log));
            }
        });
        Self { port, heard }
    }

    pub fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.place())
    }

    /// Everything that it was sent.
    pub fn heard(&self) -> String {
        self.heard.lock().unwrap().clone()
    }
}

fn request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece).unwrap_or(0);
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
            });
            body.len() >= length.unwrap_or(0)
        });
        if read == 0 || whole {
            return text;
        }
    }
}

/// Every encoding of a text, as a server may answer with it.
pub fn encodings(text: &str) -> Value {
    let percent = text.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
    let component: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_string() } else { format!("%{:02x}", u32::from(c)) })
        .collect();
    json!({
        "plain": text, "quoted": serde_json::to_string(text).unwrap(), "percent": percent, "component": component,
        "base64": BASE64_STANDARD.encode(text), "one": BASE64_STANDARD.encode(format!("u{text}")),
        "two": BASE64_URL_SAFE_NO_PAD.encode(format!("u:{text}!")), "hex": hex::encode(text),
        text: "as a key", "HEX": hex::encode_upper(text)
    })
}

fn answer(mut stream: TcpStream, log: &Mutex<String>) {
    let asked = request(&mut stream);
    log.lock().unwrap().push_str(&asked);
    let path = asked.split(' ').nth(1).unwrap_or_default().to_owned();
    let header = asked.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("authorization").then(|| value.trim().trim_start_matches("Bearer ").to_owned())
    });
    let said = header.unwrap_or_default();
    let close = "connection: close\r\n";
    let whole = |status: &str, kind: &str, more: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{more}content-length: {length}\r\n{close}\r\n{body}")
    };
    let refusal = Judge::for_path(&path).and_then(|judge| {
        let body = asked.split_once("\r\n\r\n").map(|(_, body)| serde_json::from_str(body).unwrap_or_default());
        Some(judge.error_body(&strict::refusal(judge, &body.unwrap_or_default())?).to_string())
    });
    let text = if let Some(refusal) = refusal {
        whole("400 Bad Request", "application/json", "", &refusal)
    } else if path.ends_with("/chat/completions") {
        let delta = |content: &str, end: Value| {
            let choice =
                json!([{"index": 0, "delta": {"role": "assistant", "content": content}, "finish_reason": end}]);
            format!(
                "data: {}\n\n",
                json!({"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choice})
            )
        };
        let (first, second) = said.split_at(said.len() / 2);
        let again = encodings(&said).to_string();
        let pieces = [delta("your key: ", Value::Null), delta(first, Value::Null), delta(second, Value::Null)];
        let body =
            format!("{}{}{}data: [DONE]\n\n", pieces.concat(), delta(&again, Value::Null), delta("", "stop".into()));
        whole("200 OK", "text/event-stream", "", &body)
    } else if let Some(to) = path.strip_prefix("/moved-to/") {
        whole("302 Found", "text/plain", &format!("location: http://{to}/text\r\n"), "")
    } else if path == "/remember" {
        let heard = log.lock().unwrap().clone();
        whole("200 OK", "text/plain", "", &heard)
    } else {
        let body = json!({"request": asked, "said": encodings(&said), "list": [said]});
        whole("200 OK", "application/json", &format!("x-said: {}\r\n", hex::encode(&said)), &body.to_string())
    };
    let _ = stream.write_all(text.as_bytes());
}
