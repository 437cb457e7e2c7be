//! Progress of a model call, known even after it was aborted.

use crate::domain::charge::{CallProgress, CallStage};
use crate::domain::chat::TokenUsage;
use parking_lot::Mutex;

/// Progress of one call: written by the model, read after the call has ended or was dropped.
#[derive(Debug, Default)]
pub struct CallMeter(Mutex<CallProgress>);

impl CallMeter {
    /// Returns the progress so far.
    pub fn progress(&self) -> CallProgress {
        *self.0.lock()
    }

    /// Whether the call was begun.
    pub fn is_begun(&self) -> bool {
        self.progress().stage > CallStage::NotAsked
    }

    /// Records that the call reached a stage; it never goes back.
    pub fn mark(&self, stage: CallStage) {
        let mut progress = self.0.lock();
        progress.stage = progress.stage.max(stage);
    }

    /// Resets the progress of a call that was refused without charge and is made again.
    pub fn restart(&self) {
        *self.0.lock() = CallProgress { stage: CallStage::Asked, ..CallProgress::default() };
    }

    /// Records the reply so far: the provider's usage, bytes of text, calls and reasoning, and whether the reply is
    /// complete.
    pub fn record(&self, usage: TokenUsage, said_bytes: usize, is_whole: bool) {
        let mut progress = self.0.lock();
        *progress = CallProgress { stage: progress.stage, usage, said_bytes, is_whole };
    }
}
