//! Names in Redis: the base key of an owner, the registry of owners, the library of this build.
//!
//! # Layout
//!
//! All keys of an owner start with `O` = `<prefix>:{<shard>}:<tenant>/<user>`, the hash tag of its shard, so that a
//! function may touch all of them and the shard's. `S` is `agent/session`, all ids are encoded tokens, times are
//! milliseconds since the epoch, a zset without a named score has score 0 (it is a sorted index).
//!
//! | key | type | layout | lifetime |
//! |---|---|---|---|
//! | `<prefix>:shards` | string | number of shards that the keys are made for | for good |
//! | `<prefix>:workers` | zset | worker → time of its last request for due owners | three sweeps, or until it signs off |
//! | `<prefix>:libraries` | zset | library of functions → time at which a process last reported its use | a day after that, and with the library |
//! | `<prefix>:{<shard>}:mark` | string | a number that grows, see `functions/mark.lua`; where replicas are waited for | for good |
//! | `<prefix>:{<shard>}:due` | zset | owner token → latest time of its next sweep | while something of it is due |
//! | `<prefix>:owners` | zset | owner tokens | for good |
//! | `O:doc` | hash | document key → `<version> <bytes>`; deleted: `<version>` | deleted: a day |
//! | `O:keys` | zset | keys of present documents | as the document |
//! | `O:gone` | zset | keys of deleted documents → time of the deletion | a day, then a sweep purges them |
//! | `O:seen` | hash | event id → body hash | as the job, or the turn that consumed it |
//! | `O:sessions` | zset | every `S` that ever had an event or was set to a turn | until the session is forgotten |
//! | `O:session:S` | hash | `epoch version arrivals consumed touched state done` (`<epoch> <turn>` of the last commit); while leased `until token worker served job limit`; `task`: the member of the task that was begun; `nudged` when one of its jobs was ended meanwhile; `reply`, `calls` (how many are recorded), `attempts` (crashes, a line each: `epoch turn lapsed job worker`) and `charged` (its epoch, and what it served, a line each; of the last of them) until the commit; `backoff` until the next grant | until it is forgotten |
//! | `O:mailbox:S` | zset | `<order>NUL<event id>` | until consumed |
//! | `O:event:S` | hash | `<order>NUL<event id>` → `<kind> <job or -> <body>` | until consumed |
//! | `O:crash:S` | hash | `<order>NUL<event id>` → crashes | until the next commit |
//! | `O:call:S` | hash | call index → record of an intent or outcome | until the next commit |
//! | `O:due` | zset | `S` → due time | while due |
//! | `O:running:<agent>` | zset | `S` → lease expiry; without an agent: of all agents of the owner | while leased |
//! | `O:waiting:<agent>` | zset | `S` → place in the agent's queue: a number given out, 2^51 less with urgent tasks, more with only low ones | while it waits |
//! | `O:waiting` | set | agents with a queue | while a session waits |
//! | `O:turns` | zset | agents that have a free slot and wait for one of their owner → order of their turns | while one waits |
//! | `O:woken` | hash | waiting `S` → time and id of its last wake | until it came |
//! | `O:outbox` | hash | outbox id → `<number> <message>` | until published |
//! | `O:relay` | zset | outbox id → time at which it was written or last handed out; 0 for a wake | until published |
//! | `O:count` | hash | `waiting`, `turn`, `wake`, `outbox`: numbers given out; `cap`: sessions of the owner that run at once; `epoch`: the highest of a session that was forgotten; `bytes`: what the owner keeps (documents and sessions are counted by their sorted sets, jobs by their list); during a recount, `counted`: how far it is, and `tally`: what it has found there | for good |

use crate::domain::ids::{Owner, sha256_hex};
use crate::domain::shard::{Shard, Shards};
use crate::store::keys;
use std::sync::LazyLock;

/// The helpers that all methods share; each file follows those that it uses.
const PRELUDE: &[&str] = &[
    include_str!("functions/prelude/undo.lua"),
    include_str!("functions/prelude/base.lua"),
    include_str!("functions/prelude/kept.lua"),
    include_str!("functions/prelude/documents.lua"),
    include_str!("functions/prelude/facts.lua"),
    include_str!("functions/prelude/quotas.lua"),
    include_str!("functions/prelude/jobs.lua"),
    include_str!("functions/prelude/messages.lua"),
    include_str!("functions/prelude/sessions.lua"),
    include_str!("functions/prelude/recount.lua"),
    include_str!("functions/prelude/capacity.lua"),
    include_str!("functions/prelude/wakes.lua"),
    include_str!("functions/prelude/after.lua"),
    include_str!("functions/prelude/damage.lua"),
];

/// One file per method, or per few related ones.
const METHODS: &[&str] = &[
    include_str!("functions/admit.lua"),
    include_str!("functions/renew.lua"),
    include_str!("functions/checkpoint.lua"),
    include_str!("functions/commit.lua"),
    include_str!("functions/release.lua"),
    include_str!("functions/published.lua"),
    include_str!("functions/scan.lua"),
    include_str!("functions/page.lua"),
    include_str!("functions/write.lua"),
    include_str!("functions/finish.lua"),
    include_str!("functions/session_changes.lua"),
    include_str!("functions/sweep.lua"),
    include_str!("functions/due.lua"),
    include_str!("functions/libraries.lua"),
    include_str!("functions/mark.lua"),
    include_str!("functions/sessions.lua"),
    include_str!("functions/outbox.lua"),
    include_str!("functions/usage.lua"),
    include_str!("functions/owners.lua"),
];

/// The Lua library of this build. The name of the library and of every function contains a hash of the source, so that
/// two builds don't replace each other's.
pub static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let body = [PRELUDE, METHODS].concat().join("\n");
    let swept: Vec<String> = keys::SWEPT
        .iter()
        .map(|prefix| {
            format!("['{prefix}'] = '{}', ", if keys::SWEPT_BY_TIME.contains(prefix) { "timed" } else { "at once" })
        })
        .collect();
    let swept = format!("local SWEPT = {{ {}}}\n", swept.concat());
    let name = format!("trellis_{}", &sha256_hex(format!("{swept}{body}").as_bytes())[..12]);
    // Every file of methods has a block of its own: Lua allows 200 locals in one scope.
    let methods: Vec<String> = METHODS.iter().map(|method| format!("\ndo\n{method}end\n")).collect();
    let code = format!("#!lua name={name}\n{swept}local LIBRARY = '{name}'\n{}{}", PRELUDE.concat(), methods.concat());
    Library { name, code }
});

/// A named library of functions.
pub struct Library {
    /// Name as `trellis_<hash>`.
    pub name: String,
    /// Source for `FUNCTION LOAD`.
    pub code: String,
}

impl Library {
    /// Returns the name of a method's function.
    pub fn function(&self, method: &str) -> String {
        format!("{}_{method}", self.name)
    }
}

/// The names of keys under one prefix.
#[derive(Debug, Clone)]
pub struct Keyspace {
    prefix: String,
    shards: Shards,
}

impl Keyspace {
    /// Returns the names under `prefix:`.
    pub fn new(prefix: impl Into<String>, shards: Shards) -> Self {
        Self { prefix: prefix.into(), shards }
    }

    /// Returns the number of shards.
    pub const fn shards(&self) -> Shards {
        self.shards
    }

    /// Returns the start of every key of a shard; the braces make it one hash tag.
    fn shard(&self, shard: Shard) -> String {
        format!("{}:{{{shard}}}", self.prefix)
    }

    /// Returns the key that is written beside `key`, on the same server, when replicas must confirm.
    pub fn mark(prefix: &str, key: &[u8]) -> Vec<u8> {
        let tag = key.iter().position(|byte| *byte == b'{').and_then(|from| {
            let length = key[from + 1..].iter().position(|byte| *byte == b'}').filter(|length| *length > 0)?;
            Some(&key[from + 1..=from + length])
        });
        [prefix.as_bytes(), b":{", tag.unwrap_or(key), b"}:mark"].concat()
    }

    /// Returns the start of every key of an owner.
    pub fn owner(&self, owner: &Owner) -> String {
        let token = owner.token();
        format!("{}:{token}", self.shard(self.shards.shard_of(&token)))
    }

    /// Returns the pattern of keys that every owner with documents has.
    pub fn owners_pattern(&self) -> String {
        let prefix: String =
            self.prefix.chars().flat_map(|c| "*?[]\\^".contains(c).then_some('\\').into_iter().chain([c])).collect();
        format!("{prefix}:{{*}}:*:keys")
    }

    /// Returns the token of the owner of a key of that pattern.
    pub fn owner_of(&self, key: &str) -> Option<String> {
        let rest = key.strip_prefix(&self.prefix)?.strip_prefix(":{")?;
        let token = rest.split_once("}:")?.1.strip_suffix(":keys")?;
        (!token.contains(':')).then(|| token.to_owned())
    }

    /// Returns the key of a shard's owners by the time of their next sweep.
    pub fn due(&self, shard: Shard) -> String {
        format!("{}:due", self.shard(shard))
    }

    /// Returns the key of the workers by the time of their last report.
    pub fn workers(&self) -> String {
        format!("{}:workers", self.prefix)
    }

    /// Returns the key of the libraries by the time of their last use.
    pub fn libraries(&self) -> String {
        format!("{}:libraries", self.prefix)
    }

    /// Returns the key of the number of shards that the keys are made for.
    pub fn layout(&self) -> String {
        format!("{}:shards", self.prefix)
    }

    /// Returns the key of the hash of an owner's documents.
    pub fn documents(&self, owner: &Owner) -> String {
        format!("{}:doc", self.owner(owner))
    }

    /// Returns the command that records the number of shards, if none is recorded.
    pub fn record_shards_cmd(&self) -> redis::Cmd {
        let mut cmd = redis::cmd("SET");
        cmd.arg(self.layout()).arg(self.shards.count()).arg("NX");
        cmd
    }

    /// Returns the key of the registry of owners.
    pub fn owners(&self) -> String {
        format!("{}:owners", self.prefix)
    }
}

/// Returns the bounds of a lexicographic range: what starts with `prefix`, after (`reverse`: before) `after`.
pub fn lex_range(prefix: &str, after: Option<&str>, reverse: bool) -> (Vec<u8>, Vec<u8>) {
    let bound = |mark: u8, text: &str, end: &[u8]| [&[mark], text.as_bytes(), end].concat();
    // No UTF-8 text contains the byte 255, so that it sorts after all of them.
    let (mut from, mut to) = (bound(b'[', prefix, b""), bound(b'(', prefix, &[0xff]));
    match after {
        Some(after) if reverse && after.as_bytes() < &to[1..] => to = bound(b'(', after, b""),
        Some(after) if !reverse && after >= prefix => from = bound(b'(', after, b""),
        _ => {}
    }
    (from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_of_an_owner_have_the_hash_tag_of_its_shard() {
        let keys = Keyspace::new("trellis", Shards::default());
        let shard = keys.shards().shard_of("acme/x%7By%7D");
        assert_eq!(keys.owner(&"acme/x{y}".parse().unwrap()), format!("trellis:{{{shard}}}:acme/x%7By%7D"));
        assert_eq!(keys.due(shard), format!("trellis:{{{shard}}}:due"));
        assert_eq!(keys.owners(), "trellis:owners");
        let mark = |key: &str| String::from_utf8(Keyspace::mark("t", key.as_bytes())).unwrap();
        assert_eq!((mark("t:{0aa}:acme/x"), mark("t:owners")), ("t:{0aa}:mark".into(), "t:{t:owners}:mark".into()));
    }

    #[test]
    fn an_owner_is_known_by_its_keys() {
        let keys = Keyspace::new("t*x", Shards::default());
        let owner = "acme/x{y}".parse().unwrap();
        assert_eq!(keys.owner_of(&format!("{}:keys", keys.owner(&owner))), Some(owner.token()));
        for other in ["t*x:owners", "t*x:{0aa}:due", "t*x:{0aa}:acme/ann:doc", "other:{0aa}:acme/ann:keys"] {
            assert_eq!(keys.owner_of(other), None, "{other}");
        }
        assert_eq!(keys.owners_pattern(), "t\\*x:{*}:*:keys");
    }

    #[test]
    fn functions_carry_the_hash_of_their_source() {
        assert_eq!(LIBRARY.name.len(), "trellis_".len() + 12);
        assert!(LIBRARY.code.starts_with(&format!("#!lua name={}\n", LIBRARY.name)));
        assert_eq!(LIBRARY.function("admit"), format!("{}_admit", LIBRARY.name));
    }

    #[test]
    fn ranges_stay_inside_the_prefix() {
        let check = |after, reverse, from: &[u8], to: &[u8]| {
            assert_eq!(lex_range("w/", after, reverse), (from.to_vec(), to.to_vec()), "{after:?} {reverse}");
        };
        check(None, false, b"[w/", b"(w/\xff");
        check(Some("a"), false, b"[w/", b"(w/\xff");
        check(Some("w/b"), false, b"(w/b", b"(w/\xff");
        check(Some("x"), false, b"(x", b"(w/\xff");
        check(None, true, b"[w/", b"(w/\xff");
        check(Some("w/b"), true, b"[w/", b"(w/b");
        check(Some("x"), true, b"[w/", b"(w/\xff");
        check(Some("a"), true, b"[w/", b"(a");
    }
}
