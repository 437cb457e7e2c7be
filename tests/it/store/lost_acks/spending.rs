//! What was spent under a cap counts after a loss.

use super::store_changes::open;
use crate::support::nats::{self, options};
use crate::support::redis::RedisServer;
use serde_json::json;
use std::sync::Arc;
use trellis::domain::cap::{Ceiling, SpendSettings, Zone};
use trellis::domain::job::JobStatus;
use trellis::store::redis::ServerOrInjected;

const RULES: &str = "[[rule]]\nthen = { text = \"done\" }\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_lets_nothing_more_through_a_cap() {
    let (Some(mut server), Some(url)) = (RedisServer::start(), nats::shared()) else { return };
    let (store, bus) = (server.options(ServerOrInjected::Server), options(&url));
    let cap = || {
        let zone = Zone::parse("UTC").unwrap();
        SpendSettings { zone, owner: Ceiling::parse("tokens=8000").unwrap(), ..SpendSettings::default() }
    };
    let mut made = Vec::new();
    let mut before = None;
    for round in 0..2 {
        let mut opened = open(&store, &bus, RULES).await;
        Arc::get_mut(&mut opened.venue.venue).unwrap().spend = cap();
        let venue = &opened.venue;
        if round == 0 {
            let model = json!({"provider": "scripted", "name": "rules", "maxTokens": 100});
            venue.agent("a", json!({"model": model})).await;
            before = Some(server.log_file());
        }
        venue.worker();
        let mut done = 0;
        for n in 0..40 {
            let job = venue.run("a", &format!("r{round}-{n}"), json!("go")).await;
            if job.status == JobStatus::Failed {
                break;
            }
            done += 1;
        }
        made.push(done);
        opened.venue.shutdown.trigger();
        drop(opened);
        if round == 0 {
            server.lose_tail(before.take().unwrap());
        }
    }
    assert!(made[0] > 0 && made[0] < 40, "the cap is reached: {made:?}");
    assert_eq!(made[1], 0, "nothing more goes through: {made:?}");
}
