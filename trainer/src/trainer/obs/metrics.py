"""The list of all metrics, and the only one: the exporter refuses what is not in it, rules are tested against it.

Base units (bytes, seconds, watts, celsius, hertz, ratio from 0 to 1), prefix ``trainer_``, devices ``trainer_gpu_``.
A value that is not known is not exported; it is never zero. Plain data: no torch, no prometheus_client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]

STEP_SECONDS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
GPU = ("gpu", "uuid")  # index in NVML's order, and the id that torch, NVML and CUDA agree on


@dataclass(frozen=True)
class Metric:
    name: str  # as Prometheus shows it; a counter's ends in _total, a histogram's series add _bucket, _sum, _count
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def series(self) -> tuple[str, ...]:
        """The names a PromQL expression may use."""
        if self.kind == "histogram":
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)


METRICS: tuple[Metric, ...] = (
    Metric("trainer_up", "gauge", "1 while the node's agent runs."),
    Metric("trainer_info", "gauge", "Always 1; the versions are the labels.", ("version", "torch")),
    Metric("trainer_selfcheck_passed", "gauge", "1 if the self-check let the node train, 0 if it did not."),
    Metric("trainer_selfcheck_seconds", "gauge", "How long the self-check took."),
    Metric(
        "trainer_selfcheck_matmul_tflops",
        "gauge",
        "Median of the self-check's matrix products, in 10^12 operations a second.",
        ("device", "dtype"),
    ),
    Metric(
        "trainer_selfcheck_memory_bytes_per_second",
        "gauge",
        "Median of the self-check's copies within a device's memory, read and written bytes.",
        ("device",),
    ),
    Metric(
        "trainer_selfcheck_findings",
        "gauge",
        "Findings of the self-check by verdict: pass, info, warning, unknown, fail.",
        ("verdict",),
    ),
    # Of `trainer bench --prometheus FILE`, not of a node's agent.
    Metric(
        "trainer_bench_matmul_tflops",
        "gauge",
        "Median of matrix products, in 10^12 operations a second.",
        ("device", "dtype"),
    ),
    Metric(
        "trainer_bench_matmul_error_ratio",
        "gauge",
        "Error of a matrix product against float64, to what its dtype allows.",
        ("device", "dtype"),
    ),
    Metric(
        "trainer_bench_memory_bytes_per_second",
        "gauge",
        "Median of copies within a device's memory, read and written bytes.",
        ("device",),
    ),
    Metric(
        "trainer_bench_allreduce_bus_bytes_per_second",
        "gauge",
        "Median bus bandwidth of an all-reduce over all ranks.",
        ("message_bytes",),
    ),
    Metric("trainer_bench_samples_per_second", "gauge", "Samples that a dataset folder's loader gives."),
    Metric("trainer_bench_data_wait_ratio", "gauge", "Share of a paced step spent waiting for data."),
    Metric("trainer_run_info", "gauge", "1 for the run that the node takes part in.", ("run",)),
    Metric("trainer_run_active", "gauge", "1 while the node's workers train, 0 while it waits."),
    Metric("trainer_generation", "gauge", "Number of the run's generation that this node last took part in."),
    Metric("trainer_step", "gauge", "Last finished optimizer step."),
    Metric("trainer_total_steps", "gauge", "Optimizer steps of the whole run."),
    Metric("trainer_loss", "gauge", "Mean training loss of the last step's global batch."),
    Metric(
        "trainer_loss_finite",
        "gauge",
        "1 if the last step's loss was a number, 0 if it was not (NaN, infinite).",
    ),
    Metric("trainer_eval_loss", "gauge", "Loss of the last held-out evaluation."),
    Metric("trainer_eval_accuracy", "gauge", "Accuracy of the last held-out evaluation, 0 to 1."),
    Metric("trainer_step_seconds", "histogram", "Whole optimizer steps.", (), STEP_SECONDS_BUCKETS),
    Metric("trainer_samples_total", "counter", "Samples consumed by all ranks while this agent watched."),
    Metric("trainer_data_wait_seconds_total", "counter", "Time that steps waited for data, slowest rank."),
    Metric("trainer_tokens_total", "counter", "Tokens consumed by all ranks while this agent watched."),
    # These speak of the last steps while workers run, and vanish with them.
    Metric("trainer_samples_per_second", "gauge", "All ranks together, over the last steps without pauses."),
    Metric("trainer_tokens_per_second", "gauge", "All ranks together, over the last steps without pauses."),
    Metric("trainer_data_wait_ratio", "gauge", "Share of the last steps spent waiting for data, 0 to 1."),
    Metric("trainer_mfu_ratio", "gauge", "Model FLOP/s to the device's peak; absent where no peak is known."),
    Metric("trainer_grad_norm", "gauge", "Norm of the last step's whole gradient, before clipping."),
    Metric("trainer_learning_rate", "gauge", "Of the last step."),
    Metric(
        "trainer_device_memory_peak_bytes",
        "gauge",
        "Most device memory that torch had allocated on the node's first rank; absent on a CPU.",
    ),
    Metric("trainer_workers_resident_bytes", "gauge", "Memory of all worker processes; shared pages twice."),
    Metric(
        "trainer_run_cost_usd",
        "gauge",
        "All nodes of the run so far by list prices; every member tells the same. Absent without prices.",
        ("bound",),  # low, high
    ),
    Metric("trainer_host_memory_available_bytes", "gauge", "What the kernel could still give to programs."),
    Metric("trainer_host_memory_total_bytes", "gauge", "Memory of the node."),
    # NVMe instance store and EBS volumes alike; the kernel counts since boot.
    Metric("trainer_disk_read_bytes_total", "counter", "Read from a whole disk since boot.", ("disk",)),
    Metric("trainer_disk_written_bytes_total", "counter", "Written to a whole disk since boot.", ("disk",)),
    Metric("trainer_disk_busy_seconds_total", "counter", "Time a disk had work since boot.", ("disk",)),
    Metric(
        "trainer_checkpoint_age_seconds",
        "gauge",
        "Since the last complete checkpoint of the running generation.",
    ),
    Metric("trainer_checkpoint_period_seconds", "gauge", "Between two checkpoints, as the run asks for it."),
    Metric(
        "trainer_checkpoint_duration_seconds", "gauge", "Last save, from the step's end to the moved pointer."
    ),
    Metric(
        "trainer_checkpoint_stopped_seconds", "gauge", "Part of the last save in which the loop stood still."
    ),
    Metric("trainer_checkpoints_total", "counter", "Complete checkpoints written."),
    Metric(
        "trainer_recoveries_total", "counter", "Generations entered after the run's first one on this node."
    ),
    Metric(
        "trainer_lost_steps_total", "counter", "Steps that were done and had to be done again after a resume."
    ),
    Metric(
        "trainer_interruption_notices_total",
        "counter",
        "Notices from the metadata service.",
        ("kind",),  # spot, rebalance, termination, scheduled
    ),
    Metric(
        "trainer_peer_rtt_seconds",
        "gauge",
        "TCP handshake with a member's agent at the last probe; absent where it did not answer.",
        ("peer",),
    ),
    Metric(
        "trainer_peer_reachable",
        "gauge",
        "1 if a member answered the last probe, 0 if it did not.",
        ("peer",),
    ),
    Metric(
        "trainer_peers_partitioned",
        "gauge",
        "Members whose lease is fresh and that do not answer this node; absent where there are no others.",
    ),
    Metric("trainer_hangs_total", "counter", "Generations ended because no step was made for too long."),
    # The label is no `instance`: that one is Prometheus' own.
    Metric(
        "trainer_straggler_ratio",
        "gauge",
        "Work time per step of a rank on that member to the median rank; told by the node of rank 0.",
        ("peer",),
    ),
    Metric(
        "trainer_imds_up", "gauge", "1 if the metadata service answered the last poll, 0 if it timed out."
    ),
    Metric("trainer_nvidia_driver_info", "gauge", "Always 1; absent where NVML does not tell.", ("version",)),
    Metric("trainer_nvml_available", "gauge", "1 if NVML answered the last scrape; absent without GPUs."),
    Metric(
        "trainer_xid_source_available",
        "gauge",
        "1 if XID errors can be seen from this source, 0 if not; absent without GPUs.",
        ("source",),  # kernel-log, nvml
    ),
    Metric(
        "trainer_gpu_info",
        "gauge",
        "Always 1: which GPU an index and a UUID are; empty where NVML does not tell.",
        (*GPU, "model", "pci_bus_id"),
    ),
    Metric(
        "trainer_gpu_lost", "gauge", "1 once the GPU has fallen off the bus: its other series vanish.", GPU
    ),
    Metric(
        "trainer_gpu_utilization_ratio", "gauge", "Share of time in which any kernel ran; no efficiency.", GPU
    ),
    Metric(
        "trainer_gpu_memory_used_bytes", "gauge", "Device memory in use, without the driver's reserve.", GPU
    ),
    Metric("trainer_gpu_memory_total_bytes", "gauge", "Device memory.", GPU),
    Metric("trainer_gpu_power_watts", "gauge", "Board power.", GPU),
    Metric("trainer_gpu_power_limit_watts", "gauge", "What the board may draw.", GPU),
    Metric("trainer_gpu_energy_joules_total", "counter", "Since the driver was loaded.", GPU),
    Metric(
        "trainer_gpu_memory_temperature_celsius", "gauge", "Of the memory; absent where it tells none.", GPU
    ),
    Metric("trainer_gpu_temperature_celsius", "gauge", "Core temperature.", GPU),
    Metric(
        "trainer_gpu_temperature_margin_celsius",
        "gauge",
        "Distance to the device's own slowdown temperature; may be negative.",
        GPU,
    ),
    Metric("trainer_gpu_clock_hertz", "gauge", "SM clock.", GPU),
    Metric(
        "trainer_gpu_throttle", "gauge", "1 while the clock is held down for this reason.", (*GPU, "reason")
    ),
    Metric("trainer_gpu_xid_total", "counter", "XID errors since the agent started, each once.", ("xid",)),
    Metric(
        "trainer_gpu_ecc_uncorrected_total",
        "counter",
        "Uncorrected memory errors since the driver was loaded.",
        GPU,
    ),
)

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}


def series_names() -> frozenset[str]:
    """Every name that a rule or a dashboard may read."""
    return frozenset(name for metric in METRICS for name in metric.series())
