//! Metrics, in Prometheus' format.

use crate::state::{Opened, Server};
use hypergrove::Engine;
use metrics::{counter, gauge, histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::sync::OnceLock;
use std::time::Duration;

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Begins to count. To be called once, before the first request.
pub fn start() {
    // From a tenth of a millisecond to 13 s.
    let buckets: Vec<f64> = (0..18).map(|power| 1e-4 * f64::from(1 << power)).collect();
    let Ok(builder) = PrometheusBuilder::new().set_buckets(&buckets) else { return };
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    if metrics::set_global_recorder(recorder).is_ok() {
        drop(HANDLE.set(handle.clone()));
        // Otherwise the times of requests would stay in memory until somebody reads the metrics.
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(5)).await;
                handle.run_upkeep();
            }
        });
    }
}

/// Counts a request.
pub fn request(operation: &'static str, status: u16, took: Duration) {
    counter!("hypergrove_requests_total", "operation" => operation, "status" => status.to_string()).increment(1);
    histogram!("hypergrove_request_seconds", "operation" => operation).record(took);
}

/// Counts items that were signed or verified.
pub fn items(operation: &'static str, items: usize) {
    counter!("hypergrove_items_total", "operation" => operation).increment(items as u64);
}

/// A histogram of the engine by powers of two, as Prometheus counts: each bucket has all smaller values.
fn powers(name: &'static str, counts: &[u64], unit: f64) {
    let bucket = |most: String| counter!(name, "le" => most);
    let mut sum = 0;
    for (power, count) in counts.iter().enumerate() {
        sum += count;
        bucket(((2_f64.powi(power as i32 + 1) - 1.0) * unit).to_string()).absolute(sum);
    }
    bucket("+Inf".into()).absolute(sum);
}

/// The metrics of the engine.
fn engine(engine: &Engine) {
    let stats = engine.stats();
    powers("hypergrove_engine_batch_jobs_bucket", &stats.tickets.batch_sizes, 1.0);
    powers("hypergrove_engine_wait_seconds_bucket", &stats.tickets.waits, 1e-9);
    powers("hypergrove_engine_service_seconds_bucket", &stats.tickets.service_times, 1e-9);
    gauge!("hypergrove_engine_queued_jobs").set(stats.tickets.queued as f64);
    gauge!("hypergrove_engine_run_seconds").set(stats.run_time.as_secs_f64());
    counter!("hypergrove_engine_cancelled_total").absolute(stats.tickets.cancelled);
    counter!("hypergrove_engine_expired_total").absolute(stats.tickets.expired);
    counter!("hypergrove_engine_faults_total").absolute(stats.faults);
    counter!("hypergrove_engine_retried_jobs_total").absolute(stats.retried_jobs);
    counter!("hypergrove_engine_redundant_jobs_total").absolute(stats.redundant_jobs);
    gauge!("hypergrove_engine_disabled_devices")
        .set(stats.devices.iter().filter(|device| device.is_disabled).count() as f64);
}

/// All metrics as text. Those of the engine are read now.
pub async fn render(server: &Server, open: &Opened) -> String {
    engine(&server.engine);
    counter!("hypergrove_log_lines_lost_total").absolute(crate::log::lost());
    gauge!("hypergrove_free_jobs").set(server.jobs.available_permits() as f64);
    gauge!("hypergrove_free_memory_bytes").set(server.memory.available_permits() as f64 * 1024.0);
    let faults: usize = server.access().policies.values().map(|policy| policy.faults.len()).sum();
    gauge!("hypergrove_policy_faults").set(faults as f64);
    for key in open.keys() {
        let (Some(limit), Some(version)) = (key.limit(), key.versions().last()) else { continue };
        let used = version.counter.used().await as f64 / limit as f64;
        gauge!("hypergrove_key_used_ratio", "key" => key.record.name().to_string()).set(used);
    }
    HANDLE.get().map(PrometheusHandle::render).unwrap_or_default()
}
