//! The simulated model: rules answer, late or not at all, and every call is written down.

use super::plan::FaultKind;
use super::store::ServerStore;
use super::world::Link;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;
use trellis::domain::charge::CallStage;
use trellis::domain::chat::{ModelRequest, Reply};
use trellis::domain::ids::SessionKey;
use trellis::model::scripted::Script;
use trellis::model::{LiveText, Model, ModelError};
use trellis::venue::secrets::OpenedSecret;

/// The provider, with what it was asked.
pub struct Provider {
    pub script: Script,
    /// By turn.
    pub calls: Mutex<BTreeMap<String, Calls>>,
}

/// Calls of one turn.
#[derive(Debug, Default, Clone, Copy)]
pub struct Calls {
    pub begun: u32,
    pub answered: u32,
    /// The provider wouldn't; nobody pays for it.
    pub failed: u32,
}

/// The provider as one process sees it.
pub struct FarModel {
    pub provider: Arc<Provider>,
    pub store: Arc<ServerStore>,
    pub link: Arc<Link>,
}

/// The session and number of a turn, `owner/agent/session/turn`.
fn place(turn: &str) -> Option<(SessionKey, u64)> {
    let mut parts = turn.rsplitn(4, '/');
    let turn = parts.next()?.parse().ok()?;
    let session = parts.next()?.parse().ok()?;
    Some((SessionKey { agent: parts.next()?.parse().ok()?, session }, turn))
}

#[async_trait]
impl Model for FarModel {
    async fn complete(
        &self,
        request: &ModelRequest,
        _secrets: &[OpenedSecret],
        live: &LiveText,
    ) -> Result<Reply, ModelError> {
        self.link.wait_until_running().await;
        let (world, turn) = (&self.link.world, &request.turn);
        world.note(format_args!("{} asks {turn}", self.link.name));
        if let Some((session, number)) = place(turn)
            && self.store.was_told(&session, number)
        {
            world.record_violation(format!("{turn} is asked again after its holder was told of the reply"));
        }
        self.provider.calls.lock().unwrap().entry(turn.clone()).or_default().begun += 1;
        live.meter.mark(CallStage::Sent);
        // Now and then longer than a lease.
        let longest = if self.link.below(6) == 0 { 8_000 } else { 400 };
        sleep(Duration::from_millis(1 + self.link.below(longest))).await;
        self.link.wait_until_running().await;
        let down = world.plan.active(world.now()).find_map(|kind| match kind {
            FaultKind::Overloaded(percent) => Some(percent),
            _ => None,
        });
        if down.is_some_and(|percent| self.link.percent(percent)) {
            world.count_fault("overloaded");
            live.meter.mark(CallStage::Refused);
            self.provider.calls.lock().unwrap().entry(turn.clone()).or_default().failed += 1;
            let retry_after = (self.link.below(2) == 0).then(|| Duration::from_millis(self.link.below(3_000)));
            return Err(ModelError::Transient {
                model: request.model.id(),
                reason: "503: overloaded".into(),
                retry_after,
            });
        }
        let permanent = |error: &dyn std::fmt::Display| ModelError::Permanent {
            model: request.model.id(),
            reason: error.to_string(),
        };
        let taken = self.provider.script.take(request).await.map_err(|error| permanent(&error))?;
        self.provider.calls.lock().unwrap().entry(turn.clone()).or_default().answered += 1;
        world.note(format_args!("{} hears {turn}: {:?}", self.link.name, taken.answer.reply));
        Ok(taken.answer.reply)
    }
}
