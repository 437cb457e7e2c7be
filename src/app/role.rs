//! What a process does.

use crate::process::retry::RetryPolicy;
use std::time::Duration;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Worker and HTTP API.
    Up,
    /// A worker without the HTTP API.
    Worker,
    /// HTTP API alone.
    Serve,
    /// Looks or changes something for an operator, and ends: doesn't wait for servers.
    Command,
    /// The same, and nothing is changed: neither store nor queue is made, or brought up to date.
    Doctor,
}

impl Role {
    /// Returns the command of the role.
    pub(crate) const fn command(self) -> &'static str {
        match self {
            Self::Up => "trellis up",
            Self::Worker => "trellis worker",
            Self::Serve => "trellis serve",
            Self::Command => "trellis",
            Self::Doctor => "trellis doctor",
        }
    }

    /// How long to wait for absent servers.
    pub(crate) const fn patience(self) -> RetryPolicy {
        match self {
            Self::Up | Self::Worker | Self::Serve => RetryPolicy::CONNECT,
            Self::Command | Self::Doctor => RetryPolicy { total: Some(Duration::from_secs(2)), ..RetryPolicy::CONNECT },
        }
    }
}
