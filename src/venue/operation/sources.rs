//! The published operations of a process, by owner and source: who sees which, and how many there may be.

use super::publication_error::{PublicationError, PublicationRule};
use crate::domain::agent::tool::tool_name;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::lattice::catalog::SourceName;
use crate::domain::limits::{
    PUBLISHED_AGENTS_BYTES, PUBLISHED_BYTES, PUBLISHED_OF_AGENTS, PUBLISHED_OPERATIONS, PUBLISHED_OWNER_BYTES,
    PUBLISHED_PER_OWNER, PUBLISHED_SOURCES,
};
use crate::domain::time::Millis;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A publication whose operations are checked and compiled.
pub(super) struct PreparedPublication<O> {
    pub(super) source: SourceName,
    pub(super) owner: Option<Owner>,
    pub(super) agent: Option<AgentId>,
    /// Version of the publication, with its scope.
    pub(super) version: Arc<str>,
    pub(super) expires: Option<Millis>,
    /// Operations by path.
    pub(super) operations: BTreeMap<Arc<str>, Arc<O>>,
    /// Bytes of the schemas and descriptions.
    pub(super) bytes: usize,
}

/// The operations of one source, as one publication has them.
pub(super) struct PublishedSource<O> {
    /// Number of the publication, of which no other one of the process has the same.
    pub(super) serial: u64,
    version: Arc<str>,
    expires: Option<Millis>,
    pub(super) operations: BTreeMap<Arc<str>, Arc<O>>,
    /// Bytes of the schemas and descriptions.
    bytes: usize,
}

impl<O> PublishedSource<O> {
    fn is_live(&self, now: Millis) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

/// Operations of some sources, and bytes of their schemas and descriptions.
struct PublishedSize {
    operations: usize,
    bytes: usize,
}

impl PublishedSize {
    fn total<'s, O: 's>(sources: impl Iterator<Item = &'s PublishedSource<O>> + Clone) -> Self {
        let operations = sources.clone().map(|source| source.operations.len()).sum();
        Self { operations, bytes: sources.map(|source| source.bytes).sum() }
    }
}

type Sources<O> = BTreeMap<SourceName, Arc<PublishedSource<O>>>;

/// The published operations of a process.
pub(super) struct PublishedOperations<O>(RwLock<PublishedSources<O>>);

impl<O> Default for PublishedOperations<O> {
    fn default() -> Self {
        Self(RwLock::new(PublishedSources { serial: 0, shared: BTreeMap::new(), owned: HashMap::new() }))
    }
}

struct PublishedSources<O> {
    /// Number of the last publication.
    serial: u64,
    /// Sources of all owners.
    shared: Sources<O>,
    owned: HashMap<PublicationScope, Sources<O>>,
}

/// Who may name the operations of a source: all agents and callers of an owner, or one agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PublicationScope {
    pub(super) owner: Owner,
    pub(super) agent: Option<AgentId>,
}

impl<O> PublishedSources<O> {
    fn remove_expired(&mut self, now: Millis) {
        self.shared.retain(|_, source| source.is_live(now));
        self.owned.retain(|_, sources| {
            sources.retain(|_, source| source.is_live(now));
            !sources.is_empty()
        });
    }

    /// Returns the sources whose operations calls of a scope may name; `None` stands for those of all owners alone. Those
    /// of a narrower scope hide those of a wider one.
    fn visible(
        &self,
        scope: Option<&PublicationScope>,
        now: Millis,
    ) -> BTreeMap<&SourceName, &Arc<PublishedSource<O>>> {
        let wide = scope.map(|scope| PublicationScope { owner: scope.owner.clone(), agent: None });
        let of_owner = wide.and_then(|scope| self.owned.get(&scope)).into_iter().flatten();
        let of_agent = scope.filter(|scope| scope.agent.is_some()).and_then(|scope| self.owned.get(scope));
        let own = of_owner.chain(of_agent.into_iter().flatten());
        self.shared.iter().chain(own).filter(|(_, source)| source.is_live(now)).collect()
    }

    /// Checks that there is room for a source in the place of the one before.
    fn check_room(
        &self,
        scope: Option<&PublicationScope>,
        name: &SourceName,
        new: &PublishedSource<O>,
    ) -> Result<(), PublicationError> {
        let group = || name.clone();
        let sources = scope.map_or(Some(&self.shared), |scope| self.owned.get(scope));
        let replaced = sources.and_then(|sources| sources.get(name)).map(|old| &**old);
        if replaced.is_none() && sources.is_some_and(|sources| sources.len() >= PUBLISHED_SOURCES) {
            return Err(PublicationError::TooManySources { group: group() });
        }
        let old = PublishedSize::total(replaced.into_iter());
        let with_new = |before: PublishedSize| PublishedSize {
            operations: before.operations - old.operations + new.operations.len(),
            bytes: before.bytes - old.bytes + new.bytes,
        };
        let own = sources.into_iter().flat_map(BTreeMap::values).map(|source| &**source);
        let PublishedSize { operations: found, bytes } = with_new(PublishedSize::total(own));
        if found > PUBLISHED_PER_OWNER {
            return Err(PublicationError::OwnerFull { group: group(), found });
        }
        if bytes > PUBLISHED_OWNER_BYTES {
            return Err(PublicationError::OwnerBytes { group: group(), found: bytes });
        }
        let Some(scope) = scope else { return Ok(()) };
        // One owner with many agents must not take the room of others.
        let of_owner = self.owned.iter().filter(|(other, _)| other.owner == scope.owner).map(|(_, sources)| sources);
        let of_owner = of_owner.flat_map(BTreeMap::values).map(|source| &**source);
        let PublishedSize { operations: found, bytes } = with_new(PublishedSize::total(of_owner));
        if found > PUBLISHED_OF_AGENTS {
            return Err(PublicationError::OwnerFull { group: group(), found });
        }
        if bytes > PUBLISHED_AGENTS_BYTES {
            return Err(PublicationError::OwnerBytes { group: group(), found: bytes });
        }
        let all = self.owned.values().flat_map(BTreeMap::values).map(|source| &**source);
        let PublishedSize { operations: found, bytes } = with_new(PublishedSize::total(all));
        if found > PUBLISHED_OPERATIONS {
            return Err(PublicationError::Full { group: group(), found });
        }
        if bytes > PUBLISHED_BYTES {
            return Err(PublicationError::FullBytes { group: group(), found: bytes });
        }
        Ok(())
    }

    /// Refuses a source that names a tool as another source does, where the same calls see both. A source for all owners
    /// isn't compared with those of single owners, who may take any name for theirs.
    fn check_tools(
        &self,
        scope: Option<&PublicationScope>,
        name: &SourceName,
        new: &PublishedSource<O>,
        now: Millis,
    ) -> Result<(), PublicationError> {
        let others = self.visible(scope, now).into_iter().filter(|(other, _)| *other != name);
        let paths = others.flat_map(|(_, source)| source.operations.keys());
        let tools: HashMap<String, &str> = paths.map(|path| (tool_name(path), &**path)).collect();
        for path in new.operations.keys() {
            let tool = tool_name(path);
            if let Some(other) = tools.get(&tool).map(|other| (*other).to_owned()) {
                let operation = path.rsplit('/').next().unwrap_or_default().to_owned();
                let rule = PublicationRule::ToolOfSource { tool, other };
                return Err(PublicationError::Operation { group: name.clone(), operation, rule });
            }
        }
        Ok(())
    }
}

impl<O> PublishedOperations<O> {
    /// Puts a publication in the place of the one before of its source, and forgets what has expired.
    pub(super) fn insert(&self, publication: PreparedPublication<O>, now: Millis) -> Result<(), PublicationError> {
        let PreparedPublication { source, owner, agent, version, expires, operations, bytes } = publication;
        let scope = owner.map(|owner| PublicationScope { owner, agent });
        let mut all = self.0.write();
        all.remove_expired(now);
        let published = PublishedSource { serial: all.serial + 1, version, expires, operations, bytes };
        all.check_room(scope.as_ref(), &source, &published)?;
        all.check_tools(scope.as_ref(), &source, &published, now)?;
        all.serial = published.serial;
        let sources = match scope {
            Some(scope) => all.owned.entry(scope).or_default(),
            None => &mut all.shared,
        };
        sources.insert(source, Arc::new(published));
        Ok(())
    }

    /// Sets the time at which a source expires, if it is published in this version; returns whether it is.
    pub(super) fn renew(
        &self,
        scope: Option<&PublicationScope>,
        source: &SourceName,
        version: &str,
        expires: Option<Millis>,
        now: Millis,
    ) -> bool {
        let mut all = self.0.write();
        let sources = match scope {
            Some(scope) => all.owned.get_mut(scope),
            None => Some(&mut all.shared),
        };
        let Some(found) = sources.and_then(|sources| sources.get_mut(source)) else { return false };
        // The version of a publication begins with its scope.
        let is_it = found.version.split_once(':').is_some_and(|(_, own)| own == version) && found.is_live(now);
        if is_it && found.expires != expires {
            let PublishedSource { serial, version, operations, bytes, .. } = &**found;
            let (serial, version, bytes) = (*serial, Arc::clone(version), *bytes);
            *found = Arc::new(PublishedSource { serial, version, expires, operations: operations.clone(), bytes });
        }
        is_it
    }

    /// Removes a source; returns whether it was published.
    pub(super) fn remove(&self, scope: Option<&PublicationScope>, source: &SourceName) -> bool {
        let mut all = self.0.write();
        let Some(scope) = scope else { return all.shared.remove(source).is_some() };
        let Some(sources) = all.owned.get_mut(scope) else { return false };
        let is_removed = sources.remove(source).is_some();
        if sources.is_empty() {
            all.owned.remove(scope);
        }
        is_removed
    }

    /// Returns the sources whose operations the calls of a scope may name, by name.
    pub(super) fn visible_to(&self, scope: &PublicationScope, now: Millis) -> Vec<Arc<PublishedSource<O>>> {
        let all = self.0.read();
        all.visible(Some(scope), now).into_values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::limits::PUBLISHED_PER_SOURCE;

    fn source() -> SourceName {
        SourceName::new("shop").unwrap()
    }

    fn prepare(owner: Option<usize>, count: usize, bytes: usize) -> PreparedPublication<()> {
        let owner = owner.map(|user| format!("local/u{user}").parse().unwrap());
        let operations = (0..count).map(|n| (format!("v/ops/shop/n{n}").into(), Arc::new(()))).collect();
        let (agent, version) = (None, "owner:v1".into());
        PreparedPublication { source: source(), owner, agent, version, expires: Some(Millis(10)), operations, bytes }
    }

    #[test]
    fn all_sources_together_publish_only_so_many_operations() {
        let all = PublishedOperations::default();
        let insert = |user: usize, now: u64| all.insert(prepare(Some(user), PUBLISHED_PER_SOURCE, 1), Millis(now));
        let fits = PUBLISHED_OPERATIONS / PUBLISHED_PER_SOURCE;
        for user in 0..fits {
            assert_eq!(insert(user, 1), Ok(()), "{user}");
        }
        let found = (fits + 1) * PUBLISHED_PER_SOURCE;
        assert_eq!(insert(fits, 1), Err(PublicationError::Full { group: source(), found }));
        assert_eq!(insert(0, 1), Ok(()), "in the place of the one before");
        assert_eq!(insert(fits, 10), Ok(()), "the others have expired");
    }

    #[test]
    fn an_agents_source_is_its_own_and_takes_the_room_of_its_owner() {
        let all = PublishedOperations::default();
        let owner: Owner = "local/me".parse().unwrap();
        let scope = |agent: Option<usize>| PublicationScope {
            owner: owner.clone(),
            agent: agent.map(|n| format!("a{n}").parse().unwrap()),
        };
        let insert = |agent: usize| {
            let mine = prepare(None, PUBLISHED_PER_SOURCE, 1);
            let (owner, agent) = (Some(owner.clone()), scope(Some(agent)).agent);
            all.insert(PreparedPublication { owner, agent, ..mine }, Millis(1))
        };
        assert_eq!(insert(0), Ok(()));
        let seen = |agent| all.visible_to(&scope(agent), Millis(1)).len();
        assert_eq!([seen(Some(0)), seen(Some(1)), seen(None)], [1, 0, 0]);
        assert!(!all.renew(Some(&scope(Some(0))), &source(), "v2", None, Millis(1)));
        assert!(all.renew(Some(&scope(Some(0))), &source(), "v1", Some(Millis(99)), Millis(1)));
        assert_eq!(all.visible_to(&scope(Some(0)), Millis(98))[0].serial, 1, "the same publication");
        let fits = PUBLISHED_OF_AGENTS / PUBLISHED_PER_SOURCE;
        for agent in 1..fits {
            assert_eq!(insert(agent), Ok(()), "{agent}");
        }
        let found = (fits + 1) * PUBLISHED_PER_SOURCE;
        assert_eq!(insert(fits), Err(PublicationError::OwnerFull { group: source(), found }));
        assert!(all.remove(Some(&scope(Some(0))), &source()) && !all.remove(Some(&scope(Some(0))), &source()));
        assert_eq!(insert(fits), Ok(()));
    }

    #[test]
    fn owners_fill_their_share_of_bytes_and_no_more() {
        let all = PublishedOperations::default();
        let insert = |owner: Option<usize>, bytes: usize| all.insert(prepare(owner, 1, bytes), Millis(1));
        let found = PUBLISHED_OWNER_BYTES + 1;
        assert_eq!(insert(Some(0), found), Err(PublicationError::OwnerBytes { group: source(), found }));
        let owners = PUBLISHED_BYTES / PUBLISHED_OWNER_BYTES;
        for user in 0..owners {
            assert_eq!(insert(Some(user), PUBLISHED_OWNER_BYTES), Ok(()), "{user}");
            assert_eq!(insert(Some(user), PUBLISHED_OWNER_BYTES), Ok(()), "in the place of the one before");
        }
        let found = PUBLISHED_BYTES + 1;
        assert_eq!(insert(Some(owners), 1), Err(PublicationError::FullBytes { group: source(), found }));
        assert_eq!(insert(None, PUBLISHED_OWNER_BYTES), Ok(()), "owners don't take the room of sources for all");
        assert_eq!(insert(Some(0), 1), Ok(()));
        assert_eq!(insert(Some(owners), 1), Ok(()), "another owner has less now");
    }
}
