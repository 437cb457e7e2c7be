//! Answers about policy: roots and revocations.
