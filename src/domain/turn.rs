//! The turn as a state machine.
