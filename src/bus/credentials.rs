//! User and password out of NATS addresses.

use async_nats::{ConnectOptions, ServerAddr};

/// User and password of the first URL that has them; a user alone is a token, as in other clients.
/// The driver itself ignores what stands in a URL.
pub fn credentials(settings: ConnectOptions, servers: &[ServerAddr]) -> ConnectOptions {
    let Some(server) = servers.iter().find(|server| server.has_user_pass()) else { return settings };
    let user = percent_decoded(server.username().unwrap_or_default());
    match server.password() {
        Some(password) => settings.user_and_password(user, percent_decoded(password)),
        None => settings.token(user),
    }
}

/// What stands in a URL for other characters; bytes that are no escape stay as they are.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escape = tail.get(..2).filter(|_| *first == b'%').and_then(|digits| hex::decode(digits).ok());
        rest = if let Some(byte) = escape {
            bytes.extend(byte);
            &tail[2..]
        } else {
            bytes.push(*first);
            tail
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::percent_decoded;

    #[test]
    fn escapes_of_a_url_are_undone() {
        for (text, plain) in
            [("plain", "plain"), ("p%40ss%2Fw", "p@ss/w"), ("%C3%BC", "ü"), ("100%", "100%"), ("%zz", "%zz")]
        {
            assert_eq!(percent_decoded(text), plain);
        }
    }
}
