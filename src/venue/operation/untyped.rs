//! Operations that read their arguments by themselves, as calls of the catalog.

use super::{Effect, Invocation, Need, OpError, Output, ParsedCall, RegisteredOperation, Spec};
use crate::domain::ids::JobId;
use crate::domain::secret::Destination;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;

/// What such an operation is.
pub struct UntypedSpec {
    /// Catalog path, `v/ops/<group>/<name>`.
    pub path: &'static str,
    /// What it does, for models and people.
    pub description: &'static str,
    /// JSON Schema of its input.
    pub input: Value,
    /// What happens when it is repeated.
    pub effect: Effect,
}

/// One such operation.
#[async_trait]
pub trait UntypedOperation: Send + Sync + 'static {
    /// What it is.
    fn spec(&self) -> UntypedSpec;

    /// What a call with these (valid) arguments needs, on resolved paths.
    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError>;

    /// The job that a call with valid arguments reads: who asked for that needs nothing else.
    fn reads_job(&self, _arguments: &Value) -> Option<JobId> {
        None
    }

    /// Runs it. Capabilities are checked and arguments validated by then.
    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError>;
}

struct UntypedCall {
    operation: Arc<dyn UntypedOperation>,
    arguments: Value,
}

#[async_trait]
impl ParsedCall for UntypedCall {
    fn needs(&self) -> Result<Vec<Need>, OpError> {
        self.operation.needs(&self.arguments)
    }

    fn reads_job(&self) -> Option<JobId> {
        self.operation.reads_job(&self.arguments)
    }

    fn destination(&self) -> Option<Destination> {
        None
    }

    fn secrets(&mut self) -> Vec<&mut Value> {
        Vec::new()
    }

    async fn run(self: Box<Self>, call: &Invocation<'_>) -> Result<Output, OpError> {
        self.operation.invoke(call, self.arguments).await
    }
}

/// For the catalog.
pub fn untyped(operations: Vec<Arc<dyn UntypedOperation>>) -> Vec<RegisteredOperation> {
    let one = |operation: Arc<dyn UntypedOperation>| {
        let UntypedSpec { path, description, input, effect } = operation.spec();
        let validator = jsonschema::validator_for(&input).expect("the catalog's schemas are valid");
        RegisteredOperation {
            spec: Spec { path, description: description.to_owned(), input, effect },
            validator,
            entities: Vec::new(),
            parse: Box::new(move |arguments| {
                Ok(Box::new(UntypedCall { operation: Arc::clone(&operation), arguments }))
            }),
        }
    };
    operations.into_iter().map(one).collect()
}
