//! Configurations that every venue has, at `v/agents/templates/<name>`.

use crate::domain::decode;
use serde_json::Value;
use std::sync::LazyLock;

/// The templates by name.
pub static TEMPLATES: LazyLock<Value> =
    LazyLock::new(|| decode::json(include_bytes!("templates.json")).expect("the templates are JSON"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::agent::AgentConfig;
    use crate::domain::tools::unknown_names::KnownNames;
    use crate::ops::catalog;

    #[test]
    fn every_template_is_a_configuration_without_a_warning() {
        let catalog = catalog(false);
        let (providers, operations) = (catalog.providers(), catalog.compiled_view());
        let known = KnownNames { providers, operations: &operations, servers: &[], remote_agents: &[] };
        let templates = TEMPLATES.as_object().unwrap();
        assert_eq!(templates.len(), 7);
        for (name, template) in templates {
            let config = AgentConfig::parse(template).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(config.unknown_names(&known), Vec::<String>::new(), "{name}");
        }
    }
}
