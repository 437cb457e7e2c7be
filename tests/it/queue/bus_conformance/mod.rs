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
                a_receive_returns_no_more_than_asked a_receive_is_bounded_in_bytes one_id_of_two_owners_is_two_messages
                a_waiting_receiver_gets_a_message
                an_acknowledged_message_is_gone an_unsettled_message_comes_again
                progress_starts_the_ack_wait_again a_nak_delays_redelivery a_nak_without_delay_redelivers_at_once
                two_receivers_share_the_queue a_receive_given_up_loses_nothing a_wake_arrives
                messages_in_transit_are_listed accepted_messages_survive_a_restart
                signals_reach_their_listeners live_text_continues_after_a_position control_signals_of_every_owner_arrive_with_the_owner
                signals_without_a_listener_are_lost every_address_can_be_published_to
                bus_settings_are_reported
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
