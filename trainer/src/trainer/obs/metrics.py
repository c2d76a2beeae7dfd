"""The list of all metrics, and the only one: the exporter refuses what is not in it, rules are tested against it.

Base units (bytes, seconds, watts, celsius, hertz, ratio from 0 to 1), prefix ``trainer_``, devices ``trainer_gpu_``.
A value that is not known is not exported; it is never zero. Plain data: no torch, no prometheus_client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


def _metrics(kind: Kind, labels: tuple[str, ...], helps: Mapping[str, str]) -> Iterator[Metric]:
    return (Metric(name, kind, text, labels) for name, text in helps.items())


METRICS: tuple[Metric, ...] = (
    *_metrics(
        "gauge",
        (),
        {
            "trainer_up": "1 while the node's agent runs.",
            "trainer_selfcheck_passed": "1 if the self-check let the node train, 0 if it did not.",
            "trainer_selfcheck_seconds": "How long the self-check took.",
            # Of `trainer bench --prometheus FILE`, not of a node's agent, as all trainer_bench_ ones.
            "trainer_bench_samples_per_second": "Samples that a dataset folder's loader gives.",
            "trainer_bench_data_wait_ratio": "Share of a paced step spent waiting for data.",
            "trainer_run_active": "1 while the node's workers train, 0 while it waits.",
            "trainer_generation": "Number of the run's generation that this node last took part in.",
            "trainer_step": "Last finished optimizer step.",
            "trainer_total_steps": "Optimizer steps of the whole run.",
            "trainer_loss": "Mean training loss of the last step's global batch.",
            "trainer_loss_finite": "1 if the last step's loss was a number, 0 if it was not (NaN, infinite).",
            "trainer_eval_loss": "Loss of the last held-out evaluation.",
            "trainer_eval_accuracy": "Accuracy of the last held-out evaluation, 0 to 1.",
            # These speak of the last steps while workers run, and vanish with them.
            "trainer_samples_per_second": "All ranks together, over the last steps without pauses.",
            "trainer_tokens_per_second": "All ranks together, over the last steps without pauses.",
            "trainer_data_wait_ratio": "Share of the last steps spent waiting for data, 0 to 1.",
            "trainer_mfu_ratio": "Model FLOP/s to the device's peak; absent where no peak is known.",
            "trainer_grad_norm": "Norm of the last step's whole gradient, before clipping.",
            "trainer_learning_rate": "Of the last step.",
            "trainer_device_memory_peak_bytes": "Most that torch allocated on the node's first rank; absent on a CPU.",
            "trainer_workers_resident_bytes": "Memory of all worker processes; shared pages twice.",
            "trainer_host_memory_available_bytes": "What the kernel could still give to programs.",
            "trainer_host_memory_total_bytes": "Memory of the node.",
            "trainer_checkpoint_age_seconds": "Since the last complete checkpoint of the running generation.",
            "trainer_checkpoint_period_seconds": "Between two checkpoints, as the run asks for it.",
            "trainer_checkpoint_duration_seconds": "Last save, from the step's end to the moved pointer.",
            "trainer_checkpoint_stopped_seconds": "Part of the last save in which the loop stood still.",
            "trainer_peers_partitioned": "Members with a fresh lease that do not answer; absent without others.",
            "trainer_imds_up": "1 if the metadata service answered the last poll, 0 if it timed out.",
            "trainer_nvml_available": "1 if NVML answered the last scrape; absent without GPUs.",
        },
    ),
    Metric("trainer_step_seconds", "histogram", "Whole optimizer steps.", (), STEP_SECONDS_BUCKETS),
    *_metrics(
        "counter",
        (),
        {
            "trainer_samples_total": "Samples consumed by all ranks while this agent watched.",
            "trainer_tokens_total": "Tokens consumed by all ranks while this agent watched.",
            "trainer_data_wait_seconds_total": "Time that steps waited for data, slowest rank.",
            "trainer_checkpoints_total": "Complete checkpoints written.",
            "trainer_recoveries_total": "Generations entered after the run's first one on this node.",
            "trainer_lost_steps_total": "Steps that were done and had to be done again after a resume.",
            "trainer_hangs_total": "Generations ended because no step was made for too long.",
        },
    ),
    Metric("trainer_info", "gauge", "Always 1; the versions are the labels.", ("version", "torch")),
    Metric("trainer_run_info", "gauge", "1 for the run that the node takes part in.", ("run",)),
    *_metrics(
        "gauge",
        ("device", "dtype"),
        {
            "trainer_selfcheck_matmul_tflops": "Median of the matrix products, in 10^12 operations a second.",
            "trainer_bench_matmul_tflops": "Median of the matrix products, in 10^12 operations a second.",
            "trainer_bench_matmul_error_ratio": "Error against float64, to what the dtype allows.",
        },
    ),
    *_metrics(
        "gauge",
        ("device",),
        {
            "trainer_selfcheck_memory_bytes_per_second": "Median of copies in its memory, read and written.",
            "trainer_bench_memory_bytes_per_second": "Median of copies in its memory, read and written.",
        },
    ),
    Metric(
        "trainer_bench_allreduce_bus_bytes_per_second",
        "gauge",
        "Median bus bandwidth of an all-reduce over all ranks.",
        ("message_bytes",),
    ),
    Metric(
        "trainer_selfcheck_findings",
        "gauge",
        "Findings of the self-check by verdict: pass, info, warning, unknown, fail.",
        ("verdict",),
    ),
    Metric(
        "trainer_run_cost_usd",
        "gauge",
        "All nodes of the run so far by list prices; every member tells the same. Absent without prices.",
        ("bound",),  # low, high
    ),
    # NVMe instance store and EBS volumes alike; the kernel counts since boot.
    *_metrics(
        "counter",
        ("disk",),
        {
            "trainer_disk_read_bytes_total": "Read from a whole disk since boot.",
            "trainer_disk_written_bytes_total": "Written to a whole disk since boot.",
            "trainer_disk_busy_seconds_total": "Time a disk had work since boot.",
        },
    ),
    Metric(
        "trainer_interruption_notices_total",
        "counter",
        "Notices from the metadata service.",
        ("kind",),  # spot, rebalance, termination, scheduled
    ),
    *_metrics(
        "gauge",
        ("peer",),  # no `instance`: that one is Prometheus' own
        {
            "trainer_peer_rtt_seconds": "TCP handshake with a member's agent; absent where it did not answer.",
            "trainer_peer_reachable": "1 if a member answered the last probe, 0 if it did not.",
            "trainer_straggler_ratio": "Work time per step of a rank there to the median rank; told by rank 0's node.",
        },
    ),
    Metric("trainer_nvidia_driver_info", "gauge", "Always 1; absent where NVML does not tell.", ("version",)),
    Metric(
        "trainer_xid_source_available",
        "gauge",
        "1 if XID errors can be seen from this source, 0 if not; absent without GPUs.",
        ("source",),  # kernel-log, nvml
    ),
    Metric("trainer_gpu_xid_total", "counter", "XID errors since the agent started, each once.", ("xid",)),
    Metric(
        "trainer_gpu_info",
        "gauge",
        "Always 1: which GPU an index and a UUID are; empty where NVML does not tell.",
        (*GPU, "model", "pci_bus_id"),
    ),
    Metric(
        "trainer_gpu_throttle", "gauge", "1 while the clock is held down for this reason.", (*GPU, "reason")
    ),
    *_metrics(
        "gauge",
        GPU,
        {
            "trainer_gpu_lost": "1 once the GPU has fallen off the bus: its other series vanish.",
            "trainer_gpu_utilization_ratio": "Share of time in which any kernel ran; no efficiency.",
            "trainer_gpu_memory_used_bytes": "Device memory in use, without the driver's reserve.",
            "trainer_gpu_memory_free_bytes": "Device memory that a program could get.",
            "trainer_gpu_memory_total_bytes": "Device memory: used, free, and the driver's reserve.",
            "trainer_gpu_power_watts": "Board power.",
            "trainer_gpu_power_limit_watts": "What the board may draw.",
            "trainer_gpu_temperature_celsius": "Core temperature.",
            "trainer_gpu_memory_temperature_celsius": "Of the memory; absent where it tells none.",
            "trainer_gpu_temperature_margin_celsius": "Distance to its own slowdown temperature; may be negative.",
            "trainer_gpu_clock_hertz": "SM clock.",
        },
    ),
    *_metrics(
        "counter",
        GPU,
        {
            "trainer_gpu_energy_joules_total": "Since the driver was loaded.",
            "trainer_gpu_ecc_uncorrected_total": "Uncorrected memory errors since the driver was loaded.",
        },
    ),
)

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}


def series_names() -> frozenset[str]:
    """Every name that a rule or a dashboard may read."""
    return frozenset(name for metric in METRICS for name in metric.series())
