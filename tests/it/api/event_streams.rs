//! The event stream of a job: who comes late, or comes back, misses no text.

use crate::support::http::Server;
use crate::support::nats::{options, shared};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::nats::NatsBus;
use trellis::bus::{Bus, LiveSubject};
use trellis::domain::ids::JobId;

/// Streams that are opened one after another: a race is lost by some of them.
const TRIES: usize = 20;
const PIECES: usize = 60;

macro_rules! on_both_queues {
    ($($case:ident)*) => {
        mod embedded {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    super::$case(super::Server::start().await).await;
                }
            )*
        }
        mod nats {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let Some(url) = super::shared() else { return };
                    let bus = super::NatsBus::open(&super::options(&url)).await.unwrap();
                    super::$case(super::Server::on(super::Arc::new(bus)).await).await;
                }
            )*
        }
    };
}

on_both_queues! {
    a_stream_opened_after_the_end_has_all_text
    a_stream_resumed_after_the_end_has_the_rest
    a_deleted_job_leaves_no_text
    a_stream_opened_after_submission_begins_with_first_text
}

async fn submit(server: &Server) -> JobId {
    let task = server.post("/api/v1/agents/clerk/tasks", json!({"input": "hi"})).await.body(202);
    task["job"].as_str().unwrap().parse().unwrap()
}

async fn write_text(bus: &dyn Bus, job: &JobId, range: std::ops::Range<usize>) {
    let live = LiveSubject::Job(job.clone());
    for n in range {
        bus.signal(&live, Bytes::from(json!({"text": format!("{n} ")}).to_string())).await.unwrap();
    }
}

async fn cancel(server: &Server, job: &JobId) {
    server.put(&format!("/api/v1/jobs/{job}/cancel"), Value::Null).await.body(200);
}

/// Reads a stream to its end.
async fn read_stream(server: &Server, job: &JobId, after: Option<u64>) -> Stream {
    let mut request = server.client.get(format!("{}/api/v1/jobs/{job}/sse", server.url));
    if let Some(after) = after {
        request = request.header("last-event-id", after);
    }
    Stream::parse(&request.send().await.unwrap().text().await.unwrap())
}

#[derive(Debug, Default)]
struct Stream {
    kinds: Vec<String>,
    places: Vec<u64>,
    text: String,
}

impl Stream {
    fn parse(body: &str) -> Self {
        let mut stream = Self::default();
        for line in body.lines() {
            if let Some(kind) = line.strip_prefix("event: ") {
                stream.kinds.push(kind.to_owned());
            } else if let Some(place) = line.strip_prefix("id: ") {
                stream.places.push(place.parse().unwrap());
            } else if let Some(data) = line.strip_prefix("data: ") {
                let data: Value = serde_json::from_str(data).unwrap();
                stream.text.push_str(data["text"].as_str().unwrap_or_default());
            }
        }
        stream
    }
}

fn text(range: std::ops::Range<usize>) -> String {
    range.map(|n| n.to_string() + " ").collect()
}

async fn a_stream_opened_after_the_end_has_all_text(server: Server) {
    server.echo_agent("clerk").await;
    let job = submit(&server).await;
    write_text(&*server.venue.bus, &job, 0..PIECES).await;
    cancel(&server, &job).await;
    for _ in 0..TRIES {
        let stream = read_stream(&server, &job, None).await;
        assert_eq!(stream.text, text(0..PIECES), "{stream:?}");
        assert_eq!(stream.kinds.last().unwrap(), "job-update");
    }
}

async fn a_stream_resumed_after_the_end_has_the_rest(server: Server) {
    server.echo_agent("clerk").await;
    let job = submit(&server).await;
    write_text(&*server.venue.bus, &job, 0..PIECES).await;
    cancel(&server, &job).await;
    let places = read_stream(&server, &job, Some(0)).await.places;
    assert_eq!(places.len(), PIECES);
    for seen in (0..PIECES).step_by(PIECES / TRIES) {
        let stream = read_stream(&server, &job, Some(places[seen])).await;
        assert_eq!(stream.text, text(seen + 1..PIECES), "{stream:?}");
        assert_eq!(stream.kinds.last().unwrap(), "job-update");
    }
    // Nothing is left: the record comes, and nobody waits for text.
    let stream = read_stream(&server, &job, places.last().copied()).await;
    assert_eq!(stream.kinds, ["job-update"]);
}

async fn a_stream_opened_after_submission_begins_with_first_text(server: Server) {
    server.echo_agent("clerk").await;
    for _ in 0..6 {
        let job = submit(&server).await;
        write_text(&*server.venue.bus, &job, 0..3).await;
        let ends = async {
            write_text(&*server.venue.bus, &job, 3..PIECES).await;
            cancel(&server, &job).await;
        };
        let (stream, ()) = tokio::join!(read_stream(&server, &job, None), ends);
        assert_eq!(stream.text, text(0..PIECES), "{stream:?}");
        assert_eq!(stream.kinds.last().unwrap(), "job-update");
        assert!(stream.places.is_sorted() && stream.places.len() == PIECES, "{stream:?}");
    }
}

async fn a_deleted_job_leaves_no_text(server: Server) {
    server.echo_agent("clerk").await;
    let [gone, stays] = [submit(&server).await, submit(&server).await];
    let feed = server.venue.bus.live_feed();
    for job in [&gone, &stays] {
        write_text(&*server.venue.bus, job, 0..3).await;
        while feed.last_piece(job).await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        cancel(&server, job).await;
    }
    server.put(&format!("/api/v1/jobs/{gone}/delete"), Value::Null).await.body(200);
    assert_eq!(feed.last_piece(&gone).await.unwrap(), None);
    assert_eq!(read_stream(&server, &stays, None).await.text, text(0..3));
}
