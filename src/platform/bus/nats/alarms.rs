//! Alarms of timers: message schedules (ADR-51), which the server delivers at their time.
//!
//! A schedule is the only message of its timer's subject; at its time the server publishes its body on the subject of
//! due timers, in the same stream, and removes it.

use super::super::{Alarm, Alarms, BusError, RingingAlarm, subject};
use super::receive::{NatsAck, acknowledge};
use super::{NatsBus, streams};
use crate::domain::ids::Owner;
use crate::domain::time::Millis;
use crate::domain::timer::TimerId;
use async_nats::HeaderMap;
use async_nats::header::{NATS_SCHEDULE, NATS_SCHEDULE_TARGET};
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::{AckKind, Message};
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Most alarms that a worker holds before it handles them; those of a worker that dies ring again only after the ack
/// wait.
const HELD: usize = 16;

/// Time for which the server keeps one request for alarms.
const REQUEST: Duration = Duration::from_secs(30);

/// Interval at which the server confirms the request. The leader of the consumer may change without a loss of the
/// connection, and the request stays with the old one.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The body of a schedule, and of its alarm.
#[derive(Serialize, Deserialize)]
struct Body {
    generation: u64,
    at: Millis,
}

#[async_trait]
impl Alarms for NatsBus {
    async fn set(&self, alarm: &Alarm) -> Result<(), BusError> {
        self.connected_line().await?;
        let Alarm { owner, timer, generation, at } = alarm;
        let mut headers = HeaderMap::new();
        headers.insert(NATS_SCHEDULE, format!("@at {}", at.rfc3339()));
        headers.insert(NATS_SCHEDULE_TARGET, subject::ringing_alarm(self.prefix(), owner, timer));
        let body = serde_json::to_vec(&Body { generation: *generation, at: *at }).expect("numbers serialise");
        self.publish_stored(subject::future_alarm(self.prefix(), owner, timer), headers, body.into(), false).await
    }

    async fn clear(&self, owner: &Owner, timer: &TimerId) -> Result<(), BusError> {
        let line = self.connected_line().await?;
        let name = streams::timers_name(self.prefix());
        let stream = line.context.get_stream_no_info(name).await.map_err(|error| self.unavailable(&error))?;
        let purge = stream.purge().filter(subject::future_alarm(self.prefix(), owner, timer));
        purge.await.map(|_| ()).map_err(|error| self.unavailable(&error))
    }

    async fn listen_ringing(&self) -> Result<BoxStream<'static, RingingAlarm>, BusError> {
        let line = self.working_line().await?;
        let mut lost = line.fresh_link();
        let consumer = streams::ensure_timers(&line.context, &self.name, &self.options).await;
        let consumer = consumer.map_err(|error| self.unavailable(&error))?;
        let messages =
            consumer.stream().max_messages_per_batch(HELD).expires(REQUEST).heartbeat(HEARTBEAT).messages().await;
        let messages = messages.map_err(|error| self.unavailable(&error))?;
        let prefix = self.prefix().to_owned();
        let ringing = stream::unfold((messages, prefix), |(mut messages, prefix)| async {
            let ringing = next_alarm(&mut messages, &prefix).await?;
            Some((ringing, (messages, prefix)))
        });
        // After a loss of the connection the server has forgotten the request.
        Ok(ringing.take_until(async move { lost.changed().await }).boxed())
    }
}

async fn next_alarm(messages: &mut pull::Stream, prefix: &str) -> Option<RingingAlarm> {
    loop {
        let message = match messages.next().await? {
            Ok(message) => message,
            Err(error) => {
                tracing::debug!("listening to timers: {error}");
                return None;
            }
        };
        if let Some(alarm) = parse_alarm(prefix, &message) {
            return Some(RingingAlarm { alarm, settle: Arc::new(NatsAck(message)) });
        }
        tracing::warn!("dropping an unreadable timer on `{}`", message.subject);
        acknowledge(&message, AckKind::Term).await;
    }
}

fn parse_alarm(prefix: &str, message: &Message) -> Option<Alarm> {
    let (owner, timer) = subject::parse_due(prefix, &message.subject)?;
    let Body { generation, at } = serde_json::from_slice(&message.payload).ok()?;
    Some(Alarm { owner, timer, generation, at })
}
