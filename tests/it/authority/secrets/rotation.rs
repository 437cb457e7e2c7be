//! Keys that change, records that were moved or damaged, and a rotation that is interrupted.

use std::sync::Arc;
use trellis::domain::ids::Owner;
use trellis::domain::quota::Quota;
use trellis::domain::secret::{KeyRing, PlainSecret};
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::faulty::{FaultAt, FaultPlan, FaultyStore};
use trellis::store::{DocEffect, DocWrite, DocumentStore, Expect, Store, keys};
use trellis::venue::key_rotation::rotate_keys;
use trellis::venue::secrets::{RotationCounts, SecretError, SetSecret, Vault, list};

fn vault(keys: &str) -> Vault {
    let keys = keys.split(' ').map(|name| format!("{name}:{}", hex::encode([name.as_bytes()[0]; 32])));
    Vault::new(KeyRing::parse(&keys.collect::<Vec<_>>().join(" ")).unwrap())
}

async fn set(vault: &Vault, store: &dyn Store, owner: &Owner, name: &str, value: &str) {
    let value = PlainSecret::new(value.to_owned()).unwrap();
    let set = SetSecret { name: name.parse().unwrap(), value, hosts: None, overwrite: false, within: Quota::default() };
    vault.set(store, Clock::default().now(), owner, &set).await.unwrap();
}

async fn value(vault: &Vault, store: &dyn Store, owner: &Owner, name: &str) -> Result<String, String> {
    let opened = vault.open(store, owner, &name.parse().unwrap()).await;
    opened.map(|secret| secret.value.reveal().to_owned()).map_err(|error: SecretError| error.to_string())
}

struct Site {
    store: Arc<EmbeddedStore>,
    owners: [Owner; 3],
    _dir: tempfile::TempDir,
}

/// Three owners with two secrets each, under key `a`.
async fn site() -> Site {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let owners = ["t/one", "t/two", "u/one"].map(|owner| owner.parse().unwrap());
    for owner in &owners {
        for name in ["X", "Y"] {
            set(&vault("a"), &*store, owner, name, &format!("value of {owner} {name}")).await;
        }
    }
    Site { store, owners, _dir: dir }
}

async fn all_open(site: &Site, vault: &Vault) {
    for owner in &site.owners {
        for name in ["X", "Y"] {
            assert_eq!(value(vault, &*site.store, owner, name).await, Ok(format!("value of {owner} {name}")));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_seals_everything_with_the_first_key() {
    let site = site().await;
    let now = Clock::default().now();
    all_open(&site, &vault("b a")).await;
    let before = list(&*site.store, &site.owners[0]).await.unwrap();
    let done = rotate_keys(&vault("b a"), &*site.store, now).await.unwrap();
    assert_eq!(done, RotationCounts { owners: 3, rotated: 6, current: 0, failed: Vec::new() });
    let after = list(&*site.store, &site.owners[0]).await.unwrap();
    assert_eq!((&after[0].1.stamp, after[0].1.key.to_string().as_str()), (&before[0].1.stamp, "b"));
    assert_ne!(after[0].1.nonce, before[0].1.nonce);
    all_open(&site, &vault("b")).await;
    let again = rotate_keys(&vault("b"), &*site.store, now).await.unwrap();
    assert_eq!((again.rotated, again.current), (0, 6));
    let lost = rotate_keys(&vault("c"), &*site.store, now).await.unwrap();
    assert_eq!((lost.rotated, lost.failed.len()), (0, 6));
    assert!(lost.failed[0].contains("secret `X` can't be opened: it is sealed with key `b`"), "{:?}", lost.failed);
    let none = rotate_keys(&Vault::default(), &*site.store, now).await;
    assert!(matches!(none, Err(SecretError::NoKey)), "{none:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_rotation_loses_nothing_and_goes_on() {
    for at in [FaultAt::Before, FaultAt::After] {
        for n in 1..=6 {
            let site = site().await;
            let now = Clock::default().now();
            let store: Arc<dyn Store> = Arc::clone(&site.store) as Arc<dyn Store>;
            let faulty = FaultyStore::new(store, FaultPlan::From { n, at });
            assert!(
                matches!(rotate_keys(&vault("b a"), &*faulty, now).await, Err(SecretError::Store(_))),
                "{at:?} {n}"
            );
            all_open(&site, &vault("b a")).await;
            let done = rotate_keys(&vault("b a"), &*site.store, now).await.unwrap();
            let written = usize::try_from(n).unwrap() - usize::from(at == FaultAt::Before);
            assert_eq!((done.rotated, done.current), (6 - written, written), "{at:?} {n}");
            all_open(&site, &vault("b")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_was_moved_or_changed_is_refused() {
    let site = site().await;
    let now = Clock::default().now();
    let [one, two, _] = &site.owners;
    let doc = |name: &str| keys::secret(&name.parse().unwrap());
    let read =
        async |owner: &Owner, name: &str| site.store.read(owner, &[doc(name)]).await.unwrap().remove(0).value.unwrap();
    let put = async |owner: &Owner, name: &str, bytes: Vec<u8>| {
        let write = DocWrite { key: doc(name), expect: Expect::Any, change: DocEffect::Put(bytes.into()) };
        site.store.write(now, owner, &[write]).await.unwrap();
    };
    let original = read(one, "X").await;
    put(one, "Y", original.to_vec()).await;
    put(two, "X", original.to_vec()).await;
    for (owner, name) in [(one, "Y"), (two, "X")] {
        let error = value(&vault("a"), &*site.store, owner, name).await.unwrap_err();
        assert!(error.contains("key `a` doesn't open it") && error.contains("changed or moved"), "{error}");
    }
    let text = String::from_utf8(original.to_vec()).unwrap();
    let bound = text.replace("\"hosts\":[]", "\"hosts\":[\"evil.example.com\"]");
    assert_ne!(bound, text);
    put(one, "X", bound.into_bytes()).await;
    assert!(value(&vault("a"), &*site.store, one, "X").await.is_err());
    put(one, "X", b"{}".to_vec()).await;
    let error = value(&vault("a"), &*site.store, one, "X").await.unwrap_err();
    assert!(error.contains("returned an invalid record or reply: `s/X`"), "{error}");
    put(one, "X", original.to_vec()).await;
    assert!(value(&vault("a"), &*site.store, one, "X").await.is_ok());
    let other = Vault::new(KeyRing::parse(&format!("a:{}", "77".repeat(32))).unwrap());
    let error = value(&other, &*site.store, one, "X").await.unwrap_err();
    assert!(error.contains("key `a` doesn't open it"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writes_of_a_secret_get_distinct_versions() {
    let site = site().await;
    let (vault, now) = (vault("a"), Clock::default().now());
    let set = |n: usize| {
        let value = PlainSecret::new(format!("value number {n}")).unwrap();
        SetSecret { name: "Z".parse().unwrap(), value, hosts: None, overwrite: true, within: Quota::default() }
    };
    let asked: Vec<SetSecret> = (0..8).map(set).collect();
    let all = asked.iter().map(|set| vault.set(&*site.store, now, &site.owners[0], set));
    let mut versions: Vec<u64> =
        futures::future::join_all(all).await.into_iter().map(|set| set.unwrap().0.version).collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=8).collect::<Vec<_>>());
}
