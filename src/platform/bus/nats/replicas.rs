//! The copies of a stream and of its consumer: where they are, and what their number and state mean.

use super::{NatsBus, error_chain, streams};
use crate::store::BackendSetting;
use async_nats::jetstream::stream::{ClusterInfo, Info, PeerInfo, StorageType};
use std::time::Duration;

/// Silence after which a replica counts as missing: the servers of a stream exchange messages every second.
const SILENT: Duration = Duration::from_secs(8);

/// Copies of a stream or a consumer.
struct ReplicaSet {
    /// Name of the stream or consumer.
    name: String,
    /// Number of copies that it is configured with.
    count: usize,
    /// Number of copies that `bus.replicas` asks for.
    wanted: usize,
    /// Whether the copies are on disk.
    is_kept: bool,
    cluster: ClusterInfo,
}

impl NatsBus {
    /// Returns the number of copies for a single server; for a cluster one setting for each stream and shared consumer.
    pub(super) async fn replicas(&self, inbound: &Info) -> Vec<BackendSetting> {
        let line = self.last_line();
        let setting = |value| BackendSetting { name: "nats replicas".to_owned(), value, problem: None };
        let wanted = self.options.replicas;
        let server = line.client.server_info();
        let Some(cluster) = server.cluster else {
            return vec![setting(format!("{} ({})", inbound.config.num_replicas, inbound.config.name))];
        };
        let by = server.server_name;
        let mut all = vec![setting(format!("{wanted} of each stream, in cluster `{cluster}`, by `{by}`"))];
        let shared = line.inbound();
        let shared = shared.iter().map(|inbound| (inbound.name().to_owned(), Some(streams::CONSUMER)));
        for (name, consumer) in shared.chain(streams::other_streams(self.prefix())) {
            match line.context.get_stream(&name).await {
                Ok(stream) => {
                    let copies = ReplicaSet::from_info(stream.cached_info(), wanted);
                    all.push(copies.setting());
                    let Some(consumer) = consumer else { continue };
                    all.push(match stream.consumer_info(consumer).await {
                        Ok(info) => copies.consumer(consumer, info.cluster).setting(),
                        Err(error) => silent_setting(&format!("{name}, consumer `{consumer}`"), &error),
                    });
                }
                Err(error) => all.push(silent_setting(&name, &error)),
            }
        }
        all
    }
}

fn row(name: &str) -> String {
    format!("nats replicas of {name}")
}

fn silent_setting(name: &str, error: &dyn std::error::Error) -> BackendSetting {
    let problem = Some("it can't be asked: most of the servers that have it must be up".to_owned());
    BackendSetting { name: row(name), value: error_chain(error), problem }
}

impl ReplicaSet {
    fn from_info(info: &Info, wanted: usize) -> Self {
        Self {
            name: info.config.name.clone(),
            count: info.config.num_replicas,
            wanted,
            is_kept: info.config.storage == StorageType::File,
            cluster: info.cluster.clone().unwrap_or_default(),
        }
    }

    /// Returns the copies of a consumer of this stream, which gets as many a while after the stream.
    fn consumer(&self, name: &str, cluster: Option<ClusterInfo>) -> Self {
        Self {
            name: format!("{}, consumer `{name}`", self.name),
            cluster: cluster.unwrap_or_default(),
            // The stream's setting judges the number.
            wanted: self.count,
            is_kept: false,
            ..*self
        }
    }

    fn setting(&self) -> BackendSetting {
        let leader = self.cluster.leader.as_ref();
        let leader = leader.map_or_else(|| "no leader".to_owned(), |name| format!("{name} leads"));
        let peers = self.cluster.replicas.iter().map(peer_state);
        let value = format!("{}: {}", self.count, std::iter::once(leader).chain(peers).collect::<Vec<_>>().join(", "));
        let problems = self.problems();
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        BackendSetting { name: row(&self.name), value, problem }
    }

    fn problems(&self) -> Vec<String> {
        let Self { count, wanted, ref cluster, .. } = *self;
        let mut problems = Vec::new();
        let majority = count / 2 + 1;
        if count != wanted {
            problems.push(format!("expected `bus.replicas = {wanted}`; a worker that starts sets it"));
        }
        if count == 1 && self.is_kept {
            problems.push("a server that is lost takes accepted work with it: set `bus.replicas = 3`".to_owned());
        }
        if count > 1 && count.is_multiple_of(2) && self.is_kept {
            let (borne, less) = (count - majority, count - 1);
            problems.push(format!("{count} bear the absence of {borne} servers, as {less} do: set an odd number"));
        }
        if cluster.leader.is_none() {
            problems.push(format!("it takes and gives nothing before {majority} of its servers are up"));
        } else if cluster.replicas.len() + 1 < count {
            problems
                .push("the other copies are still being made: until then the server that leads must stay".to_owned());
        } else {
            problems.extend(self.describe_missing(majority));
        }
        problems
    }

    /// Describes how many copies are missing, and how many more may be lost.
    fn describe_missing(&self, majority: usize) -> Option<String> {
        let missing =
            self.cluster.replicas.iter().filter(|peer| peer.offline || !peer.current || is_silent(peer)).count();
        let count = self.count;
        let stops = match (count - missing.min(count)).checked_sub(majority) {
            None => format!("it takes and gives nothing before {majority} are up"),
            Some(0) => "with one more it stops: bring them back".to_owned(),
            Some(margin) => format!("with {} more it stops: bring them back", margin + 1),
        };
        (missing > 0).then(|| format!("{missing} of {count} are missing or behind, {stops}"))
    }
}

/// Whether a peer is silent: a killed server is reported offline only minutes later, and stays current without new
/// messages.
fn is_silent(peer: &PeerInfo) -> bool {
    peer.active > SILENT
}

fn peer_state(peer: &PeerInfo) -> String {
    let name = &peer.name;
    match (peer.offline, peer.current, peer.lag.unwrap_or_default()) {
        (true, _, _) => format!("{name} is offline"),
        (false, true, _) if is_silent(peer) => {
            format!("{name} is silent for {}", humantime::format_duration(Duration::from_secs(peer.active.as_secs())))
        }
        (false, true, _) => name.clone(),
        (false, false, 0) => format!("{name} is down or behind"),
        (false, false, lag) => format!("{name} is down or {lag} operations behind"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cluster(leader: Option<&str>, peers: &[(&str, bool, bool, u64)]) -> ClusterInfo {
        let peers = peers.iter().map(|(name, current, offline, lag)| {
            json!({"name": name, "current": current, "offline": offline, "active": 0, "lag": lag})
        });
        serde_json::from_value(json!({"name": "c", "leader": leader, "replicas": peers.collect::<Vec<_>>()})).unwrap()
    }

    fn check(count: usize, wanted: usize, found: &ClusterInfo, expected: &str, problem: &str) {
        let copies = ReplicaSet { name: "T".into(), count, wanted, is_kept: true, cluster: found.clone() };
        let setting = copies.setting();
        assert_eq!((setting.value.as_str(), setting.problem.as_deref().unwrap_or_default()), (expected, problem));
    }

    #[test]
    fn replica_counts_are_reported_with_their_problems() {
        let whole = [("b", true, false, 0), ("c", true, false, 0)];
        check(3, 3, &cluster(Some("a"), &whole), "3: a leads, b, c", "");
        let dead = [("b", false, true, 9), ("c", true, false, 0)];
        let stops = "1 of 3 are missing or behind, with one more it stops: bring them back";
        check(3, 3, &cluster(Some("a"), &dead), "3: a leads, b is offline, c", stops);
        let slow = [("b", false, false, 7), ("c", true, false, 0)];
        check(3, 3, &cluster(Some("a"), &slow), "3: a leads, b is down or 7 operations behind, c", stops);
        let idle = [("b", false, false, 0), ("c", true, false, 0)];
        check(3, 3, &cluster(Some("a"), &idle), "3: a leads, b is down or behind, c", stops);
        let five = [("b", false, true, 0), ("c", true, false, 0), ("d", true, false, 0), ("e", true, false, 0)];
        let stops = "1 of 5 are missing or behind, with 2 more it stops: bring them back";
        check(5, 5, &cluster(Some("a"), &five), "5: a leads, b is offline, c, d, e", stops);
        let mut silent = cluster(Some("a"), &whole);
        silent.replicas[1].active = Duration::from_millis(72_400);
        let stops = "1 of 3 are missing or behind, with one more it stops: bring them back";
        check(3, 3, &silent, "3: a leads, b, c is silent for 1m 12s", stops);
        let lost = [("b", false, false, 0), ("c", false, false, 3)];
        let stopped = "2 of 3 are missing or behind, it takes and gives nothing before 2 are up";
        let shown = "3: a leads, b is down or behind, c is down or 3 operations behind";
        check(3, 3, &cluster(Some("a"), &lost), shown, stopped);
        let nobody = "it takes and gives nothing before 2 of its servers are up";
        check(3, 3, &cluster(None, &[]), "3: no leader", nobody);
        let made = "the other copies are still being made: until then the server that leads must stay";
        check(3, 3, &cluster(Some("a"), &[]), "3: a leads", made);
        let alone = "a server that is lost takes accepted work with it: set `bus.replicas = 3`";
        check(1, 1, &cluster(Some("a"), &[]), "1: a leads", alone);
        let even = "expected `bus.replicas = 3`; a worker that starts sets it; 2 bear the absence of 0 servers, as 1 do: set an odd number";
        check(2, 3, &cluster(Some("a"), &whole[..1]), "2: a leads, b", even);
    }
}
