//! All operations by path, with what is made once of each.

use super::{Effect, OpError, Operation, ParsedCall, schema};
use crate::domain::decode;
use crate::domain::lattice::catalog::catalog_path;
use crate::domain::tools::{Described, Directory};
use crate::venue::outbound::HttpPolicy;
use crate::venue::outbound::send::Sender;
use crate::venue::resources::Providers;
use parking_lot::RwLock;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What an operation is.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Catalog path, `v/ops/<group>/<name>`.
    pub path: &'static str,
    /// What it does, for models and people.
    pub description: String,
    /// JSON Schema of its input.
    pub input: Value,
    /// What happens when it is repeated.
    pub effect: Effect,
}

/// An operation of the catalog.
pub struct RegisteredOperation {
    /// What it is.
    pub spec: Spec,
    /// The compiled input schema.
    pub validator: jsonschema::Validator,
    /// The entities that it is about; the built-in operations are about none.
    pub entities: Vec<String>,
    parse: fn(Value) -> Result<Box<dyn ParsedCall>, OpError>,
}

/// An operation for the catalog.
pub fn operation<T: Operation>() -> RegisteredOperation {
    let (description, input) = schema::described::<T>();
    let validator = jsonschema::validator_for(&input).expect("the catalog's schemas are valid");
    let spec = Spec { path: T::PATH, description, input, effect: T::EFFECT };
    RegisteredOperation { spec, validator, entities: Vec::new(), parse: parse::<T> }
}

fn parse<T: Operation>(arguments: Value) -> Result<Box<dyn ParsedCall>, OpError> {
    match decode::typed::<T>(arguments) {
        Ok(call) => Ok(Box::new(call)),
        Err(wrong) => Err(OpError::Arguments { path: T::PATH, wrong: vec![wrong] }),
    }
}

impl RegisteredOperation {
    /// A call with these arguments, which fit the schema.
    ///
    /// # Errors
    /// What no schema says of them: names, paths and numbers that are none.
    pub fn parse(&self, arguments: Value) -> Result<Box<dyn ParsedCall>, OpError> {
        (self.parse)(arguments)
    }

    fn described(&self, asked: &str, catalog: &Catalog) -> Described {
        let aliases = catalog.aliases().filter(|(_, path)| *path == self.spec.path);
        Described {
            asked: asked.to_owned(),
            path: self.spec.path.to_owned(),
            description: self.spec.description.clone(),
            input: self.spec.input.clone(),
            entities: self.entities.clone(),
            aliases: aliases.map(|(alias, _)| alias.to_owned()).collect(),
        }
    }
}

/// All operations by path, and their aliases; the names of the model providers that agents may name; and what is outside
/// the venue: hosts and the kinds of resources.
#[derive(Default)]
pub struct Catalog {
    /// The providers of resources by kind.
    pub resources: Providers,
    /// Calls the hosts that may be called.
    pub(crate) hosts: Sender,
    operations: BTreeMap<&'static str, RegisteredOperation>,
    aliases: BTreeMap<&'static str, &'static str>,
    providers: Vec<String>,
    /// The venue's own name, address and DID.
    own_names: RwLock<BTreeSet<String>>,
}

impl Catalog {
    /// A catalog of these operations, and of other names for their paths.
    pub fn of(
        operations: impl IntoIterator<Item = RegisteredOperation>,
        aliases: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> Self {
        let mut catalog = Self { aliases: aliases.into_iter().collect(), ..Self::default() };
        catalog.operations.extend(operations.into_iter().map(|operation| (operation.spec.path, operation)));
        catalog
    }

    /// The same with these names of model providers.
    #[must_use]
    pub fn calling(self, providers: Vec<String>) -> Self {
        Self { providers, ..self }
    }

    /// The same with these kinds of resources.
    #[must_use]
    pub fn keeping(self, resources: Providers) -> Self {
        Self { resources, ..self }
    }

    /// The same with a policy for calls to hosts; without, none may be called.
    #[must_use]
    pub fn reaching(self, hosts: HttpPolicy) -> Self {
        Self { hosts: Sender::new(hosts), ..self }
    }

    /// The names of the model providers that agents may name.
    pub fn providers(&self) -> &[String] {
        &self.providers
    }

    /// Adds names of the venue by which callers may mean it.
    pub fn add_own_names(&self, names: impl IntoIterator<Item = String>) {
        self.own_names.write().extend(names);
    }

    /// Refuses an operation on another venue.
    ///
    /// # Errors
    /// `name` is none of this venue's own.
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

    /// The operation that `path` means: its own path, an alias, or the path without `v/ops/`.
    /// Covia's `group:name` is the same as `v/ops/group/name`.
    pub fn resolve(&self, path: &str) -> Option<&RegisteredOperation> {
        let full = catalog_path(path);
        let real = self.aliases.get(full.as_str()).copied().unwrap_or(full.as_str());
        self.operations.get(real)
    }

    /// All operations, by path.
    pub fn operations(&self) -> impl Iterator<Item = &RegisteredOperation> {
        self.operations.values()
    }

    /// All aliases and what they mean.
    pub fn aliases(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.aliases.iter().map(|(alias, path)| (*alias, *path))
    }
}

impl Directory for Catalog {
    fn find(&self, path: &str) -> Option<Described> {
        self.resolve(path).map(|found| found.described(path, self))
    }

    fn all(&self) -> Vec<Described> {
        self.operations().map(|found| found.described(found.spec.path, self)).collect()
    }
}
