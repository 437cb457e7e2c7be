//! The operations of the catalogue, group by group. [`crate::venue::operation`] defines what an operation is.

pub mod a2a;
mod a2a_call;
pub mod agent;
pub mod approval;
pub mod asset;
mod auth;
pub mod dead;
pub mod http;
pub mod human;
pub mod job;
pub mod json;
pub mod lattice;
pub mod mcp;
pub mod policy;
pub mod queue;
pub mod quota;
pub mod resource;
mod scheduler;
pub mod schema;
pub mod secret;
pub mod spend;
pub mod test;
pub mod timer;
pub mod venue;
mod webhook;
mod worker;

use crate::model::endpoint::providers;
use crate::venue::operation::Catalog;
use crate::venue::outbound::HttpPolicy;

/// Returns the operations of this version; `test` adds the group `test/`. No host may be called.
pub fn catalog(test: bool) -> Catalog {
    catalog_with(test, HttpPolicy::default())
}

/// Returns the [`catalog`] with a policy for HTTP calls.
pub fn catalog_with(test: bool, http: HttpPolicy) -> Catalog {
    let groups = [
        lattice::operations(),
        agent::operations(),
        asset::operations(),
        schema::operations(),
        json::operations(),
        job::operations(),
        secret::operations(),
        policy::operations(),
        quota::operations(),
        webhook::operations(),
        resource::operations(),
        approval::operations(),
        human::operations(),
        queue::operations(),
        timer::operations(),
        scheduler::operations(),
        auth::operations(),
        dead::operations(),
        spend::operations(),
        venue::operations(),
        worker::operations(),
        http::operations(),
        mcp::operations(),
        a2a::operations(),
        if test { test::operations() } else { Vec::new() },
    ];
    let aliases = lattice::ALIASES
        .into_iter()
        .chain(job::ALIASES)
        .chain(schema::ALIASES)
        .chain(human::ALIASES)
        .chain(mcp::ALIASES);
    let catalog = Catalog::new(groups.into_iter().flatten(), aliases)
        .with_jobs(queue::declared_calls)
        .with_remote_calls(a2a_call::remote_calls);
    catalog.with_providers(providers(std::iter::empty())).with_hosts(http)
}

#[cfg(test)]
mod tests {
    use super::catalog;
    use crate::domain::wire::dialect::DIALECTS;
    use crate::domain::wire::schema::project;
    use serde_json::{Value, json};

    #[test]
    fn every_provider_takes_every_schema() {
        let catalog = catalog(true);
        let compiled = catalog.compiled_view();
        let operations = compiled.operations().map(|found| (&*found.spec.path, &found.spec.input));
        let tools = catalog.resources.list_providers().flat_map(|provider| &provider.tools);
        let tools = tools.map(|(tool, _)| (&*tool.name, &tool.input));
        let all: Vec<_> = operations.chain(tools).collect();
        assert!(all.len() > 90, "{} schemas", all.len());
        for (name, input) in all {
            for dialect in DIALECTS {
                let sent = project(input, dialect.schema).unwrap_or_else(|error| panic!("{name}: {error}"));
                let count = |schema: &Value| schema["properties"].as_object().map_or(0, serde_json::Map::len);
                assert!(count(&sent.schema) >= count(input), "`{name}` for `{}`: {}", dialect.provider, sent.schema);
            }
        }
    }

    /// Models see these schemas, and clients keep them: a change is meant, and `pinned.json` is changed with it.
    #[test]
    fn the_catalog_of_operations_is_pinned() {
        let pinned: Value = serde_json::from_str(include_str!("pinned.json")).unwrap();
        let catalog = catalog(false).compiled_view();
        let said: serde_json::Map<String, Value> = catalog
            .operations()
            .map(|found| {
                let spec = &found.spec;
                let mut input = spec.input.clone();
                // Nothing is required where nothing is said of it.
                input.as_object_mut().unwrap().entry("required").or_insert_with(|| json!([]));
                (spec.path.to_string(), json!({"description": spec.description, "input": input}))
            })
            .collect();
        let pinned = pinned.as_object().unwrap();
        let changed: Vec<_> = pinned.keys().filter(|path| said.get(*path) != pinned.get(*path)).collect();
        let now: serde_json::Map<_, _> = changed.iter().map(|path| ((*path).clone(), json!(said.get(*path)))).collect();
        assert!(changed.is_empty(), "say now {}", serde_json::to_string_pretty(&now).unwrap());
        assert_eq!(said.len(), pinned.len());
    }
}
