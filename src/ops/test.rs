//! `v/ops/test/*`: operations for trials, only with `catalog.test = true`. They need no capability and accept any
//! arguments.

use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![
        operation::<Echo>(),
        operation::<Delay>(),
        operation::<Fail>(),
        operation::<Never>(),
        operation::<Once>(),
        operation::<Scoped>(),
    ]
}

/// Defines one of these operations by its description, path, effect, whether it takes sections, and its function.
macro_rules! test {
    ($about:literal $name:ident $path:literal $effect:ident $run:expr) => {
        test!($about $name $path $effect false $run);
    };
    ($about:literal $name:ident $path:literal $effect:ident $takes:literal $run:expr) => {
        #[doc = $about]
        #[derive(Deserialize, JsonSchema)]
        struct $name(Map<String, Value>);

        impl Operation for $name {
            const PATH: &'static str = $path;
            const EFFECT: Effect = Effect::$effect;
            const TAKES_SECTIONS: bool = $takes;

            fn needs(&self) -> Result<Vec<Need>, OpError> {
                Need::none()
            }

            async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
                $run(self.0, call).await.map(Into::into)
            }
        }
    };
}

test!("Returns its arguments." Echo "v/ops/test/echo" Read async |all, _: &_| Ok(Value::Object(all)));
test!("Returns its arguments after `delay` ms." Delay "v/ops/test/delay" Read async |all, _: &_| echo_after_delay(all).await);
test!("As delay, but must not be repeated, like a payment." Once "v/ops/test/once" Once async |all, _: &_| echo_after_delay(all).await);
test!("Never returns." Never "v/ops/test/never" Read async |_, _: &_| std::future::pending::<Result<Value, _>>().await);
test!("Fails with `message`." Fail "v/ops/test/error" Read async |all: Map<_, _>, _: &_| {
    let message = all.get("message").and_then(Value::as_str);
    Err::<Value, _>(OpError::Failed(message.unwrap_or("this operation always fails").to_owned()))
});
test!("Returns its arguments, and what of its caller's context it was given." Scoped "v/ops/test/scoped" Read true
    async |all: Map<_, _>, call: &Invocation<'_>| Ok(json!({"arguments": all, "scoped": call.scoped})));

async fn echo_after_delay(arguments: Map<String, Value>) -> Result<Value, OpError> {
    let delay = arguments.get("delay").and_then(Value::as_u64).unwrap_or(0);
    tokio::time::sleep(Duration::from_millis(delay)).await;
    Ok(Value::Object(arguments))
}
