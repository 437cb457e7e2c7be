//! What is known of a running model call, also after it was broken off.

use crate::domain::charge::{CallProgress, CallStage};
use crate::domain::chat::Usage;
use parking_lot::Mutex;

/// The progress of one call: written by the model, read when the call has ended in whatever way.
#[derive(Debug, Default)]
pub struct CallMeter(Mutex<CallProgress>);

impl CallMeter {
    /// What is known now.
    pub fn progress(&self) -> CallProgress {
        *self.0.lock()
    }

    /// Whether the call was begun.
    pub fn is_asked(&self) -> bool {
        self.progress().stage > CallStage::NotAsked
    }

    /// Notes that the call has come so far; it never goes back.
    pub fn mark(&self, stage: CallStage) {
        let mut progress = self.0.lock();
        progress.stage = progress.stage.max(stage);
    }

    /// The call was refused, for nothing, and is made again.
    pub fn restart(&self) {
        *self.0.lock() = CallProgress { stage: CallStage::Asked, ..CallProgress::default() };
    }

    /// Notes what has come of the reply, all together: what the provider has said of tokens, bytes of text, calls and
    /// reasoning, and whether that is its end.
    pub fn record(&self, usage: Usage, said_bytes: usize, is_whole: bool) {
        let mut progress = self.0.lock();
        *progress = CallProgress { stage: progress.stage, usage, said_bytes, is_whole };
    }
}
