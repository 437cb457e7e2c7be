//! The files for Kubernetes: legal there, about what the binary really has, and open to nobody by accident.

use super::{graceful_stop, read, root};
use crate::support::fleet::Fleet;
use crate::support::{cli, nats, python};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use trellis::config::{BusUrl, Config, StoreUrl};
use trellis::process::telemetry::Metrics;

/// Ways to choose how many workers there are.
const SCALING: [&str; 3] = ["none", "keda", "hpa"];

/// Runs the reader of manifests; `None` (after a printed line) without a Python that has what it needs.
fn reader(args: &[&str]) -> Option<Output> {
    let python = python::with("kubernetes_validate, helm_python")?;
    let script = root().join("tests/it/deployment/manifests.py");
    Some(Command::new(python).arg(script).args(args).current_dir(root()).output().unwrap())
}

/// The documents that Kubernetes would be given, checked against its schemas.
fn documents(args: &[&str]) -> Option<Vec<Value>> {
    let done = reader(args)?;
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    Some(serde_json::from_slice(&done.stdout).unwrap())
}

/// Of config/kubernetes.
fn manifests(scaling: &str) -> Option<Vec<Value>> {
    let folder = ["kustomize", "config/kubernetes"];
    documents(&[&folder[..], &[scaling][..usize::from(scaling != "none")]].concat())
}

/// Of config/helm/trellis.
fn chart(scaling: &str) -> Option<Vec<Value>> {
    documents(&["chart", "config/helm/trellis", &json!({"autoscaling": {"kind": scaling}}).to_string()])
}

fn of_kind<'a>(docs: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    docs.iter().filter(move |doc| doc["kind"] == kind)
}

fn name(doc: &Value) -> &str {
    doc["metadata"]["name"].as_str().unwrap()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Role, template and container of each deployment.
fn pods(docs: &[Value]) -> Vec<(&str, &Value, &Value)> {
    let found: Vec<_> = of_kind(docs, "Deployment")
        .map(|deployment| {
            let template = &deployment["spec"]["template"];
            let containers = template["spec"]["containers"].as_array().unwrap();
            assert_eq!(containers.len(), 1);
            (containers[0]["args"][0].as_str().unwrap(), template, &containers[0])
        })
        .collect();
    assert_eq!(found.iter().map(|(role, ..)| *role).collect::<Vec<_>>(), ["serve", "worker"]);
    found
}

/// Whether labels are what `matchLabels` wants; an empty selector wants nothing.
fn selects(selector: &Value, template: &Value) -> bool {
    let labels = &template["metadata"]["labels"];
    selector["matchLabels"].as_object().is_none_or(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
}

/// The file of settings with the URLs of the secret, as a pod of any role has them.
fn settings(docs: &[Value]) -> Config {
    let (dir, map) = (tempfile::tempdir().unwrap(), of_kind(docs, "ConfigMap").next().unwrap());
    let path = dir.path().join("trellis.toml");
    let mut text = map["data"]["trellis.toml"].as_str().unwrap().to_owned();
    for (name, url) in [("store-url", "redis://:p@redis.redis.svc:6379"), ("bus-url", "nats://nats.nats.svc")] {
        let (mounted, file) = (format!("url_file = \"/etc/trellis/files/{name}\""), dir.path().join(name));
        assert_eq!(text.matches(&mounted).count(), 1, "{text}");
        text = text.replace(&mounted, &format!("url_file = \"{}\"", file.display()));
        std::fs::write(file, format!("{url}\n")).unwrap();
    }
    std::fs::write(&path, text).unwrap();
    let config = Config::load(Some(&path), &BTreeMap::new(), &[]).unwrap().config;
    assert!(matches!(&config.store.url, StoreUrl::Redis(url) if url.contains(":p@")), "{:?}", config.store.url);
    config
}

#[test]
fn manifests_are_valid_for_every_way_of_scaling() {
    for scaling in SCALING {
        let Some(docs) = manifests(scaling) else { return };
        let mut kinds = BTreeMap::<&str, usize>::new();
        for doc in &docs {
            *kinds.entry(doc["kind"].as_str().unwrap()).or_default() += 1;
        }
        let scaler = match scaling {
            "keda" => Some("ScaledObject"),
            "hpa" => Some("HorizontalPodAutoscaler"),
            _ => None,
        };
        let both = ["ConfigMap", "Namespace", "Service", "ServiceAccount"].map(|kind| (kind, 1));
        let mut expected = BTreeMap::from([("Deployment", 2), ("NetworkPolicy", 4), ("PodDisruptionBudget", 2)]);
        expected.extend(both.into_iter().chain(scaler.map(|kind| (kind, 1))));
        if scaling == "keda" {
            expected.insert("Service", 2);
        }
        assert_eq!(kinds, expected, "{scaling}");
        let replicas: Vec<_> = of_kind(&docs, "Deployment").map(|d| d["spec"]["replicas"].as_u64()).collect();
        let of_workers = Some(2).filter(|_| scaling == "none");
        assert_eq!(replicas, [Some(2), of_workers], "{scaling}: who scales sets the number");
    }
}

/// Takes away what only one of two documents has, and what no pod sees.
fn without(value: &mut Value, names: &[&str]) {
    if let Some(map) = value.as_object_mut() {
        map.retain(|key, value| {
            without(value, names);
            let empty = key == "annotations" && value.as_object().is_some_and(serde_json::Map::is_empty);
            !names.contains(&key.as_str()) && key != "namespace" && key != "imagePullPolicy" && !empty
        });
    }
    value.as_array_mut().into_iter().flatten().for_each(|value| without(value, names));
}

#[test]
fn the_chart_equals_the_manifests() {
    let only_there = ["helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "checksum/config"];
    let named = |docs: Vec<Value>| -> BTreeMap<String, Value> {
        let docs = docs.into_iter().filter(|doc| doc["kind"] != "Namespace");
        docs.map(|mut doc| {
            without(&mut doc, &only_there);
            (format!("{} {}", doc["kind"], doc["metadata"]["name"]), doc)
        })
        .collect()
    };
    for scaling in SCALING {
        let (Some(plain), Some(chart)) = (manifests(scaling), chart(scaling)) else { return };
        let (mut plain, chart) = (named(plain), named(chart));
        // Beside other things in its namespace a chart's rule for everybody is for its own pods.
        let nobody = plain.get_mut("\"NetworkPolicy\" \"trellis-nobody\"").unwrap();
        nobody["spec"]["podSelector"] = json!({"matchLabels": {"app.kubernetes.io/name": "trellis"}});
        let out = plain.get_mut("\"NetworkPolicy\" \"trellis-out\"").unwrap();
        out["spec"]["podSelector"] = json!({"matchLabels": {"app.kubernetes.io/name": "trellis"}});
        assert_eq!(plain.keys().collect::<Vec<_>>(), chart.keys().collect::<Vec<_>>());
        for (name, doc) in &plain {
            assert_eq!(doc, &chart[name], "{scaling}: {name}");
        }
    }
}

#[test]
fn values_of_the_chart_are_explained_and_checked() {
    let values = read("config/helm/trellis/values.yaml");
    let lines: Vec<&str> = values.lines().collect();
    let (mut explained, mut in_text) = (0, false);
    for (at, line) in lines.iter().enumerate() {
        let (indent, word) = (line.len() - line.trim_start().len(), line.trim_start());
        in_text &= indent > 0 || word.is_empty();
        let Some((key, value)) = word.split_once(':').filter(|_| !in_text && !word.starts_with('#')) else { continue };
        in_text = value.trim() == "|";
        // Of Kubernetes' own words, and of a pair that one line explains, it is enough.
        let known = ["requests", "limits", "cpu", "memory", "tolerations", "image", "secrets", "serviceAccount"];
        let known = known.contains(&key) || ["autoscaling", "keda", "networkPolicy", "service"].contains(&key);
        assert!(known || lines[at - 1].trim_start().starts_with('#'), "`{key}` has no word of explanation");
        explained += usize::from(!known);
    }
    assert!(explained > 25, "{explained} values are found");
    let chart = read("config/helm/trellis/Chart.yaml");
    assert!(chart.contains(&format!("appVersion: \"{}\"", env!("CARGO_PKG_VERSION"))), "{chart}");
    for (values, part) in [
        (json!({"autoscaling": {"kind": "cron"}}), "kind"),
        (json!({"autoscaling": {"min": 0}}), "min"),
        (json!({"worker": {"replica": 3}}), "replica"),
        (json!({"config": ""}), "config"),
    ] {
        let Some(done) = reader(&["chart", "config/helm/trellis", &values.to_string()]) else { return };
        let err = String::from_utf8(done.stderr).unwrap();
        assert!(!done.status.success() && err.contains("schema") && err.contains(part), "{values}: {err}");
    }
}

#[test]
fn the_settings_are_legal_and_meant_for_pods() {
    let Some(docs) = manifests("none") else { return };
    let config = settings(&docs);
    assert!(matches!(config.store.url, StoreUrl::Redis(_)) && matches!(config.bus.url, BusUrl::Nats(_)));
    assert!(config.store.require_durable && config.bus.monitor.is_some());
    let worker = config.worker.listen.expect("probes ask it");
    for (role, template, container) in pods(&docs) {
        let pod = &template["spec"];
        let grace = Duration::from_secs(pod["terminationGracePeriodSeconds"].as_u64().unwrap());
        assert!(grace > config.worker.grace + Duration::from_secs(5), "{role} is killed before its shutdown is over");
        let listens = if role == "serve" { config.http.listen } else { worker };
        assert!(listens.ip().is_unspecified(), "{role} is asked from outside its pod");
        assert_eq!(container["ports"], json!([{"name": "http", "containerPort": listens.port()}]));
        let mounts: BTreeMap<&str, &str> = list(&container["volumeMounts"])
            .map(|m| (m["name"].as_str().unwrap(), m["mountPath"].as_str().unwrap()))
            .collect();
        let volumes: BTreeSet<&str> = list(&pod["volumes"]).map(|v| v["name"].as_str().unwrap()).collect();
        assert_eq!(mounts.keys().copied().collect::<BTreeSet<_>>(), volumes);
        let env: BTreeMap<&str, &Value> = list(&container["env"]).map(|e| (e["name"].as_str().unwrap(), e)).collect();
        assert_eq!(env["TRELLIS_CONFIG"]["value"], format!("{}/trellis.toml", mounts["config"]));
        for file in [&config.secrets.key_file, &config.auth.jwks] {
            assert_eq!(file.as_deref().and_then(Path::parent), Some(Path::new(mounts["files"])));
        }
        let files = list(&pod["volumes"]).find(|volume| volume["name"] == "files").unwrap();
        let mode = files["secret"]["defaultMode"].as_u64().unwrap();
        assert_eq!(mode & 0o007, 0, "the key file would be refused: others can read it");
        assert!(mode & 0o040 != 0 && pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]);
        assert_eq!((env.len(), mounts["files"]), (1, "/etc/trellis/files"), "{role}: passwords are files");
        let all_of: Vec<_> = list(&container["envFrom"]).collect();
        let keys = json!({"secretRef": {"name": "trellis-env", "optional": true}});
        assert_eq!(all_of, if role == "worker" { vec![&keys] } else { Vec::new() });
        let help = cli::run(Path::new("."), &[role, "--help"]).ok();
        assert!(help.contains("Usage: trellis"), "{help}");
    }
    // An endpoint that is gone is known everywhere before the listener is.
    assert!(config.http.linger >= Duration::from_secs(5));
}

#[test]
fn the_key_file_can_be_read_as_kubernetes_mounts_it() {
    use std::os::unix::fs::PermissionsExt;
    let Some(docs) = manifests("none") else { return };
    let (_, template, _) = pods(&docs)[0];
    let files = list(&template["spec"]["volumes"]).find(|volume| volume["name"] == "files").unwrap();
    let mode = u32::try_from(files["secret"]["defaultMode"].as_u64().unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    cli::run(dir.path(), &["secret", "keygen", "seal.keys"]).ok();
    std::fs::set_permissions(dir.path().join("seal.keys"), std::fs::Permissions::from_mode(mode)).unwrap();
    let mut up = cli::Up::start_in(dir, &["secrets.key_file=seal.keys"]);
    up.process.signal("TERM");
    up.process.ended();
    let set = ["--data", "data", "--set", "secrets.key_file=seal.keys"];
    let rotated = cli::run(up.dir.path(), &[&["secret", "rotate"], &set[..]].concat()).ok();
    assert!(rotated.contains("failed = 0"), "{rotated}");
}

#[test]
fn every_selector_matches_something() {
    for docs in [manifests("hpa"), chart("hpa")] {
        let Some(docs) = docs else { return };
        let pods = pods(&docs);
        for deployment in of_kind(&docs, "Deployment") {
            let found = pods.iter().filter(|(_, template, _)| selects(&deployment["spec"]["selector"], template));
            assert_eq!(found.map(|(role, ..)| format!("trellis-{role}")).collect::<Vec<_>>(), [name(deployment)]);
            for spread in list(&deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]) {
                assert_eq!(spread["labelSelector"], deployment["spec"]["selector"]);
            }
        }
        for budget in of_kind(&docs, "PodDisruptionBudget") {
            let found = pods.iter().filter(|(_, template, _)| selects(&budget["spec"]["selector"], template));
            assert_eq!(found.map(|(role, ..)| format!("trellis-{role}")).collect::<Vec<_>>(), [name(budget)]);
        }
        let service = of_kind(&docs, "Service").next().unwrap();
        let chosen = json!({"matchLabels": service["spec"]["selector"]});
        let found: Vec<_> = pods.iter().filter(|(_, template, _)| selects(&chosen, template)).collect();
        assert_eq!(found.iter().map(|(role, ..)| *role).collect::<Vec<_>>(), ["serve"]);
        assert_eq!(service["spec"]["ports"][0]["targetPort"], found[0].2["ports"][0]["name"]);
        let account = of_kind(&docs, "ServiceAccount").next().unwrap();
        assert!(pods.iter().all(|(_, template, _)| template["spec"]["serviceAccountName"] == name(account)));
        let scaler = of_kind(&docs, "HorizontalPodAutoscaler").next().unwrap();
        assert!(of_kind(&docs, "Deployment").any(|d| name(d) == scaler["spec"]["scaleTargetRef"]["name"]));
    }
}

#[test]
fn a_pod_may_do_nothing_that_it_need_not_do() {
    for docs in [manifests("none"), chart("none")] {
        let Some(docs) = docs else { return };
        for (role, template, container) in pods(&docs) {
            let (pod, own) = (&template["spec"], &container["securityContext"]);
            let user = &pod["securityContext"];
            assert_eq!(
                (&user["runAsNonRoot"], &user["seccompProfile"]["type"]),
                (&json!(true), &json!("RuntimeDefault"))
            );
            let image = read("config/Dockerfile");
            let wanted = format!("USER {}:{}", user["runAsUser"], user["runAsGroup"]);
            assert!(image.lines().any(|line| line == wanted), "the image has no `{wanted}`");
            assert_eq!(
                (&own["allowPrivilegeEscalation"], &own["readOnlyRootFilesystem"]),
                (&json!(false), &json!(true))
            );
            assert_eq!(own["capabilities"], json!({"drop": ["ALL"]}), "{role}");
            assert_eq!(own["privileged"], Value::Null);
            assert_eq!(
                (&pod["automountServiceAccountToken"], &pod["enableServiceLinks"]),
                (&json!(false), &json!(false))
            );
            for outside in ["hostNetwork", "hostPID", "hostIPC", "initContainers"] {
                assert_eq!(pod[outside], Value::Null, "{role}: {outside}");
            }
            assert!(list(&pod["volumes"]).all(|volume| volume["hostPath"].is_null()));
            let room = &container["resources"];
            assert!(room["requests"]["cpu"].is_string() && room["limits"]["memory"].is_string(), "{role}");
        }
        for deployment in of_kind(&docs, "Deployment") {
            let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
            assert_eq!(
                (&rolling["maxUnavailable"], &rolling["maxSurge"]),
                (&json!(0), &json!(1)),
                "{}",
                name(deployment)
            );
        }
    }
}

#[test]
fn no_port_is_open_but_to_those_who_need_it() {
    for docs in [manifests("none"), chart("none")] {
        let Some(docs) = docs else { return };
        for (role, template, container) in pods(&docs) {
            let mine = |direction: &'static str| {
                let policies = of_kind(&docs, "NetworkPolicy").filter(|p| selects(&p["spec"]["podSelector"], template));
                policies.filter(move |p| list(&p["spec"]["policyTypes"]).any(|of| of == direction))
            };
            let open = |direction: &'static str, rules: &'static str| -> BTreeSet<u64> {
                let rules = mine(direction).flat_map(move |policy| list(&policy["spec"][rules]));
                rules
                    .flat_map(|rule| {
                        assert!(
                            !rule["ports"].is_null() && (rule["from"].is_array() || rule["to"].is_array()),
                            "{rule}"
                        );
                        list(&rule["ports"]).map(|port| port["port"].as_u64().unwrap())
                    })
                    .collect()
            };
            let ports: BTreeSet<u64> =
                list(&container["ports"]).map(|port| port["containerPort"].as_u64().unwrap()).collect();
            assert_eq!(open("Ingress", "ingress"), ports, "{role}");
            let nothing = |p: &Value| p["spec"]["ingress"].is_null() && p["spec"]["egress"].is_null();
            assert!(mine("Ingress").any(nothing) && mine("Egress").any(nothing), "{role}: nobody by default");
            assert_eq!(open("Egress", "egress"), BTreeSet::from([53, 443, 4222, 6379, 8222]), "{role}");
        }
    }
}

#[test]
fn workers_are_scaled_by_existing_metrics() {
    let config = Config::load(None, &BTreeMap::new(), &[]).unwrap().config;
    let target = |text: &Value| text.as_str().unwrap().parse::<usize>().unwrap();
    let below_slots = |n: usize| assert!(n < config.worker.slots, "{n} of {} slots", config.worker.slots);
    let Some(docs) = manifests("hpa") else { return };
    let metric = &of_kind(&docs, "HorizontalPodAutoscaler").next().unwrap()["spec"]["metrics"][0]["pods"];
    let gauge = metric["metric"]["name"].as_str().unwrap();
    assert!(Metrics::new().encode().lines().any(|line| line == format!("{gauge} 0")), "no gauge `{gauge}`");
    below_slots(target(&metric["target"]["averageValue"]));
    let docs = manifests("keda").unwrap();
    let spec = &of_kind(&docs, "ScaledObject").next().unwrap()["spec"];
    assert!(spec["minReplicaCount"].as_u64().unwrap() >= 1, "timers and deadlines don't wait in the queue");
    assert!(of_kind(&docs, "Deployment").any(|d| name(d) == spec["scaleTargetRef"]["name"]));
    let trigger = &spec["triggers"][0];
    assert_eq!(trigger["type"], "metrics-api");
    below_slots(target(&trigger["metadata"]["targetValue"]));
    let asked = trigger["metadata"]["url"].as_str().unwrap();
    let service = of_kind(&docs, "Service").find(|service| name(service) == "trellis-worker").unwrap();
    let port = &service["spec"]["ports"][0];
    assert_eq!(asked, format!("http://{}.trellis.svc:{}/work", name(service), port["port"]));
    let (_, template, container) = pods(&docs).into_iter().find(|(role, ..)| *role == "worker").unwrap();
    assert_eq!(port["targetPort"], container["ports"][0]["name"]);
    for (label, value) in service["spec"]["selector"].as_object().unwrap() {
        assert_eq!(&template["metadata"]["labels"][label], value, "its pods");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_and_scrapes_are_answered() {
    let Some(docs) = manifests("none") else { return };
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (mut worker, at) = graceful_stop::worker(&fleet, &[]);
    let mut serve = fleet.start("serve");
    let api = serve.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    for (role, template, container) in pods(&docs) {
        let url = if role == "serve" { &api } else { &at };
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let asked = &container[probe]["httpGet"];
            assert_eq!(asked["port"], container["ports"][0]["name"], "{role}: {probe}");
            let (status, text) = graceful_stop::get(url, asked["path"].as_str().unwrap()).await;
            assert_eq!(status, 200, "{role}: {probe}: {text}");
        }
        assert!(
            container["livenessProbe"]["httpGet"]["path"] == "/livez",
            "a server that is away is no reason to kill"
        );
        let about = &template["metadata"]["annotations"];
        assert_eq!(about.is_object(), role == "worker", "{role}");
        if let Some(path) = about["prometheus.io/path"].as_str() {
            let scrape = graceful_stop::get(url, path).await.1;
            assert!(scrape.starts_with("# HELP trellis_") && scrape.ends_with('\n'), "{role}: {scrape}");
            assert_eq!(about["prometheus.io/port"], container["ports"][0]["containerPort"].to_string());
        }
    }
    for process in [&mut worker, &mut serve] {
        process.signal("TERM");
        assert_eq!(process.ended().code(), Some(0), "{}", process.log());
    }
}

/// KEDA reads one number of an answer, at a path in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_answers_the_metric_query_of_keda() {
    let Some(docs) = manifests("keda") else { return };
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let asked = &of_kind(&docs, "ScaledObject").next().unwrap()["spec"]["triggers"][0]["metadata"];
    let (mut worker, at) = graceful_stop::worker(&fleet, &[]);
    let path = asked["url"].as_str().unwrap().rsplit_once('/').unwrap().1;
    let (status, text) = graceful_stop::get(&at, &format!("/{path}")).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &answer[asked["valueLocation"].as_str().unwrap()]), (200, &json!(0)), "{text}");
    worker.signal("TERM");
    assert_eq!(worker.ended().code(), Some(0), "{}", worker.log());
}
