//! Shares, turns, what is remembered, and what the queue shows of it.

use super::*;
use crate::domain::share::LONG_HOLD;
use crate::domain::time::Millis;
use crate::venue::census::OwnerSpread;
use std::collections::VecDeque;

fn owner(name: &str) -> Owner {
    name.parse().unwrap()
}

fn part(name: &str) -> OwnerPart {
    name.parse().unwrap()
}

/// Slots that are shared so.
fn slot_table(slots: usize, percent: u32, spread: OwnerSpread) -> Arc<SlotTable> {
    slot_table_by(&Clock::system(), slots, percent, spread)
}

fn slot_table_by(clock: &Clock, slots: usize, percent: u32, spread: OwnerSpread) -> Arc<SlotTable> {
    let census = OwnerCensus::default();
    census.set_spread(spread);
    SlotTable::new(slots, percent, Arc::new(census), clock)
}

impl SlotTable {
    fn share_among(&self, spread: OwnerSpread) {
        self.census.set_spread(spread);
        self.note_census();
    }

    fn is_empty(&self) -> bool {
        let table = self.table.lock();
        table.tenants.is_empty()
            && table.tenant_order.is_empty()
            && (table.taken, table.waiting, table.unacknowledged_count) == (0, 0, 0)
    }
}

fn session(name: &str) -> SessionKey {
    SessionKey { agent: "a".parse().unwrap(), session: name.parse().unwrap() }
}

fn due(table: &SlotTable, owner: &Owner, name: &str) {
    assert!(!table.enqueue_waiting(owner, &session(name), &SlotWait::Due), "there is no message");
}

/// A message that nobody settles.
struct Unsettled;

#[async_trait::async_trait]
impl Acknowledge for Unsettled {
    async fn ack(&self) {}
    async fn nak(&self, _: Duration) {}
    async fn progress(&self) {}
}

#[test]
fn no_owner_takes_all_slots_before_owners_are_counted() {
    let (table, [a, b]) = (SlotTable::new(8, 75, Arc::default(), &Clock::system()), ["x/a", "x/b"].map(owner));
    let mut taken: Vec<_> = std::iter::from_fn(|| table.take(&a)).collect();
    assert_eq!(taken.len(), 4, "75 % of what a tenant may have, which is 6");
    due(&table, &a, "waits");
    taken.push(table.take(&b).unwrap());
    table.share_among(OwnerSpread::Alone);
    assert!(table.take_next().is_some_and(|(slot, _)| slot.owner == a), "alone it may have all");
}

#[test]
fn only_one_of_several_owners_leaves_slots_free() {
    let (table, [a, b]) = (slot_table(4, 50, OwnerSpread::Alone), ["x/a", "x/b"].map(owner));
    let alone: Vec<_> = (0..4).map(|_| table.take(&a).unwrap()).collect();
    table.share_among(OwnerSpread::Users);
    assert!(table.take(&a).is_none() && table.take(&b).is_none(), "what runs goes on, nothing more begins");
    due(&table, &a, "s1");
    due(&table, &a, "s2");
    due(&table, &a, "s1");
    assert!(table.take_next().is_none() && table.is_full(&a) && table.is_full(&b));
    drop(alone);
    assert!(table.take(&a).is_none(), "others wait");
    assert!(table.is_full(&a) && !table.is_full(&b));
    let other = table.take(&b).unwrap();
    assert!(table.owners_at_share(9).is_empty(), "its sessions are called next");
    let (first, second) = (table.take_next().unwrap(), table.take_next().unwrap());
    assert!(table.take(&b).is_none(), "one is left for whoever has none");
    assert_eq!((first.1, second.1), (session("s1"), session("s2")), "first come, first called, and called once");
    assert!(table.take(&a).is_none() && table.take_next().is_none(), "it has its share");
    due(&table, &a, "s3");
    assert_eq!(table.owners_at_share(9), ["x/a"], "that is why it waits");
    drop(other);
    assert_eq!((table.owners_at_share(9), table.owners_at_share(0)), (vec!["x/a".to_owned()], Vec::new()));
    drop((first.0, second.0));
    assert_eq!(table.take_next().unwrap().1, session("s3"));
    assert!(table.take_next().is_none() && table.is_empty(), "nobody is remembered for ever");
}

#[test]
fn owners_whose_sessions_wait_take_turns() {
    let (table, [a, b, c]) = (slot_table(2, 50, OwnerSpread::Users), ["x/a", "x/b", "x/c"].map(owner));
    let mut taken = VecDeque::from([table.take(&a).unwrap(), table.take(&b).unwrap()]);
    for n in 1..=3 {
        due(&table, &a, &format!("a{n}"));
    }
    due(&table, &b, "b1");
    due(&table, &c, "c1");
    let mut called = Vec::new();
    while let Some(leaving) = taken.pop_front() {
        drop(leaving);
        if let Some((slot, next)) = table.take_next() {
            called.push(next.session.to_string());
            taken.push_back(slot);
        }
    }
    assert_eq!(called, ["a1", "b1", "c1", "a2", "a3"]);
    assert!(table.is_empty());
}

#[tokio::test]
async fn slots_that_are_held_long_make_room_for_owners_that_hold_none() {
    let clock = Clock::manual(Millis(1));
    let table = slot_table_by(&clock, 2, 75, OwnerSpread::Alone);
    let [a, b, c, d] = ["x/a", "x/b", "x/c", "x/d"].map(owner);
    let mut kept: Vec<_> = std::iter::from_fn(|| table.take(&a)).collect();
    assert_eq!(kept.len(), 2, "it is alone");
    due(&table, &a, "more");
    for other in [&b, &c, &d] {
        due(&table, other, "waits");
        due(&table, other, "waits-too");
    }
    assert!(table.take_next().is_none() && table.is_full(&b), "the first may end at once");
    clock.advance(LONG_HOLD * 2);
    assert!(!table.is_full(&owner("x/e")) && table.is_full(&a));
    let next: Vec<_> = std::iter::from_fn(|| table.take_next()).collect();
    assert_eq!(next.iter().map(|(slot, _)| &slot.owner).collect::<Vec<_>>(), [&b, &c, &d], "one of each");
    assert_eq!(table.next_queue_request(true).await, QueueRequest { limit: READ_AHEAD, when_empty: WhenEmpty::Return });
    drop(next);
    kept.clear();
    assert!(table.take_next().is_some(), "what waits goes on");
    table.remove_waiting();
    assert!(table.is_empty());
}

#[test]
fn the_second_owner_shares_with_its_first_message() {
    let (table, [a, b, c]) = (slot_table(8, 75, OwnerSpread::Alone), ["x/a", "x/b", "x/c"].map(owner));
    let mut kept = Vec::new();
    for _ in 0..8 {
        kept.extend(table.take(&a));
        kept.extend(table.take(&b));
    }
    assert_eq!(kept.len(), 7, "one is left for an owner that holds none");
    assert!(table.take(&c).is_some());
}

/// Takes all slots that an owner gets; their number.
fn fill(table: &Arc<SlotTable>, kept: &mut Vec<AdmissionSlot>, name: &str) -> usize {
    let before = kept.len();
    kept.extend(std::iter::from_fn(|| table.take(&owner(name))));
    kept.len() - before
}

#[test]
fn the_users_of_a_tenant_have_together_what_one_tenant_has() {
    let mut kept = Vec::new();
    let table = slot_table(16, 75, OwnerSpread::Tenants);
    table.census.note_users(part("single"), false);
    assert_eq!(fill(&table, &mut kept, "single/a"), 12, "its tenant has no other user");
    kept.clear();
    let held = ["a/1", "a/2", "a/3", "a/4", "single/a", "b/1", "b/2"].map(|name| fill(&table, &mut kept, name));
    assert_eq!(held, [9, 2, 1, 0, 2, 1, 0], "and the last is for a tenant that has none");
    assert!(table.is_full(&owner("a/9")) && table.is_full(&owner("b/2")) && !table.is_full(&owner("c/1")));
    kept.clear();
    assert!(table.is_empty(), "nobody is remembered for ever");
}

#[test]
fn the_waiting_tenant_and_user_with_the_fewest_slots_is_next() {
    let mut kept = Vec::new();
    let table = slot_table(8, 50, OwnerSpread::Tenants);
    for name in ["a/1", "a/2", "a/3", "b/1", "c/1"] {
        fill(&table, &mut kept, name);
    }
    let of_tenant =
        |name: &str, kept: &[AdmissionSlot]| kept.iter().filter(|slot| slot.owner.tenant() == &part(name)).count();
    assert_eq!((of_tenant("a", &kept), of_tenant("b", &kept), of_tenant("c", &kept)), (4, 1, 1));
    for name in ["a/1", "a/2", "a/4", "a/5", "b/2", "d/1", "d/2"] {
        due(&table, &owner(name), "waits");
    }
    // Slots of `a` become free, one after the other.
    kept.sort_by_key(|slot| std::cmp::Reverse(slot.owner.tenant().clone()));
    let mut called = Vec::new();
    for freed in 0..=4 {
        if freed > 0 {
            drop(kept.pop());
        }
        while let Some((slot, _)) = table.take_next() {
            called.push(slot.owner.to_string());
            kept.insert(0, slot);
        }
    }
    assert_eq!(called, ["d/1", "b/2", "d/2", "a/2", "a/1"]);
    kept.clear();
    table.remove_waiting();
    assert!(table.is_empty());
}

#[test]
fn forgotten_waiters_are_fetched_once_when_a_slot_is_free() {
    let (table, a) = (slot_table(2, 100, OwnerSpread::Users), owner("x/a"));
    assert_eq!(table.sessions_to_fetch(&a), None);
    for n in 0..=OWNER_WAITING_MAX {
        due(&table, &a, &format!("s{n}"));
    }
    assert_eq!(table.sessions_to_fetch(&a), None, "some wait");
    assert_eq!(table.remove_waiting().sessions.len(), OWNER_WAITING_MAX);
    assert_eq!((table.sessions_to_fetch(&a), table.sessions_to_fetch(&a)), (Some(2), None));
    let both = [table.take(&a), table.take(&a)];
    table.finish_lookup(&a, true);
    assert_eq!(table.sessions_to_fetch(&a), None, "no slot is free");
    drop(both);
    assert_eq!((table.sessions_to_fetch(&a), table.sessions_to_fetch(&a)), (Some(2), None));
    let one = table.take(&a);
    table.note_more_due(&a);
    table.finish_lookup(&a, false);
    assert_eq!(table.sessions_to_fetch(&a), Some(2), "since it was asked there are more");
    drop(one);
    table.note_more_due(&a);
    table.finish_lookup(&a, false);
    assert_eq!(table.sessions_to_fetch(&a), None, "it has nothing here");
    assert!(table.is_empty());
}

#[test]
fn wakes_of_anybody_take_no_places_of_sessions_that_are_known() {
    let (table, a) = (slot_table(1, 100, OwnerSpread::Users), owner("x/a"));
    for n in 0..=UNCONFIRMED_MAX {
        assert!(!table.enqueue_waiting(&a, &session(&format!("made-up-{n}")), &SlotWait::Woken));
    }
    due(&table, &a, "s");
    let sessions = table.remove_waiting().sessions;
    assert_eq!((sessions.len(), &sessions[UNCONFIRMED_MAX].1), (UNCONFIRMED_MAX + 1, &session("s")));
    assert!(table.sessions_to_fetch(&a).is_some(), "the store knows whether there are more");
}

#[test]
fn waiting_sessions_are_bounded_with_one_of_every_owner() {
    let table = slot_table(1, 100, OwnerSpread::Users);
    for number in 0..WAITING_MAX / OWNER_WAITING_MAX + 5 {
        let owner = owner(&format!("x/u{number}"));
        (0..OWNER_WAITING_MAX).for_each(|n| due(&table, &owner, &format!("s{n}")));
    }
    assert_eq!(table.remove_waiting().sessions.len(), WAITING_MAX + 5);
}

#[test]
fn messages_are_kept_as_long_as_as_many_sessions_wait() {
    let (table, a) = (slot_table(1, 100, OwnerSpread::Users), owner("x/a"));
    let message: Arc<dyn Acknowledge> = Arc::new(Unsettled);
    let keeps = |name: &str| table.enqueue_waiting(&a, &session(name), &SlotWait::Admitted(&message));
    assert!(keeps("s1") && keeps("s2") && !keeps("s2"), "one for each");
    assert_eq!((table.unacknowledged_messages().len(), table.release(&a).len()), (2, 0));
    assert_eq!((0..20).filter(|_| table.claim_announcement(&a)).count(), WAKES_MAX);
    table.note_more_due(&a);
    for _ in 0..2 {
        drop(table.take_next().unwrap());
    }
    assert_eq!((table.release(&a).len(), table.sessions_to_fetch(&a)), (0, Some(1)), "more may be in the store");
    due(&table, &a, "s3");
    table.finish_lookup(&a, false);
    assert_eq!((table.release(&a).len(), table.unacknowledged_messages().len()), (1, 1));
    assert!(table.claim_announcement(&a), "it begins to wait once more");
    drop(table.take_next().unwrap());
    assert_eq!(table.release(&a).len(), 1);
    assert!(table.is_empty());
    for n in 0..=UNACKNOWLEDGED_MAX {
        let other = owner(&format!("x/u{n}"));
        assert_eq!(table.enqueue_waiting(&other, &session("s"), &SlotWait::Admitted(&message)), n < UNACKNOWLEDGED_MAX);
    }
    assert_eq!(table.remove_waiting().messages.len(), UNACKNOWLEDGED_MAX);
    assert!(table.unacknowledged_messages().is_empty() && table.is_empty());
}

#[tokio::test]
async fn only_with_several_owners_more_than_free_slots_is_fetched() {
    let (table, a) = (slot_table(2, 50, OwnerSpread::Alone), owner("x/a"));
    assert_eq!(table.next_queue_request(false).await, QueueRequest { limit: 2, when_empty: WhenEmpty::Wait });
    let first = table.take(&a).unwrap();
    assert_eq!(table.next_queue_request(false).await, QueueRequest { limit: 1, when_empty: WhenEmpty::Wait });
    let second = table.take(&a).unwrap();
    assert!(tokio::time::timeout(READ_PAUSE * 2, table.next_queue_request(false)).await.is_err());
    assert_eq!(
        table.next_queue_request(true).await,
        QueueRequest { limit: READ_AHEAD_ALONE, when_empty: WhenEmpty::Return }
    );
    table.share_among(OwnerSpread::Users);
    assert_eq!(
        table.next_queue_request(false).await,
        QueueRequest { limit: READ_AHEAD, when_empty: WhenEmpty::Return }
    );
    drop((first, second));
    assert_eq!(table.next_queue_request(false).await, QueueRequest { limit: READ_AHEAD, when_empty: WhenEmpty::Wait });
}
