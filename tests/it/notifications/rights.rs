//! What the users of `config/nats-accounts.conf` may do with events.

use crate::support::nats::NatsServer;
use async_nats::ConnectOptions;
use futures::StreamExt;
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;
use trellis::bus::Bus;
use trellis::bus::nats::{NatsBus, NatsOptions};
use trellis::domain::message::{BusMessage, MessageAddress};
use trellis::domain::notification::NotificationKind;

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/nats-accounts.conf");
const LIMIT: Duration = Duration::from_secs(30);

fn event(user: &str) -> BusMessage {
    let (owner, agent) = (format!("acme/{user}").parse().unwrap(), "helper".parse().unwrap());
    let to = MessageAddress::Event { owner, agent, kind: NotificationKind::JobDead };
    BusMessage { to, id: Some(format!("id-{user}")), body: json!({"for": user}), trace: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_reads_its_own_events_and_publishes_none() {
    let Some(server) = NatsServer::start_as(CONFIG, &[]) else { return };
    let options = NatsOptions {
        url: server.url().replace("nats://", "nats://worker:worker-change-me@"),
        prefix: "trellis".into(),
        ..crate::support::nats::options(&server.url())
    };
    let worker = NatsBus::open(&options).await.unwrap();
    let (tell, mut complaints) = tokio::sync::mpsc::unbounded_channel();
    let settings = ConnectOptions::new()
        .user_and_password("ann".to_owned(), "ann-change-me".to_owned())
        .custom_inbox_prefix("trellis.reply.acme.ann")
        .event_callback(move |event| {
            let tell = tell.clone();
            async move {
                if let async_nats::Event::ServerError(error) = event {
                    let _ = tell.send(error.to_string());
                }
            }
        });
    let ann = settings.connect(server.url()).await.unwrap();
    let mut own = ann.subscribe("trellis.events.acme.ann.>").await.unwrap();
    ann.flush().await.unwrap();
    for subject in ["trellis.events.acme.bob.>", "trellis.events.acme.*.>", "trellis.events.>"] {
        let _subscription = ann.subscribe(subject).await.unwrap();
        ann.flush().await.unwrap();
        let told = timeout(LIMIT, complaints.recv()).await.expect(subject).unwrap();
        assert!(told.contains(subject), "{told}");
    }
    let subject = "trellis.events.acme.ann.helper.job-dead";
    ann.publish(subject, "{}".into()).await.unwrap();
    let told = timeout(LIMIT, complaints.recv()).await.expect(subject).unwrap();
    assert!(told.contains(subject), "{told}");
    worker.publish(&event("bob")).await.unwrap();
    worker.publish(&event("ann")).await.unwrap();
    // A repetition under the same id is stored once.
    worker.publish(&event("ann")).await.unwrap();
    let message = timeout(LIMIT, own.next()).await.unwrap().unwrap();
    assert_eq!((message.subject.as_str(), &message.payload[..]), (subject, &br#"{"for":"ann"}"#[..]));
    worker.close().await;
}
