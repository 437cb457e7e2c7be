//! Messages that wait in the streams, counted by their subjects.

use super::super::{Backlog, BusError, QueueWatch, WaitingMessage, subject};
use super::{NatsBus, streams};
use crate::domain::ids::Owner;
use crate::domain::message::MessageAddress;
use crate::store::BackendSetting;
use async_trait::async_trait;
use futures::TryStreamExt;

#[async_trait]
impl QueueWatch for NatsBus {
    async fn backlog(&self) -> Result<Backlog, BusError> {
        let line = self.working_line().await?;
        let mut backlog = Backlog::default();
        for inbound in line.inbound().iter() {
            let filter = inbound.filter(self.prefix());
            let subjects =
                inbound.stream.info_with_subjects(&filter).await.map_err(|error| self.unavailable(&error))?;
            let subjects: Vec<_> = subjects.try_collect().await.map_err(|error| self.unavailable(&error))?;
            for (subject, messages) in subjects {
                let kind = subject::parse_inbound(self.prefix(), &subject).ok().map(|(_, _, kind)| kind);
                let owner = subject::owner_of(self.prefix(), &subject);
                backlog.count(owner, kind, u64::try_from(messages).unwrap_or(u64::MAX));
            }
            // An acknowledged message may still be stored.
            let first = self.ack_floor(inbound).await? + 1;
            let oldest = self.read_stored(inbound, first, &filter).await?.map(|stored| stored.published);
            backlog.oldest = backlog.oldest.into_iter().chain(oldest).min();
        }
        if backlog.messages() == 0 {
            backlog.oldest = None;
        }
        Ok(backlog)
    }

    fn address_subject(&self, to: &MessageAddress) -> Option<String> {
        // Others publish to the first stream's subjects; the server spreads them over partitions.
        Some(subject::for_address(self.prefix(), to))
    }

    async fn waiting_messages(&self, owner: &Owner, limit: usize) -> Result<Vec<WaitingMessage>, BusError> {
        let line = self.working_line().await?;
        let mut all = Vec::new();
        for inbound in line.inbound().iter() {
            let filter = subject::all_inbound_of(self.prefix(), inbound.part, owner);
            let mut next = self.ack_floor(inbound).await? + 1;
            while all.len() < limit
                && let Some(stored) = self.read_stored(inbound, next, &filter).await?
            {
                next = stored.sequence + 1;
                if let Ok((_, agent, kind)) = subject::parse_inbound(self.prefix(), stored.subject()) {
                    let (id, published) = (stored.id(), stored.published);
                    all.push(WaitingMessage { id, agent, kind, published });
                }
            }
        }
        all.sort_by_key(|message| message.published);
        Ok(all)
    }

    async fn wrong_settings(&self) -> Result<Vec<BackendSetting>, BusError> {
        let mut all = self.stream_settings().await?;
        let inbound = streams::inbound_name(self.prefix(), None);
        if let Ok(found) = self.working_line().await?.context.get_stream(inbound).await {
            all.extend(self.owner_setting(&found.cached_info().config));
        }
        Ok(all.into_iter().filter(|setting| setting.problem.is_some()).collect())
    }

    async fn repair_settings(&self) {
        let line = self.last_line();
        match streams::ensure(&line.context, &self.name, &self.options).await {
            Ok(inbound) => line.set_inbound(inbound),
            Err(error) => tracing::debug!("{error}"),
        }
    }
}
