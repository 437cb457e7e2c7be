//! Subjects: how an address becomes a NATS subject, and back.
