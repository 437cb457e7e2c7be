//! The rules of `Bus`, one case each, stamped on every backend: none can skip one.
//!
//! A backend implements [`Fixture`] and adds one line, `conformance!(name, ItsFixture);`.

#![deny(dead_code)]

mod cases;
mod embedded;
mod nats;
mod simulated;

use std::sync::Arc;
use std::time::Duration;
use trellis::bus::Bus;

/// A backend under test.
pub trait Fixture: Sized {
    /// An empty bus with this ack wait; `None` when its server isn't installed.
    async fn new(ack_wait: Duration) -> Option<Self>;
    /// The bus.
    fn bus(&self) -> Arc<dyn Bus>;
    /// The same queue as a new process sees it; the old bus is gone.
    async fn reopen(self) -> Self;
}

/// Stamps every case on a backend.
macro_rules! conformance {
    ($backend:ident, $fixture:ty) => {
        mod $backend {
            $crate::queue::bus_conformance::stamp! { $fixture:
                messages_come_in_order_with_their_facts an_empty_queue_answers_with_nothing
                no_more_than_asked_for no_more_bytes_than_a_process_can_hold one_id_of_two_owners_is_two_messages
                a_waiting_receiver_gets_a_message
                an_acknowledged_message_is_gone an_unsettled_message_comes_again
                progress_starts_the_ack_wait_again a_nak_puts_it_off a_nak_of_no_delay_brings_it_again
                two_receivers_share_the_queue a_receive_given_up_loses_nothing a_wake_arrives
                what_is_in_transit_is_listed accepted_messages_survive_a_restart
                signals_reach_who_listens live_text_goes_on_behind_its_place control_hears_every_owner_and_says_whose_subject_it_was
                signals_without_a_listener_are_lost every_address_can_be_published_to
                settings_say_something
            }
        }
    };
}
pub(crate) use conformance;

macro_rules! stamp {
    ($fixture:ty: $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let ack_wait = $crate::queue::bus_conformance::cases::ack_wait(stringify!($case));
                let Some(fixture) = <$fixture as $crate::queue::bus_conformance::Fixture>::new(ack_wait).await else { return };
                $crate::queue::bus_conformance::cases::$case(fixture).await;
            }
        )*
    };
}
pub(crate) use stamp;
