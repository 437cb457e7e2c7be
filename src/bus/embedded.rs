//! Bus over the embedded store's own queue.
