//! The second fence: what the users of `config/nats-accounts.conf` can and can't do, on that very file.

use crate::support::nats::NatsServer;
use async_nats::jetstream;
use async_nats::{Client, ConnectOptions, Event, HeaderMap};
use futures::StreamExt;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;
use trellis::bus::credentials::NatsFiles;
use trellis::bus::nats::{NatsBus, NatsOptions};
use trellis::bus::{Bus, WhenEmpty, subject};
use trellis::domain::message::{BusMessage, MessageAddress};
use trellis::process::retry::RetryPolicy;
use trellis::process::telemetry::Metrics;

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/nats-accounts.conf");
const LIMIT: Duration = Duration::from_secs(30);

/// A client with what the server complains about.
struct User {
    client: Client,
    complaints: UnboundedReceiver<String>,
}

impl User {
    async fn new(server: &NatsServer, name: &str) -> Self {
        Self::with_inbox(server, name, &format!("trellis.reply.acme.{name}")).await
    }

    async fn with_inbox(server: &NatsServer, name: &str, inbox: &str) -> Self {
        let (tell, complaints) = unbounded_channel();
        let settings = ConnectOptions::new()
            .user_and_password(name.to_owned(), format!("{name}-change-me"))
            .custom_inbox_prefix(inbox)
            .event_callback(move |event| {
                let tell = tell.clone();
                async move {
                    if let Event::ServerError(error) = event {
                        let _ = tell.send(error.to_string());
                    }
                }
            });
        Self { client: settings.connect(server.url()).await.unwrap(), complaints }
    }

    /// Waits for the refusal of a subject.
    async fn refused(&mut self, subject: &str) {
        let told = timeout(LIMIT, self.complaints.recv()).await.expect(subject).unwrap();
        assert!(told.to_lowercase().contains("permissions violation") && told.contains(subject), "{subject}: {told}");
    }

    async fn can_not_publish(&mut self, subject: &str) {
        self.client.publish(subject.to_owned(), "{}".into()).await.unwrap();
        self.refused(subject).await;
    }

    async fn can_not_subscribe(&mut self, subject: &str) {
        let _subscription = self.client.subscribe(subject.to_owned()).await.unwrap();
        self.client.flush().await.unwrap();
        self.refused(subject).await;
    }
}

async fn worker(server: &NatsServer) -> Arc<NatsBus> {
    worker_of(server, 1).await
}

async fn worker_of(server: &NatsServer, partitions: usize) -> Arc<NatsBus> {
    Arc::new(NatsBus::open(&options(server, partitions)).await.unwrap())
}

fn options(server: &NatsServer, partitions: usize) -> NatsOptions {
    NatsOptions {
        url: server.url().replace("nats://", "nats://worker:worker-change-me@"),
        files: NatsFiles::default(),
        prefix: "trellis".into(),
        replicas: 1,
        partitions,
        out_max_age: Duration::from_hours(1),
        owner: None,
        adopt: false,
        reads_only: false,
        monitor: None,
        max_bytes: 1 << 24,
        ack_wait: LIMIT,
        poll: Duration::from_millis(200),
        connect: RetryPolicy::CONNECT,
        metrics: Arc::new(Metrics::new()),
    }
}

/// What a worker gets next, as owners and bodies.
async fn received(worker: &NatsBus) -> Vec<(String, String)> {
    loop {
        let deliveries = worker.receive(10, WhenEmpty::Wait).await.unwrap();
        if !deliveries.is_empty() {
            let mut all = Vec::new();
            for delivery in deliveries {
                delivery.settle.ack().await;
                all.push((delivery.owner.to_string(), String::from_utf8(delivery.body.to_vec()).unwrap()));
            }
            return all;
        }
    }
}

fn completion(user: &str) -> BusMessage {
    let (owner, agent) = (format!("acme/{user}").parse().unwrap(), "helper".parse().unwrap());
    BusMessage {
        to: MessageAddress::Out { owner, agent, job: "j".into() },
        id: None,
        body: json!({"for": user}),
        trace: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_publishes_in_its_own_name_only() {
    let Some(server) = NatsServer::start_as(CONFIG, &[]) else { return };
    let worker = worker(&server).await;
    let mut ann = User::new(&server, "ann").await;
    for subject in [
        "trellis.in.acme.bob.helper.task",
        "trellis.in.acme.bob.helper.message",
        "trellis.in.globex.ann.helper.task",
        "trellis.in.acme.ann.helper.result",
        "trellis.in.acme.ann.helper.wake",
        "trellis.out.acme.ann.helper.j",
        "trellis.sched.acme.ann.00000000000000000000000000000000",
        "trellis.due.acme.ann.00000000000000000000000000000000",
        "trellis.reply.acme.bob.x",
        "_INBOX.x",
        "$JS.API.STREAM.DELETE.TRELLIS",
        "$JS.API.STREAM.MSG.GET.TRELLIS_OUT",
        "$JS.API.CONSUMER.CREATE.TRELLIS_OUT",
    ] {
        ann.can_not_publish(subject).await;
    }
    let context = jetstream::new(ann.client.clone());
    let ack = context.publish("trellis.in.acme.ann.helper.task", "{\"input\":1}".into()).await.unwrap();
    ack.await.expect("her own submission is stored, and she is told");
    // Hers came last: nothing of the rest is before it.
    assert_eq!(received(&worker).await, [("acme/ann".to_owned(), "{\"input\":1}".to_owned())]);
    worker.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_reads_its_own_completions_only() {
    let Some(server) = NatsServer::start_as(CONFIG, &[]) else { return };
    let worker = worker(&server).await;
    let mut ann = User::new(&server, "ann").await;
    for subject in [
        "trellis.out.acme.bob.>",
        "trellis.out.acme.*.>",
        "trellis.out.>",
        "trellis.in.acme.ann.>",
        "trellis.reply.acme.bob.>",
        "_INBOX.>",
        ">",
    ] {
        ann.can_not_subscribe(subject).await;
    }
    let mut own = ann.client.subscribe("trellis.out.acme.ann.>").await.unwrap();
    let mut replies = ann.client.subscribe("trellis.reply.acme.ann.x").await.unwrap();
    ann.client.flush().await.unwrap();
    worker.publish(&completion("bob")).await.unwrap();
    worker.publish(&completion("ann")).await.unwrap();
    let reply = BusMessage {
        to: MessageAddress::Reply("trellis.reply.acme.ann.x".into()),
        id: None,
        body: json!("reply"),
        trace: None,
    };
    worker.publish(&reply).await.unwrap();
    let message = timeout(LIMIT, own.next()).await.unwrap().unwrap();
    assert_eq!(message.subject.as_str(), "trellis.out.acme.ann.helper.j");
    let message = timeout(LIMIT, replies.next()).await.unwrap().unwrap();
    assert_eq!(message.payload, "\"reply\"");
    worker.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_worker_can_only_serve_its_own_queue() {
    let Some(server) = NatsServer::start_as(CONFIG, &[]) else { return };
    let worker = worker(&server).await;
    let operator = jetstream::new(User::with_inbox(&server, "worker", "_INBOX").await.client);
    for queue in ["words", "other"] {
        let config = jetstream::consumer::pull::Config {
            durable_name: Some(queue.to_owned()),
            filter_subject: format!("trellis.jobs.{queue}"),
            ..jetstream::consumer::pull::Config::default()
        };
        operator.create_consumer_on_stream(config, "TRELLIS_JOBS").await.unwrap();
        let to = MessageAddress::Job {
            queue: queue.parse().unwrap(),
            owner: "acme/ann".parse().unwrap(),
            agent: "helper".parse().unwrap(),
        };
        worker.publish(&BusMessage { to, id: None, body: json!({"job": queue}), trace: None }).await.unwrap();
    }
    let mut words = User::with_inbox(&server, "words", "_INBOX.words").await;
    for subject in [
        "trellis.in.acme.ann.helper.task",
        "trellis.in.acme.ann.helper.decide",
        "trellis.jobs.words",
        "trellis.out.acme.ann.helper.j",
        "trellis.ctl.acme.ann",
        "$JS.API.CONSUMER.MSG.NEXT.TRELLIS_JOBS.other",
        "$JS.API.CONSUMER.MSG.NEXT.TRELLIS.workers",
        "$JS.API.CONSUMER.CREATE.TRELLIS_JOBS",
        "$JS.API.STREAM.MSG.GET.TRELLIS_JOBS",
    ] {
        words.can_not_publish(subject).await;
    }
    for subject in ["trellis.jobs.>", "trellis.in.>", "trellis.out.>", "_INBOX.>"] {
        words.can_not_subscribe(subject).await;
    }
    let context = jetstream::new(words.client.clone());
    let consumer: jetstream::consumer::PullConsumer =
        context.get_consumer_from_stream("words", "TRELLIS_JOBS").await.unwrap();
    let mut jobs = consumer.fetch().max_messages(1).expires(LIMIT).messages().await.unwrap();
    let job = timeout(LIMIT, jobs.next()).await.unwrap().unwrap().unwrap();
    let body: serde_json::Value = serde_json::from_slice(&job.payload).unwrap();
    assert_eq!(body["job"], "words");
    job.ack().await.unwrap();
    let ack = context.publish(body["answer"].as_str().unwrap().to_owned(), "{\"status\":1}".into()).await.unwrap();
    ack.await.expect("its answer is stored, and it is told");
    assert_eq!(received(&worker).await, [("acme/ann".to_owned(), "{\"status\":1}".to_owned())]);
    worker.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_comes_in_without_a_name() {
    let Some(server) = NatsServer::start_as(CONFIG, &[]) else { return };
    assert!(async_nats::connect(server.url()).await.is_err());
    let wrong = ConnectOptions::new().user_and_password("ann".into(), "guess".into());
    assert!(wrong.connect(server.url()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_does_not_open_another_subject() {
    let Some(server) = NatsServer::start_as(CONFIG, &[]) else { return };
    let worker = worker(&server).await;
    let mut ann = User::new(&server, "ann").await;
    let context = jetstream::new(ann.client.clone());
    for (name, value) in [("Nats-Schedule", "@at 2020-01-01T00:00:00Z"), ("Nats-Rollup", "all")] {
        let mut headers = HeaderMap::new();
        headers.insert(name, value);
        headers.insert("Nats-Schedule-Target", "trellis.in.acme.bob.helper.task");
        let sent = context.publish_with_headers("trellis.in.acme.ann.helper.task", headers, "{}".into()).await.unwrap();
        assert!(sent.await.is_err(), "{name} is refused by the stream");
    }
    let ack = context.publish("trellis.in.acme.ann.helper.task", "{\"input\":2}".into()).await.unwrap();
    ack.await.unwrap();
    assert_eq!(received(&worker).await, [("acme/ann".to_owned(), "{\"input\":2}".to_owned())]);
    assert!(ann.complaints.try_recv().is_err());
    worker.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_publish_fence_alone_does_not_protect_reply_subjects() {
    let Some(server) = NatsServer::start_as(CONFIG, &[]) else { return };
    let worker = worker(&server).await;
    let ann = User::new(&server, "ann").await;
    let (own, bobs) = ("trellis.in.acme.ann.helper.task", "trellis.in.acme.bob.helper.task");
    ann.client.publish_with_reply(own, bobs, "{\"input\":3}".into()).await.unwrap();
    ann.client.flush().await.unwrap();
    let mut all = received(&worker).await;
    while all.len() < 2 {
        all.extend(received(&worker).await);
    }
    // The server's acknowledgement, in bob's queue. It has no token, and isn't a submission.
    let (owner, body) = all.iter().find(|(owner, _)| owner == "acme/bob").unwrap();
    assert!(trellis::venue::ingress::parse(body.as_bytes()).is_err(), "{owner} {body}");
    worker.close().await;
}

/// The server asks for the right to publish to where its mapping leads.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_keep_users_to_their_own_names() {
    let shipped = std::fs::read_to_string(CONFIG).unwrap().replace("include \"nats.conf\"", "");
    let plain = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/config/nats.conf")).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{plain}\n{shipped}\n{}\n", subject::server_mapping("trellis", 2))).unwrap();
    let Some(server) = NatsServer::start_as(file.path().to_str().unwrap(), &[]) else { return };
    let worker = worker_of(&server, 2).await;
    let settings = worker.settings().await.unwrap();
    let row = settings.iter().find(|setting| setting.name == "nats partitions").unwrap();
    assert_eq!(row.problem, None, "{row:?}");
    let mut ann = User::new(&server, "ann").await;
    for other in
        ["trellis.in.acme.bob.helper.task", "trellis.in.acme.ann.helper.result", "trellis.in.acme.ann.helper.wake"]
    {
        ann.client.publish(other, "{}".into()).await.unwrap();
        ann.refused(other.trim_start_matches("trellis.in.")).await;
    }
    ann.can_not_publish("trellis.part.0.acme.bob.helper.task").await;
    ann.can_not_publish("trellis.part.0.acme.ann.helper.wake").await;
    let context = jetstream::new(ann.client.clone());
    context.publish("trellis.in.acme.ann.helper.task", r#"{"n":1}"#.into()).await.unwrap().await.unwrap();
    assert_eq!(received(&worker).await, [("acme/ann".to_owned(), r#"{"n":1}"#.to_owned())]);
    let words = User::with_inbox(&server, "words", "_INBOX.words").await;
    let answered = jetstream::new(words.client.clone()).publish("trellis.in.acme.ann.helper.result", "{}".into()).await;
    answered.unwrap().await.unwrap();
    assert_eq!(received(&worker).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_right_is_told_which_it_is() {
    let text = std::fs::read_to_string(CONFIG).unwrap();
    let start = |rights: &str| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(CONFIG.replace("nats-accounts", "nats"), dir.path().join("nats.conf")).unwrap();
        let file = dir.path().join("accounts.conf");
        std::fs::write(&file, text.replace("\"$JS.API.>\", \"$JS.ACK.>\"", rights)).unwrap();
        NatsServer::start_as(&file.display().to_string(), &[])
    };
    let said = "the server doesn't let this user publish to `$JS.API";
    let Some(server) = start("\"$JS.ACK.>\"") else { return };
    let error = timeout(LIMIT, NatsBus::open(&options(&server, 1))).await.unwrap().err().unwrap().to_string();
    assert!(error.contains("stream `TRELLIS`") && error.contains(&format!("{said}.STREAM.INFO.TRELLIS`")), "{error}");

    let Some(server) = start("\"$JS.API.STREAM.>\", \"$JS.API.CONSUMER.CREATE.>\", \"$JS.API.CONSUMER.INFO.>\"") else {
        return;
    };
    let bus = NatsBus::open(&options(&server, 1)).await.unwrap();
    let error = bus.receive(1, WhenEmpty::Wait).await.err().unwrap().to_string();
    assert!(error.contains(&format!("{said}.CONSUMER.MSG.NEXT.TRELLIS.workers`")), "{error}");
}
