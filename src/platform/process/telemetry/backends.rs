//! Latencies of store and bus.

use super::Label;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

/// Makes the histogram of one kind of call: 0.5 ms to 8 s.
#[derive(Debug, Clone, Copy)]
struct CallBuckets;

impl MetricConstructor<Histogram> for CallBuckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(0.0005, 4.0, 8))
    }
}

/// Latencies and errors of calls to the store and the bus. Their labels are names of methods, so that they are few.
#[derive(Debug)]
pub struct BackendMetrics {
    store: Family<[Label; 1], Histogram, CallBuckets>,
    store_errors: Family<[Label; 1], Counter>,
    bus: Family<[Label; 1], Histogram, CallBuckets>,
    bus_errors: Family<[Label; 1], Counter>,
}

impl Default for BackendMetrics {
    fn default() -> Self {
        Self {
            store: Family::new_with_constructor(CallBuckets),
            store_errors: Family::default(),
            bus: Family::new_with_constructor(CallBuckets),
            bus_errors: Family::default(),
        }
    }
}

impl BackendMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register(
            "store_call_seconds",
            "seconds of a call to the store, its repetitions included",
            self.store.clone(),
        );
        r.register("store_call_errors", "calls to the store that failed", self.store_errors.clone());
        r.register("bus_call_seconds", "seconds of a call to the bus", self.bus.clone());
        r.register("bus_call_errors", "calls to the bus that failed", self.bus_errors.clone());
    }

    /// Records a call to the store.
    pub fn record_store_call(&self, method: &'static str, took: Duration, is_error: bool) {
        self.store.get_or_create(&[("method", method)]).observe(took.as_secs_f64());
        // A counter at zero is there before the first error.
        self.store_errors.get_or_create(&[("method", method)]).inc_by(u64::from(is_error));
    }

    /// Records a call to the bus.
    pub fn record_bus_call(&self, method: &'static str, took: Duration, is_error: bool) {
        self.bus.get_or_create(&[("method", method)]).observe(took.as_secs_f64());
        // A counter at zero is there before the first error.
        self.bus_errors.get_or_create(&[("method", method)]).inc_by(u64::from(is_error));
    }
}
