//! The person who is asked: hears of approvals by NATS and by webhook, and answers each once by one of the two ways.

use futures::StreamExt;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;

/// Approvals that were answered, by the id of the notification.
pub struct Person {
    answered: Arc<Mutex<BTreeMap<String, Value>>>,
    listening: JoinHandle<()>,
}

impl Person {
    /// Listens to the events of a fleet, and answers over NATS as they say.
    pub async fn listen(nats: &str, prefix: &str) -> Self {
        let client = async_nats::connect(nats).await.unwrap();
        let subject = format!("{prefix}.events.local.me.triage.approval-asked");
        let mut events = client.subscribe(subject).await.unwrap();
        client.flush().await.unwrap();
        let answered: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
        let asked = Arc::clone(&answered);
        let listening = tokio::spawn(async move {
            while let Some(message) = events.next().await {
                let event: Value = serde_json::from_slice(&message.payload).unwrap();
                let id = event["id"].as_str().unwrap().to_owned();
                // The same notification may come again, under the same id.
                if asked.lock().unwrap().insert(id, event["data"].clone()).is_some() {
                    continue;
                }
                let answer = &event["data"]["answer"]["nats"];
                let subject = answer["subject"].as_str().unwrap().to_owned();
                let stream = async_nats::jetstream::new(client.clone());
                stream.publish(subject, answer["bodies"][0].to_string().into()).await.unwrap().await.unwrap();
            }
        });
        Self { answered, listening }
    }

    /// What was asked so far, by the id of the notification.
    pub fn asked(&self) -> BTreeMap<String, Value> {
        self.answered.lock().unwrap().clone()
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        self.listening.abort();
    }
}
