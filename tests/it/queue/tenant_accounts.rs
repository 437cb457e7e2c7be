//! An account for each tenant, on a cluster of three servers with `config/nats-tenants.conf`.

use crate::support::cli::{Done, run};
use crate::support::fleet::Fleet;
use crate::support::nats_cluster::NatsCluster;
use std::time::{Duration, Instant};

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/nats-tenants.conf");
const WORKER: &str = "worker:worker-change-me@";
const LIMIT: Duration = Duration::from_mins(2);

#[test]
fn a_tenant_account_submits_and_reads_only_its_own() {
    let Some(mut cluster) = NatsCluster::start_as(CONFIG, WORKER, &["--cluster_name", "trellis"]) else { return };
    let Some(fleet) = Fleet::on_shared_redis(cluster.url()) else { return };
    let file = fleet.path().join("fleet.toml");
    let own = format!("[bus]\nurl = \"{}\"\nprefix = \"{}\"\n", fleet.nats, fleet.prefix);
    let named = own.replace(&fleet.prefix, "trellis") + "replicas = 3\n";
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(&own));
    std::fs::write(&file, text.replace(&own, &named)).unwrap();
    let (worker, serve, url) = fleet.start_all();
    for owner in ["acme/ann", "acme/bob", "globex/gus"] {
        run(fleet.path(), &["agent", "apply", "echo.toml", "--url", &url, "--owner", owner]).ok();
    }
    let urls = ["acme", "ann", "globex"].map(|user| cluster.url_as(&format!("{user}:{user}-change-me@")));
    let [acme, ann, globex] = &urls;
    let submit = |nats: &str, owner: &str, what: &str| -> Done {
        let args = ["submit", "echo", what, "--id", what, "--owner", owner, "--wait=60s", "--nats", nats];
        run(fleet.path(), &args)
    };
    for (user, owner) in [(acme, "acme/bob"), (ann, "acme/ann"), (globex, "globex/gus")] {
        let what = format!("to-{}", owner.replace('/', "-"));
        assert_eq!(submit(user, owner, &what).ok(), what);
    }
    // A tenant's account has nothing of another tenant's; a user's rights end at his own name.
    submit(globex, "acme/bob", "stranger").expect(8, "has no stream for `trellis.in.acme.bob.echo.task`");
    submit(ann, "acme/bob", "neighbour").expect(8, "doesn't let this user publish to `trellis.in.acme.bob.echo.task`");

    let leader = tokio::runtime::Runtime::new().unwrap().block_on(cluster.leader("TRELLIS"));
    cluster.nodes[leader].kill();
    let end = Instant::now() + LIMIT;
    loop {
        let done = submit(ann, "acme/ann", "after");
        if done.code == 0 {
            break assert_eq!(done.ok(), "after");
        }
        assert!(Instant::now() < end, "{}\n{}", done.err, worker.log());
    }
    drop((worker, serve));
}
