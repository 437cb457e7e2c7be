//! Rules for agents elsewhere that agents of this venue give work to by the Agent2Agent protocol: settings, names, cards,
//! messages, and what an answer means. How agents of this venue are reached says [`crate::agent::a2a`].
//!
//! | file | what it decides |
//! |---|---|
//! | [`remote`] | which settings of an agent elsewhere are legal |
//! | [`name`] | path and name of its tool |
//! | [`card`] | what of a card can be used, and which bytes its signatures sign |
//! | [`pin`] | the approved card, and what has changed |
//! | [`message`] | what a call may say, and the requests of both bindings |
//! | [`fault`] | what an error of the protocol means, and what to do |
//! | [`answer`] | what the caller gets of a task or a message |
//! | [`shared`] | which ids of a shared agent an owner may name |
//! | [`task`] | what is known of a task elsewhere, and the next step |

pub mod answer;
pub mod card;
pub mod fault;
pub mod message;
pub mod name;
pub mod pin;
pub mod remote;
pub mod shared;
pub mod task;
