//! Bus over NATS JetStream.
