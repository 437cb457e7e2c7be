//! The connection in use, and its replacement when it ends. The driver reconnects by itself, except after a message that
//! it can't even refuse (async-nats 0.51 panics at a lone CR in a header's value), which ends its task.

use super::NatsBus;
use super::line::NatsLine;
use super::options::{NatsOptions, TIMEOUT};
use crate::bus::BusError;
use crate::process::retry::RetryPolicy;
use async_nats::connection::State;
use std::sync::Arc;

impl NatsBus {
    /// Returns the current line, whether it still works or not.
    pub(super) fn last_line(&self) -> Arc<NatsLine> {
        Arc::clone(&self.line.read())
    }

    /// Returns a working line: the current one, or a new one if its task has ended.
    pub(super) async fn working_line(&self) -> Result<Arc<NatsLine>, BusError> {
        let line = self.last_line();
        if !line.is_gone() || self.is_closed() {
            return Ok(line);
        }
        let _alone = self.reopening.lock().await;
        let line = self.last_line();
        if !line.is_gone() {
            return Ok(line);
        }
        tracing::error!("NATS at `{}`: the driver ended, at a message that it can't take; connecting anew", self.name);
        let once = NatsOptions {
            connect: RetryPolicy { total: Some(TIMEOUT), ..self.options.connect },
            ..self.options.clone()
        };
        // Boxed: it is rarely needed, and every use of the bus would carry its size.
        let opened = Box::pin(NatsLine::open(&once, &self.name)).await;
        let fresh = Arc::new(opened.map_err(|error| self.unavailable(&error))?);
        *self.line.write() = Arc::clone(&fresh);
        self.force_search();
        Ok(fresh)
    }

    /// Returns a working line that has a connection.
    pub(super) async fn connected_line(&self) -> Result<Arc<NatsLine>, BusError> {
        let line = self.working_line().await?;
        match line.client.connection_state() {
            // The driver would keep a request until the server is back, and its caller would wait until the timeout.
            State::Disconnected => {
                Err(BusError::Unavailable { bus: self.name.clone(), reason: "disconnected".to_owned() })
            }
            State::Connected | State::Pending => Ok(line),
        }
    }
}
