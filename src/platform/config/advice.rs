//! What an operator can do about a server that can't be reached.

/// Returns advice for the reason of a failed connection, as a clause; `setting` names the address of the server, and
/// `url` is its value.
pub fn connection_advice(reason: &str, setting: &str, url: &str) -> String {
    let has = |part: &str| reason.to_lowercase().contains(part);
    let encrypted = ["rediss", "tls", "wss"].iter().any(|scheme| url.starts_with(scheme));
    if has("invalidcontenttype") {
        format!("the server there speaks no TLS: `{setting}` without it is {}", without_tls(url))
    } else if has("connection refused") {
        format!("nothing listens there: start the server, or set `{setting}`")
    } else if has("lookup") || has("name or service not known") || has("resolve") {
        format!("no machine has this name: check `{setting}`")
    } else if has("certificate") || has("unknownissuer") {
        format!("its certificate isn't trusted: check `{}`", setting.replace(".url", ".tls_ca"))
    } else if has("auth") || has("noauth") || has("wrongpass") {
        format!("check the name and password in `{setting}`")
    } else if !encrypted && (has("eof") || has("closed") || has("reset") || has("broken pipe") || has("parse")) {
        format!("another program may listen there, or one that expects TLS: check `{setting}`")
    } else {
        format!("check that the server runs and `{setting}` leads to it")
    }
}

/// Returns the same address with the scheme of a plain connection.
fn without_tls(url: &str) -> String {
    let plain = [("rediss", "redis"), ("tls:", "nats:"), ("wss:", "ws:")];
    let found = plain.iter().find(|(with, _)| url.starts_with(with));
    format!("`{}`", found.map_or(url.to_owned(), |(with, without)| url.replacen(with, without, 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_advice() {
        for (reason, url, part) in [
            (
                "Connection refused (os error 111)",
                "redis://h:1",
                "nothing listens there: start the server, or set `x.url`",
            ),
            ("received corrupt message of type InvalidContentType", "rediss://h:1", "is `redis://h:1`"),
            ("received corrupt message of type InvalidContentType", "tls://h:1", "is `nats://h:1`"),
            ("failed to lookup address information", "redis://h", "no machine has this name"),
            ("invalid peer certificate: UnknownIssuer", "rediss://h", "check `x.tls_ca`"),
            ("unexpected EOF", "redis://h", "one that expects TLS"),
            ("timed out", "redis://h", "check that the server runs"),
        ] {
            let advice = connection_advice(reason, "x.url", url);
            assert!(advice.contains(part), "{reason}: {advice}");
        }
    }
}
