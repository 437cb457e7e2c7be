//! Changes that come at once, over a store that fails on purpose.

use super::*;
use crate::store::embedded::EmbeddedStore;
use crate::store::faulty::{FaultPlan, FaultyStore};
use crate::store::{Layer, StoreMethod};
use futures::future::join_all;
use tokio::sync::Semaphore;

const NOW: Millis = Millis(1_700_000_000_000);

/// Adds to numbers, up to a limit of the first.
struct Add {
    keys: Vec<DocKey>,
    most: u64,
}

impl GroupEdit for Add {
    type Value = u64;
    type Answer = Result<u64, u64>;

    fn keys(&self) -> &[DocKey] {
        &self.keys
    }

    fn decode(&self, at: usize, doc: &Doc) -> Result<Option<u64>, StoreError> {
        doc.decode(&self.keys[at])
    }

    fn apply(&self, sheets: &mut [Option<u64>]) -> Self::Answer {
        assert!(self.most > 0, "nothing is ever allowed");
        let first = sheets[0].unwrap_or_default();
        if first >= self.most {
            return Err(first);
        }
        for sheet in sheets {
            *sheet = Some(sheet.unwrap_or_default() + 1);
        }
        Ok(first + 1)
    }
}

struct Site {
    _dir: tempfile::TempDir,
    owner: Owner,
    faulty: Arc<FaultyStore>,
    store: Arc<dyn Store>,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let faulty = FaultyStore::new(EmbeddedStore::open(dir.path()).unwrap(), FaultPlan::Never);
        let store = Arc::clone(&faulty) as Arc<dyn Store>;
        Self { _dir: dir, owner: "acme/ann".parse().unwrap(), faulty, store }
    }

    async fn add(&self, grouped: &EditBatcher<Add>, keys: &[&str], most: u64) -> Result<Result<u64, u64>, StoreError> {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        grouped.apply(&self.store, NOW, &self.owner, "lane", Add { keys, most }).await
    }

    async fn number(&self, key: &str) -> Option<u64> {
        self.store.get(&self.owner, key).await.unwrap()
    }
}

#[tokio::test]
async fn concurrent_edits_are_written_together_in_order() {
    let (site, grouped) = (Site::new(), EditBatcher::default());
    let own: Vec<_> = (0..300).map(|n| format!("own/{n}")).collect();
    let added = join_all(own.iter().map(async |own| site.add(&grouped, &["all", own], 250).await)).await;
    let answers: Vec<_> = added.into_iter().map(Result::unwrap).collect();
    let wanted: Vec<_> = (1..=250).map(Ok).chain(std::iter::repeat_n(Err(250), 50)).collect();
    assert_eq!(answers, wanted, "each decides by what those before it have left");
    assert_eq!(
        (site.number("all").await, site.number("own/7").await, site.number("own/299").await),
        (Some(250), Some(1), None)
    );
    assert!(site.faulty.count_calls() <= 6, "{:?}", site.faulty.calls());
    assert!(grouped.lanes.lock().is_empty(), "a lane where nobody waits is gone");
}

#[tokio::test]
async fn an_edit_without_a_change_writes_nothing() {
    let (site, grouped) = (Site::new(), EditBatcher::default());
    assert_eq!(site.add(&grouped, &["n"], 1).await.unwrap(), Ok(1));
    let before = site.faulty.count_calls();
    assert_eq!(site.add(&grouped, &["n", "other"], 1).await.unwrap(), Err(1));
    assert_eq!((site.faulty.count_calls(), site.number("other").await), (before, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_change_the_same_lose_nothing_of_each_other() {
    let (site, processes) = (Site::new(), [(); 4].map(|()| EditBatcher::default()));
    let adding = processes.iter().flat_map(|grouped| (0..50).map(|_| site.add(grouped, &["n"], 1_000)));
    let mut answers: Vec<_> = join_all(adding).await.into_iter().map(|added| added.unwrap().unwrap()).collect();
    answers.sort_unstable();
    assert_eq!(answers, (1..=200).collect::<Vec<u64>>());
    assert_eq!(site.number("n").await, Some(200));
}

#[tokio::test]
async fn a_damaged_document_fails_only_edits_that_name_it() {
    let (site, grouped) = (Site::new(), EditBatcher::default());
    site.store.write(NOW, &site.owner, &[DocWrite::put("bad", "no number")]).await.unwrap();
    let keys: [&[&str]; 3] = [&["n"], &["n", "bad"], &["n"]];
    let added = join_all(keys.map(|keys| site.add(&grouped, keys, 10))).await;
    assert!(matches!(&added[..], [Ok(Ok(1)), Err(StoreError::Corrupt { .. }), Ok(Ok(2))]), "{added:?}");
}

#[tokio::test]
async fn an_edit_dropped_before_its_turn_has_no_effect() {
    let (site, grouped) = (Site::new(), EditBatcher::default());
    let mut leaves = Box::pin(site.add(&grouped, &["n"], 10));
    assert!(futures::poll!(&mut leaves).is_pending());
    let stays = async {
        drop(leaves);
        site.add(&grouped, &["n"], 10).await
    };
    assert_eq!(stays.await.unwrap(), Ok(1));
}

/// A store whose writes wait until they are let through.
struct Slow {
    inner: Arc<dyn Store>,
    writes: Semaphore,
    waiting: Semaphore,
}

impl Layer for Slow {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        StoreMethod { name: method, .. }: StoreMethod,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T, StoreError> {
        if method == "write" {
            self.waiting.add_permits(1);
            self.writes.acquire().await.unwrap().forget();
        }
        call().await
    }
}

#[tokio::test]
async fn an_abandoned_edit_is_not_retried() {
    let Site { _dir, owner, store: inner, .. } = Site::new();
    let slow = Arc::new(Slow { inner: Arc::clone(&inner), writes: Semaphore::new(0), waiting: Semaphore::new(0) });
    let (store, grouped) = (Arc::clone(&slow) as Arc<dyn Store>, EditBatcher::default());
    let add = || {
        let edit = Add { keys: vec!["n".into()], most: 10 };
        Box::pin(grouped.apply(&store, NOW, &owner, "lane", edit))
    };
    let (mut leaves, mut stays) = (add(), add());
    assert!(futures::poll!(&mut leaves).is_pending() && futures::poll!(&mut stays).is_pending());
    slow.waiting.acquire().await.unwrap().forget();
    // Their write is under way. Another process is faster, and one of them goes.
    inner.write(NOW, &owner, &[DocWrite::json("n", &5)]).await.unwrap();
    drop(leaves);
    slow.writes.add_permits(2);
    assert_eq!(stays.await.unwrap(), Ok(6));
    assert_eq!(inner.get(&owner, "n").await.unwrap(), Some(6_u64));
    // Where all have gone, nothing is written.
    let mut leaves = add();
    assert!(futures::poll!(&mut leaves).is_pending());
    slow.waiting.acquire_many(2).await.unwrap().forget();
    inner.write(NOW, &owner, &[DocWrite::json("n", &9)]).await.unwrap();
    drop(leaves);
    slow.writes.add_permits(2);
    while !grouped.lanes.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(inner.get(&owner, "n").await.unwrap(), Some(9_u64));
    assert_eq!(slow.waiting.available_permits(), 0, "and nothing was tried");
}

#[tokio::test]
async fn after_a_panic_waiters_get_an_error_and_new_edits_work() {
    let (site, grouped) = (Site::new(), EditBatcher::default());
    let both = join_all([0, 10].map(|most| site.add(&grouped, &["n"], most))).await;
    assert!(both.iter().all(|told| matches!(told, Err(StoreError::Unavailable { .. }))), "{both:?}");
    assert_eq!(site.add(&grouped, &["n"], 10).await.unwrap(), Ok(1));
}

#[tokio::test]
async fn an_outage_fails_every_edit_of_a_group() {
    let (site, grouped) = (Site::new(), EditBatcher::default());
    site.faulty.set_plan(FaultPlan::EachOf("write"));
    let added = join_all((0..3).map(|_| site.add(&grouped, &["n"], 10))).await;
    assert!(added.iter().all(|told| matches!(told, Err(StoreError::Unavailable { .. }))), "{added:?}");
    site.faulty.set_plan(FaultPlan::Never);
    assert_eq!(site.add(&grouped, &["n"], 10).await.unwrap(), Ok(1));
}
