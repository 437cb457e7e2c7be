//! `v/ops/test/*`: operations for trying things out; only with `catalog.test = true`.

use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, UntypedOperation as Operation, UntypedSpec as Spec,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy)]
enum Verb {
    Echo,
    Delay,
    Error,
    Never,
    Once,
    Scoped,
}

struct Test(Verb);

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    let verbs = [Verb::Echo, Verb::Delay, Verb::Error, Verb::Never, Verb::Once, Verb::Scoped];
    verbs.into_iter().map(|verb| Arc::new(Test(verb)) as Arc<dyn Operation>).collect()
}

#[async_trait]
impl Operation for Test {
    fn spec(&self) -> Spec {
        let (path, description) = match self.0 {
            Verb::Echo => ("v/ops/test/echo", "Returns its arguments."),
            Verb::Delay => ("v/ops/test/delay", "Returns its arguments after `delay` ms."),
            Verb::Error => ("v/ops/test/error", "Fails with `message`."),
            Verb::Never => ("v/ops/test/never", "Never returns."),
            Verb::Scoped => {
                ("v/ops/test/scoped", "Returns its arguments, and what of its caller's context it was given.")
            }
            Verb::Once => ("v/ops/test/once", "As delay, but must not be repeated, like a payment."),
        };
        let effect = match self.0 {
            Verb::Once => Effect::Once,
            Verb::Echo | Verb::Delay | Verb::Error | Verb::Never | Verb::Scoped => Effect::Read,
        };
        Spec { path, description, input: json!({"type": "object"}), effect }
    }

    fn needs(&self, _arguments: &Value) -> Result<Vec<Need>, OpError> {
        Ok(Vec::new())
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        match self.0 {
            Verb::Echo => Ok(arguments.into()),
            Verb::Delay | Verb::Once => {
                tokio::time::sleep(Duration::from_millis(arguments["delay"].as_u64().unwrap_or(0))).await;
                Ok(arguments.into())
            }
            Verb::Scoped => Ok(json!({"arguments": arguments, "scoped": call.scoped}).into()),
            Verb::Error => {
                Err(OpError::Failed(arguments["message"].as_str().unwrap_or("this operation always fails").to_owned()))
            }
            Verb::Never => {
                std::future::pending::<()>().await;
                Err(OpError::Failed("unreachable".into()))
            }
        }
    }
}
