//! Decides which failures of a model lead to the next model of an agent's `model.fallback`, and how a turn ends if no
//! model has answered.

use super::FinalTurn;
use crate::rate::RateWait;
use crate::session::FailedModel;
use crate::spend::ModelUse;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most characters of the reason that a turn's record keeps for a model without a reply.
const REASON_CHARS: usize = 400;

/// The models that one turn has asked, and what they have used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelCalls {
    /// Use of each model, by `provider/name`.
    pub spent: BTreeMap<String, ModelUse>,
    /// The model that has answered, as `provider/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered: Option<String>,
    /// The models asked before it, and why they gave no reply.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedModel>,
}

impl ModelCalls {
    /// Makes the calls of one model.
    pub fn of_model(model: &str, spent: ModelUse) -> Self {
        let mut calls = Self::default();
        calls.add_call(model, spent);
        calls
    }

    /// Adds the use of one call.
    pub fn add_call(&mut self, model: &str, spent: ModelUse) {
        if spent != ModelUse::default() {
            let sum = self.spent.entry(model.to_owned()).or_default();
            *sum = sum.plus(spent);
        }
    }

    /// Adds later calls of the same turn; their answering and failed models replace the earlier ones.
    pub fn add_later(&mut self, later: Self) {
        for (model, spent) in &later.spent {
            self.add_call(model, *spent);
        }
        (self.answered, self.failed) = (later.answered, later.failed);
    }

    /// Returns the use of all calls together.
    pub fn total(&self) -> ModelUse {
        self.spent.values().fold(ModelUse::default(), |sum, spent| sum.plus(*spent))
    }

    /// Whether no call has used anything.
    pub fn is_free(&self) -> bool {
        self.spent.is_empty()
    }

    /// Whether only one model was asked and none failed; a record then stores no details.
    pub fn is_single_model(&self) -> bool {
        self.failed.is_empty() && self.spent.len() <= 1
    }
}

/// Why a model gave no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelFailure {
    /// The model may answer later; `exhausted` means that no wait is left.
    Transient {
        /// Error text of the provider.
        reason: String,
        /// No tries are left.
        exhausted: bool,
    },
    /// A limit is reached, so the model is not asked.
    LimitReached(FinalTurn),
    /// The provider will answer no request of this agent.
    Unusable {
        /// Error text of the provider.
        reason: String,
    },
    /// The model will never answer this request.
    Permanent {
        /// Error text of the provider.
        reason: String,
    },
    /// The reply is a refusal or unusable; no other model is asked.
    Declined {
        /// Error text of the provider.
        reason: String,
    },
}

impl ModelFailure {
    /// Whether the next model is asked. A refusal of the model or a content filter is an answer, a reply without an end
    /// was a reply, and a limit of the task or request holds for all models: these lead to no other model.
    pub const fn leads_to_next(&self) -> bool {
        match self {
            Self::Transient { .. } | Self::Unusable { .. } | Self::Permanent { .. } => true,
            Self::Declined { .. } | Self::LimitReached(_) => false,
        }
    }
}

/// Why one of several models gave no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoReplyReason {
    /// The model has failed, or can't be asked at all.
    Failed(ModelFailure),
    /// The model can be asked later: a rate limit, or a cap that waits for the next day.
    RetryLater(RateWait),
}

impl NoReplyReason {
    fn reason(&self) -> &str {
        match self {
            Self::RetryLater(wait) => &wait.reason,
            Self::Failed(
                ModelFailure::Transient { reason, .. }
                | ModelFailure::Unusable { reason }
                | ModelFailure::Permanent { reason }
                | ModelFailure::Declined { reason }
                | ModelFailure::LimitReached(FinalTurn { reason, .. }),
            ) => reason,
        }
    }

    /// Returns the rank of the failure; the lowest rank decides about the turn. While one model may answer later the
    /// turn waits, and an agent is suspended only if none of its models can be used.
    const fn rank(&self) -> u8 {
        match self {
            Self::RetryLater(_) => 0,
            Self::Failed(ModelFailure::Transient { exhausted: false, .. }) => 1,
            Self::Failed(ModelFailure::Transient { exhausted: true, .. }) => 2,
            Self::Failed(ModelFailure::LimitReached(_)) => 3,
            Self::Failed(ModelFailure::Declined { .. }) => 4,
            Self::Failed(ModelFailure::Permanent { .. }) => 5,
            Self::Failed(ModelFailure::Unusable { .. }) => 6,
        }
    }
}

/// A model without a reply, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelWithoutReply {
    /// The model as `provider/name`.
    pub model: String,
    /// Why it gave no reply.
    pub miss: NoReplyReason,
}

impl ModelWithoutReply {
    /// Returns the reason with the name of the model in it.
    fn reason_with_name(&self) -> String {
        let reason = self.miss.reason();
        if reason.contains(&format!("`{}`", self.model)) {
            return reason.to_owned();
        }
        format!("model `{}` is not asked: {reason}", self.model)
    }

    /// Makes its line in a turn's record.
    pub fn to_record(&self) -> FailedModel {
        FailedModel { model: self.model.clone(), reason: self.miss.reason().chars().take(REASON_CHARS).collect() }
    }
}

/// Joins the failures of all models of a turn: all reasons, and the mildest consequence. `None` without a model.
pub fn join_failures(missed: &[ModelWithoutReply]) -> Option<NoReplyReason> {
    let leading = &missed.iter().min_by_key(|missed| missed.miss.rank())?.miss;
    let [_, _, ..] = missed else { return Some(leading.clone()) };
    let reason = missed.iter().map(ModelWithoutReply::reason_with_name).collect::<Vec<_>>().join("; ");
    let waits = missed.iter().filter_map(|missed| match &missed.miss {
        NoReplyReason::RetryLater(wait) => Some(wait),
        NoReplyReason::Failed(_) => None,
    });
    Some(match leading {
        NoReplyReason::RetryLater(first) => {
            let until = waits.clone().map(|wait| wait.until).min().unwrap_or(first.until);
            NoReplyReason::RetryLater(RateWait {
                until,
                reason,
                told: waits.clone().any(|wait| wait.told),
                cause: first.cause,
            })
        }
        NoReplyReason::Failed(failure) => NoReplyReason::Failed(match failure {
            ModelFailure::Transient { exhausted, .. } => ModelFailure::Transient { reason, exhausted: *exhausted },
            ModelFailure::LimitReached(last) => ModelFailure::LimitReached(FinalTurn { code: last.code, reason }),
            ModelFailure::Unusable { .. } => ModelFailure::Unusable { reason },
            ModelFailure::Permanent { .. } => ModelFailure::Permanent { reason },
            ModelFailure::Declined { .. } => ModelFailure::Declined { reason },
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::ErrorCode;
    use crate::time::Millis;
    use crate::wait::WaitCause;

    fn transient(exhausted: bool) -> NoReplyReason {
        NoReplyReason::Failed(ModelFailure::Transient { reason: "model `p/t` is unavailable: 503".into(), exhausted })
    }

    fn short(reason: &str) -> NoReplyReason {
        NoReplyReason::Failed(ModelFailure::LimitReached(FinalTurn {
            code: ErrorCode::LimitReached,
            reason: reason.into(),
        }))
    }

    fn permanent() -> NoReplyReason {
        NoReplyReason::Failed(ModelFailure::Permanent { reason: "model `p/p` refused the request: 400".into() })
    }

    fn unusable() -> NoReplyReason {
        NoReplyReason::Failed(ModelFailure::Unusable { reason: "model `p/u` can't be used: 401".into() })
    }

    fn declined() -> NoReplyReason {
        NoReplyReason::Failed(ModelFailure::Declined { reason: "model `p/d` gave no usable reply: filtered".into() })
    }

    fn later(until: u64) -> NoReplyReason {
        NoReplyReason::RetryLater(RateWait {
            until: Millis(until),
            reason: format!("until {until}"),
            told: until == 1,
            cause: WaitCause::ProviderLimit,
        })
    }

    #[test]
    fn a_failed_call_leads_to_the_next_model() {
        for (miss, expected) in [
            (transient(false), true),
            (transient(true), true),
            (unusable(), true),
            (permanent(), true),
            (short("the time of the task is over"), false),
            (declined(), false),
        ] {
            let NoReplyReason::Failed(failure) = miss else { panic!("not a failure: {miss:?}") };
            assert_eq!(failure.leads_to_next(), expected, "{failure:?}");
        }
    }

    #[test]
    fn the_mildest_consequence_counts_and_every_reason_is_said() {
        let (t, u, p) = (
            "model `p/t` is unavailable: 503",
            "model `p/u` can't be used: 401",
            "model `p/p` refused the request: 400",
        );
        let capped = "model `p/c` is not asked: capped";
        let failed = |of: fn(String) -> ModelFailure, reasons: &[&str]| NoReplyReason::Failed(of(reasons.join("; ")));
        let waits =
            |exhausted| move |reason: String| NoReplyReason::Failed(ModelFailure::Transient { reason, exhausted });
        let refused = |reason| ModelFailure::Permanent { reason };
        let suspended = |reason| ModelFailure::Unusable { reason };
        let limited = |reason| ModelFailure::LimitReached(FinalTurn { code: ErrorCode::LimitReached, reason });
        let table: [(&[(&str, NoReplyReason)], NoReplyReason); 9] = [
            (&[("p/t", transient(false))], transient(false)),
            (&[("p/c", short("capped"))], short("capped")),
            (&[("p/t", transient(false)), ("p/u", unusable())], waits(false)(format!("{t}; {u}"))),
            (&[("p/u", unusable()), ("p/t", transient(true))], waits(true)(format!("{u}; {t}"))),
            (&[("p/u", unusable()), ("p/u", unusable())], failed(suspended, &[u, u])),
            (&[("p/u", unusable()), ("p/p", permanent())], failed(refused, &[u, p])),
            (&[("p/p", permanent()), ("p/c", short("capped"))], failed(limited, &[p, capped])),
            (&[("p/c", short("capped")), ("p/t", transient(false))], waits(false)(format!("{capped}; {t}"))),
            (
                &[("p/a", later(7)), ("p/t", transient(false)), ("p/b", later(1))],
                NoReplyReason::RetryLater(RateWait {
                    until: Millis(1),
                    reason: format!("model `p/a` is not asked: until 7; {t}; model `p/b` is not asked: until 1"),
                    told: true,
                    cause: WaitCause::ProviderLimit,
                }),
            ),
        ];
        for (missed, expected) in table {
            let missed: Vec<_> = missed
                .iter()
                .map(|(model, miss)| ModelWithoutReply { model: (*model).into(), miss: miss.clone() })
                .collect();
            assert_eq!(join_failures(&missed), Some(expected), "{missed:?}");
        }
        assert_eq!(join_failures(&[]), None);
    }

    #[test]
    fn calls_add_up_by_model() {
        let one = ModelUse { calls: 1, input: 2, ..ModelUse::default() };
        let mut calls = ModelCalls::of_model("a/x", one);
        assert!(calls.is_single_model());
        let mut later = ModelCalls { answered: Some("a/y".into()), ..ModelCalls::of_model("a/x", one) };
        later.add_call("a/y", one);
        later.add_call("a/z", ModelUse::default());
        calls.add_later(later);
        assert_eq!((calls.total().calls, calls.spent["a/x"].input, calls.spent.len()), (3, 4, 2));
        assert_eq!((calls.answered.as_deref(), calls.is_single_model()), (Some("a/y"), false));
    }
}
