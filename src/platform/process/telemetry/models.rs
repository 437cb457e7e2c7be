//! Metrics of model calls: tokens and money by provider and model.

use super::OwnedLabel;
use crate::domain::spend::ModelUse;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;

/// Pairs of provider and model with series of their own: agents name models freely.
const MODELS_MAX: usize = 100;

/// Bytes of a label's value.
const LABEL_BYTES: usize = 64;

/// Label value of all models beyond [`MODELS_MAX`].
const OTHER: &str = "other";

/// Billionths of a dollar in a dollar.
const NANO: f64 = 1e9;

/// Use of models by provider and model, at most 100 pairs.
#[derive(Debug)]
pub struct ModelMetrics {
    names: Mutex<HashSet<(String, String)>>,
    charged: Family<[OwnedLabel; 2], Counter>,
    tokens: Family<[OwnedLabel; 3], Counter>,
    dollars: Family<[OwnedLabel; 2], Counter<f64, AtomicU64>>,
    /// Seconds of a model call, its wait for a reply included.
    pub seconds: Histogram,
}

impl Default for ModelMetrics {
    fn default() -> Self {
        Self {
            names: Mutex::default(),
            charged: Family::default(),
            tokens: Family::default(),
            dollars: Family::default(),
            // 10 ms (a scripted model) to 11 min (a long reply).
            seconds: Histogram::new(exponential_buckets(0.01, 2.0, 17)),
        }
    }
}

impl ModelMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("model_charged_calls", "model calls that are charged, by provider and model", self.charged.clone());
        r.register(
            "model_tokens",
            "tokens by provider, model and class: input, cache_read, cache_write, output or reasoning",
            self.tokens.clone(),
        );
        r.register("model_spent_dollars", "cost of model calls whose model has a price", self.dollars.clone());
        r.register("model_call_seconds", "seconds of a model call", self.seconds.clone());
    }

    /// Adds what one call used. Each token counts in one class.
    pub fn record_use(&self, provider: &str, model: &str, used: &ModelUse) {
        if used.calls == 0 {
            return;
        }
        let (provider, model) = self.label_values(provider, model);
        let labels = || [("provider", provider.clone()), ("model", model.clone())];
        self.charged.get_or_create(&labels()).inc_by(u64::from(used.calls));
        let cached = used.cache_read.saturating_add(used.cache_write);
        for (class, tokens) in [
            ("input", used.input.saturating_sub(cached)),
            ("cache_read", used.cache_read),
            ("cache_write", used.cache_write),
            ("output", used.output.saturating_sub(used.reasoning)),
            ("reasoning", used.reasoning),
        ] {
            if tokens > 0 {
                let [provider, model] = labels();
                self.tokens.get_or_create(&[provider, model, ("class", class.to_owned())]).inc_by(tokens);
            }
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "a cost beyond 2^53 billionths of a dollar loses its last digits"
        )]
        let dollars = used.nano as f64 / NANO;
        self.dollars.get_or_create(&labels()).inc_by(dollars);
    }

    /// Returns the label values of a model; [`OTHER`] when there are too many.
    fn label_values(&self, provider: &str, model: &str) -> (String, String) {
        let known = (clip_label(provider), clip_label(model));
        let mut names = self.names.lock();
        if names.contains(&known) {
            return known;
        }
        if names.len() >= MODELS_MAX {
            return (OTHER.to_owned(), OTHER.to_owned());
        }
        names.insert(known.clone());
        known
    }
}

/// Returns the visible beginning of a label's value.
fn clip_label(text: &str) -> String {
    let mut clipped = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if clipped.len() + c.len_utf8() > LABEL_BYTES {
            break;
        }
        clipped.push(c);
    }
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::telemetry::Metrics;

    fn used(tokens: u64) -> ModelUse {
        ModelUse {
            calls: 1,
            input: tokens,
            output: 5,
            cache_read: 3,
            reasoning: 2,
            nano: 500_000_000,
            ..ModelUse::default()
        }
    }

    #[test]
    fn each_token_counts_in_one_class() {
        let metrics = Metrics::new();
        metrics.models.record_use("p", "m", &used(10));
        let text = metrics.encode();
        for (class, tokens) in [("input", 7), ("cache_read", 3), ("output", 3), ("reasoning", 2)] {
            let line = format!("trellis_model_tokens_total{{provider=\"p\",model=\"m\",class=\"{class}\"}} {tokens}\n");
            assert!(text.contains(&line), "no {line} in {text}");
        }
        assert!(!text.contains("class=\"cache_write\""));
        assert!(text.contains("trellis_model_spent_dollars_total{provider=\"p\",model=\"m\"} 0.5\n"), "{text}");
    }

    #[test]
    fn models_beyond_the_bound_share_a_series() {
        let metrics = Metrics::new();
        for n in 0..2 * MODELS_MAX {
            metrics.models.record_use("p", &format!("m{n}"), &used(10));
        }
        metrics.models.record_use("p", "m0", &used(10));
        let text = metrics.encode();
        let of = |label: &str| {
            text.lines()
                .filter(|line| line.starts_with("trellis_model_charged_calls_total{") && line.contains(label))
                .count()
        };
        assert_eq!(of("provider="), MODELS_MAX + 1);
        assert!(text.contains(&format!("{{provider=\"other\",model=\"other\"}} {MODELS_MAX}\n")), "{text}");
        assert!(text.contains("trellis_model_charged_calls_total{provider=\"p\",model=\"m0\"} 2\n"), "{text}");
    }

    #[test]
    fn a_label_of_a_megabyte_is_cut() {
        let metrics = Metrics::new();
        metrics.models.record_use("p\n\0", &"é".repeat(1 << 19), &used(10));
        assert!(
            metrics.encode().contains(&format!("{{provider=\"p\",model=\"{}\"}} 1\n", "é".repeat(LABEL_BYTES / 2)))
        );
    }
}
