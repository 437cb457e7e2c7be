//! Limits of logins at the servers of the Model Context Protocol. Other people run the servers that issue tokens: each of
//! their answers is bounded before it is read.

use std::time::Duration;

/// Bytes of one answer of a login server: metadata, a registration or tokens. Large ones have 20 KiB.
pub const MCP_LOGIN_BYTES: usize = 256 * 1024;

/// Longest time of one request to a login server with its answer.
pub const MCP_LOGIN_TIME: Duration = Duration::from_secs(15);

/// Bytes of a token, and of a client's secret: servers take about 8 KiB of all headers together.
pub const MCP_TOKEN_BYTES: usize = 8 * 1024;

/// Scopes of one login.
pub const MCP_SCOPES: usize = 64;
/// Bytes of all scopes of one login: they stand in a URL that a person opens.
pub const MCP_SCOPE_BYTES: usize = 2_048;

/// Bytes of the id of a client, which may be a URL.
pub const MCP_CLIENT_ID_BYTES: usize = 2_048;

/// Login servers that one server may name.
pub const MCP_ISSUERS: usize = 16;

/// Logins of one owner that have begun and haven't ended.
pub const MCP_BEGUN_LOGINS: usize = 16;

/// Time in which a login must end: a person reads, and perhaps looks for a second factor.
pub const MCP_BEGUN_LOGIN_TIME: Duration = Duration::from_mins(10);

/// Longest life of a token, whatever the login server says.
pub const MCP_TOKEN_LIFE: Duration = Duration::from_hours(24 * 365);

/// Time before its end at which a token is renewed: longer than clocks differ, and than a call takes to leave.
pub const MCP_TOKEN_MARGIN: Duration = Duration::from_mins(1);

/// Time for which one process alone may renew a token: longer than its requests take, and than the store is away in a
/// restart.
pub const MCP_RENEWAL_CLAIM: Duration = Duration::from_mins(1);

/// Time that a call waits for a token that another process renews: longer than the claim of one that was killed.
pub const MCP_RENEWAL_WAIT: Duration = Duration::from_secs(70);

/// Time for which the store is tried with a new token: login servers give it once.
pub const MCP_TOKEN_KEEP_TIME: Duration = Duration::from_secs(40);

/// Time after the replacement of a refused token in which another refusal replaces none.
pub const MCP_REFUSAL_PAUSE: Duration = Duration::from_secs(30);
