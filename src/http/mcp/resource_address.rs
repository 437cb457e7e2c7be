//! Addresses of resources, `trellis://…`.

/// What an address begins with.
const SCHEME: &str = "trellis://";

/// Longest address, in bytes: the longest path of the lattice, escaped.
const ADDRESS_BYTES: usize = 8_192;

/// A resource that an address names; its ids are checked where it is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResourceAddress {
    /// The record of a job.
    Job(String),
    /// The newest turns of an agent.
    Timeline(String),
    /// A conversation of an agent.
    Transcript { agent: String, session: String },
    /// A turn with its prompt.
    Prompt { agent: String, session: String, turn: u64 },
    /// A path of the lattice.
    Lattice(String),
}

impl ResourceAddress {
    /// Parses an address; `None` if it is of no resource of a venue.
    pub(super) fn parse(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix(SCHEME).filter(|rest| rest.len() <= ADDRESS_BYTES)?;
        let segments: Vec<String> = rest.split('/').map(unescape).collect::<Option<_>>()?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let own = |text: &str| text.to_owned();
        match segments.as_slice() {
            ["jobs", id] => Some(Self::Job(own(id))),
            ["agents", agent, "timeline"] => Some(Self::Timeline(own(agent))),
            ["agents", agent, "sessions", session] => {
                Some(Self::Transcript { agent: own(agent), session: own(session) })
            }
            ["agents", agent, "turns", session, turn] => {
                Some(Self::Prompt { agent: own(agent), session: own(session), turn: turn.parse().ok()? })
            }
            // Segments of a path have escapes of their own, which are no part of the address.
            ["lattice", path @ ..] if !path.is_empty() => Some(Self::Lattice(path.join("/"))),
            _ => None,
        }
    }
}

/// Decodes `%41` and its like; `None` if an escape is broken or the text is not UTF-8.
fn unescape(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_one_resource() {
        let own = |text: &str| text.to_owned();
        for (uri, expected) in [
            ("trellis://jobs/0f", Some(ResourceAddress::Job(own("0f")))),
            ("trellis://agents/a%2Eb/timeline", Some(ResourceAddress::Timeline(own("a.b")))),
            (
                "trellis://agents/a/sessions/s%20",
                Some(ResourceAddress::Transcript { agent: own("a"), session: own("s ") }),
            ),
            (
                "trellis://agents/a/turns/s/12",
                Some(ResourceAddress::Prompt { agent: own("a"), session: own("s"), turn: 12 }),
            ),
            ("trellis://lattice/w/x/y", Some(ResourceAddress::Lattice(own("w/x/y")))),
            ("trellis://lattice/", Some(ResourceAddress::Lattice(String::new()))),
            ("trellis://lattice", None),
            ("trellis://agents/a/turns/s/x", None),
            ("trellis://jobs/%4", None),
            ("trellis://jobs/%ff", None),
            ("file:///etc/passwd", None),
            ("test://nothing", None),
        ] {
            assert_eq!(ResourceAddress::parse(uri), expected, "{uri}");
        }
    }
}
