//! All operations by path, with what is computed once for each.

use super::{Effect, OpError, Operation, ParsedCall, schema};
use crate::domain::decode;
use crate::domain::lattice::catalog::catalog_path;
use crate::domain::tools::{OperationDirectory, OperationInfo};
use crate::venue::outbound::HttpPolicy;
use crate::venue::outbound::send::HttpSender;
use crate::venue::resources::ResourceProviders;
use parking_lot::RwLock;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Description of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Catalog path, `v/ops/<group>/<name>`.
    pub path: &'static str,
    /// What the operation does, for models and people.
    pub description: String,
    /// JSON Schema of the input.
    pub input: Value,
    /// Effect of the operation, which decides whether it may be repeated.
    pub effect: Effect,
}

/// An operation of the catalogue.
pub struct RegisteredOperation {
    /// Description of the operation.
    pub spec: Spec,
    /// The compiled input schema.
    pub validator: jsonschema::Validator,
    /// Entities that the operation is about; empty for built-in operations.
    pub entities: Vec<String>,
    parse: fn(Value) -> Result<Box<dyn ParsedCall>, OpError>,
}

/// Makes the catalogue's entry of an operation.
pub fn operation<T: Operation>() -> RegisteredOperation {
    let (description, input) = schema::describe_type::<T>();
    let validator = jsonschema::validator_for(&input).expect("the catalog's schemas are valid");
    let spec = Spec { path: T::PATH, description, input, effect: T::EFFECT };
    RegisteredOperation { spec, validator, entities: Vec::new(), parse: parse::<T> }
}

fn parse<T: Operation>(arguments: Value) -> Result<Box<dyn ParsedCall>, OpError> {
    match decode::into_type::<T>(arguments) {
        Ok(call) => Ok(Box::new(call)),
        Err(wrong) => Err(OpError::Arguments { path: T::PATH, wrong: vec![wrong] }),
    }
}

impl RegisteredOperation {
    /// Parses arguments that fit the schema.
    ///
    /// # Errors
    /// Names, paths and numbers that no schema can check are invalid.
    pub fn parse(&self, arguments: Value) -> Result<Box<dyn ParsedCall>, OpError> {
        (self.parse)(arguments)
    }

    fn describe(&self, asked: &str, catalog: &Catalog) -> OperationInfo {
        let aliases = catalog.aliases().filter(|(_, path)| *path == self.spec.path);
        OperationInfo {
            requested_path: asked.to_owned(),
            path: self.spec.path.to_owned(),
            description: self.spec.description.clone(),
            input: self.spec.input.clone(),
            entities: self.entities.clone(),
            aliases: aliases.map(|(alias, _)| alias.to_owned()).collect(),
        }
    }
}

/// All operations by path, and their aliases; names of the model providers that agents may use; and what is outside the
/// venue: hosts and the kinds of resources.
#[derive(Default)]
pub struct Catalog {
    /// Providers of resources, by kind.
    pub resources: ResourceProviders,
    /// HTTP client for the hosts that may be called.
    pub(crate) hosts: HttpSender,
    operations: BTreeMap<&'static str, RegisteredOperation>,
    aliases: BTreeMap<&'static str, &'static str>,
    providers: Vec<String>,
    /// The venue's own name, address and DID.
    own_names: RwLock<BTreeSet<String>>,
}

impl Catalog {
    /// Makes a catalogue of these operations, and of aliases of their paths.
    pub fn new(
        operations: impl IntoIterator<Item = RegisteredOperation>,
        aliases: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> Self {
        let mut catalog = Self { aliases: aliases.into_iter().collect(), ..Self::default() };
        catalog.operations.extend(operations.into_iter().map(|operation| (operation.spec.path, operation)));
        catalog
    }

    /// Returns the catalogue with these names of model providers.
    #[must_use]
    pub fn with_providers(self, providers: Vec<String>) -> Self {
        Self { providers, ..self }
    }

    /// Returns the catalogue with these kinds of resources.
    #[must_use]
    pub fn with_resources(self, resources: ResourceProviders) -> Self {
        Self { resources, ..self }
    }

    /// Returns the catalogue with a policy for calls to hosts; without one, none may be called.
    #[must_use]
    pub fn with_hosts(self, hosts: HttpPolicy) -> Self {
        Self { hosts: HttpSender::new(hosts), ..self }
    }

    /// Returns the names of the model providers that agents may use.
    pub fn providers(&self) -> &[String] {
        &self.providers
    }

    /// Adds names under which callers may address this venue.
    pub fn add_own_names(&self, names: impl IntoIterator<Item = String>) {
        self.own_names.write().extend(names);
    }

    /// Checks that a call addresses this venue.
    ///
    /// # Errors
    /// `name` is none of this venue's own names.
    pub fn check_venue(&self, name: Option<&Value>) -> Result<(), OpError> {
        let Some(name) = name.filter(|name| !name.is_null()) else { return Ok(()) };
        let text = name.as_str().unwrap_or_default().trim_end_matches('/');
        if self.own_names.read().contains(text) {
            return Ok(());
        }
        Err(OpError::Invalid(format!(
            "`venue`: operations run at this venue alone, got {name}; leave it out, or call the other venue's API with \
             `v/ops/http/post`"
        )))
    }

    /// Finds the operation of `path`: its own path, an alias, or the path without `v/ops/`. Covia's `group:name` stands
    /// for `v/ops/group/name`.
    pub fn resolve(&self, path: &str) -> Option<&RegisteredOperation> {
        let full = catalog_path(path);
        let real = self.aliases.get(full.as_str()).copied().unwrap_or(full.as_str());
        self.operations.get(real)
    }

    /// Returns all operations, by path.
    pub fn operations(&self) -> impl Iterator<Item = &RegisteredOperation> {
        self.operations.values()
    }

    /// Returns all aliases with the paths that they stand for.
    pub fn aliases(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.aliases.iter().map(|(alias, path)| (*alias, *path))
    }
}

impl OperationDirectory for Catalog {
    fn find(&self, path: &str) -> Option<OperationInfo> {
        self.resolve(path).map(|found| found.describe(path, self))
    }

    fn list_operations(&self) -> Vec<OperationInfo> {
        self.operations().map(|found| found.describe(found.spec.path, self)).collect()
    }
}
