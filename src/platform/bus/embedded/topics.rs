//! Listeners of this process, by topic.

use futures::stream::{BoxStream, StreamExt, unfold};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::Hash;
use tokio::sync::broadcast;

/// Sends to listeners without storage; a listener that is more than `behind` values late loses the oldest.
pub(super) struct TopicListeners<K, V> {
    behind: usize,
    senders: Mutex<HashMap<K, broadcast::Sender<V>>>,
}

impl<K: Clone + Eq + Hash, V: Clone + Send + 'static> TopicListeners<K, V> {
    pub(super) fn new(behind: usize) -> Self {
        Self { behind, senders: Mutex::new(HashMap::new()) }
    }

    pub(super) fn publish(&self, topic: &K, said: V) {
        let _ = self.publish_with(topic, || Ok::<_, Infallible>(said));
    }

    /// Sends a value that is made only if the topic has listeners.
    pub(super) fn publish_with<E>(&self, topic: &K, make: impl FnOnce() -> Result<V, E>) -> Result<(), E> {
        let mut senders = self.senders.lock();
        if let Some(sender) = senders.get(topic)
            && (sender.receiver_count() == 0 || sender.send(make()?).is_err())
        {
            senders.remove(topic);
        }
        Ok(())
    }

    pub(super) fn listen(&self, topic: &K) -> BoxStream<'static, V> {
        let mut senders = self.senders.lock();
        // Removes topics without listeners.
        senders.retain(|_, sender| sender.receiver_count() > 0);
        let sender = senders.entry(topic.clone()).or_insert_with(|| broadcast::channel(self.behind).0);
        unfold(sender.subscribe(), |mut receiver| async {
            loop {
                match receiver.recv().await {
                    Ok(said) => return Some((said, receiver)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        })
        .boxed()
    }
}
