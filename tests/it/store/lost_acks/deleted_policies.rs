//! A policy that somebody deletes behind the venue's back, with its copy: what it revoked stays revoked.

use super::store_changes::open;
use crate::support::nats::{self, options};
use crate::support::redis::RedisServer;
use trellis::domain::authority::policy::Policy;
use trellis::store::keys;
use trellis::store::redis::ServerOrInjected;
use trellis::venue::policy;

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_put_in_force_again_without_a_restart() {
    let (Some(nats), Some(server)) = (nats::shared(), RedisServer::shared()) else { return };
    let store = server.options(ServerOrInjected::Injected);
    let opened = open(&store, &options(&nats), "").await;
    let (venue, owner) = (&opened.venue.venue, &opened.venue.owner);
    opened.venue.revoke("w/secret").await;
    let revoked = policy::load(&*venue.store, owner).await.unwrap().0;
    assert_eq!(revoked.revocations.len(), 1);
    let documents = format!("{}:doc", RedisServer::base(&store.prefix, owner));
    for lost in [&["HDEL", &documents, keys::POLICY, keys::POLICY_COPY][..], &["DEL", &documents]] {
        server.command(lost).await.unwrap();
        assert_eq!(policy::load(&*venue.store, owner).await.unwrap().0, Policy::default(), "it is gone");
        opened.journaled.force_policies().await.unwrap();
        assert_eq!(policy::load(&*venue.store, owner).await.unwrap().0, revoked);
        assert_eq!(opened.journaled.take_forced().len(), 1, "it is told");
        opened.journaled.force_policies().await.unwrap();
        assert!(opened.journaled.take_forced().is_empty(), "nothing is missing");
    }
}
