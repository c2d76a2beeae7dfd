"""One Prometheus exporter a node. Values live in `NodeState`; what was never set is not exported."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ..errors import ConfigurationError
from . import dcgm
from .metrics import BY_NAME, METRICS
from .metrics import Metric as Spec

LabelValues = tuple[str, ...]


@dataclass
class _Histogram:
    counts: list[int]
    sum: float = 0.0


@dataclass
class NodeState:
    """Numbers by metric name and label values; every method may be called from any thread.

    Raises KeyError for a metric that is not in the list or labels that are not those of the metric.
    """

    _values: dict[str, dict[LabelValues, float]] = field(default_factory=dict)
    _histograms: dict[str, _Histogram] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def set(self, name: str, value: float | None, **labels: str) -> None:
        """Set a gauge, or a counter whose source counts by itself. None: the value is unknown, export nothing."""
        key = _label_values(BY_NAME[name], labels)
        with self._lock:
            series = self._values.setdefault(name, {})
            if value is None:
                series.pop(key, None)
            else:
                series[key] = float(value)

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        key = _label_values(BY_NAME[name], labels)
        with self._lock:
            series = self._values.setdefault(name, {})
            series[key] = series.get(key, 0.0) + amount

    def observe(self, name: str, value: float) -> None:
        buckets = BY_NAME[name].buckets
        with self._lock:
            histogram = self._histograms.setdefault(name, _Histogram([0] * (len(buckets) + 1)))
            histogram.counts[bisect_left(buckets, value)] += 1
            histogram.sum += value

    def clear(self, name: str) -> None:
        """Forget all series of a metric, for example the run that is over."""
        with self._lock:
            self._values.pop(BY_NAME[name].name, None)

    def replace(self, name: str, series: Mapping[LabelValues, float]) -> None:
        """Set all series of a metric at once; those not given vanish."""
        with self._lock:
            self._values[BY_NAME[name].name] = dict(series)

    def get(self, name: str, **labels: str) -> float | None:
        key = _label_values(BY_NAME[name], labels)
        with self._lock:
            return self._values.get(name, {}).get(key)

    def values(self) -> dict[str, dict[LabelValues, float]]:
        """What is known now, histograms left out, by metric and label values."""
        with self._lock:
            return {name: dict(series) for name, series in self._values.items() if series}

    def families(self) -> Iterator[Metric]:
        with self._lock:
            values = {name: dict(series) for name, series in self._values.items() if series}
            histograms = {name: _Histogram(list(h.counts), h.sum) for name, h in self._histograms.items()}
        for spec in METRICS:
            if spec.name in histograms:
                yield _histogram_family(spec, histograms[spec.name])
            elif spec.name in values:
                yield _family(spec, values[spec.name])


def _label_values(spec: Spec, labels: Mapping[str, str]) -> LabelValues:
    if set(labels) != set(spec.labels):
        raise KeyError(f"{spec.name} has the labels {spec.labels}, not {tuple(labels)}")
    return tuple(labels[label] for label in spec.labels)


def _family(spec: Spec, series: Mapping[LabelValues, float]) -> Metric:
    kind = CounterMetricFamily if spec.kind == "counter" else GaugeMetricFamily
    family = kind(spec.name, spec.help, labels=spec.labels)
    for labels, value in sorted(series.items()):
        family.add_metric(labels, value)
    return family


def _histogram_family(spec: Spec, histogram: _Histogram) -> Metric:
    bounds = [*(str(bound) for bound in spec.buckets), "+Inf"]
    total, cumulative = 0, []
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        cumulative.append((bound, float(total)))
    family = HistogramMetricFamily(spec.name, spec.help)
    family.add_metric([], cumulative, histogram.sum)
    return family


class _StateCollector(Collector):
    def __init__(self, state: NodeState, refresh: Callable[[], None] | None, dcgm_names: bool) -> None:
        self._state = state
        self._refresh = refresh
        self._dcgm_names = dcgm_names
        self._one_at_a_time = threading.Lock()  # two scrapes at once must not both read the devices

    def collect(self) -> Iterator[Metric]:
        if self._refresh:
            with self._one_at_a_time:
                self._refresh()
        yield from self._state.families()
        if self._dcgm_names:
            yield from dcgm.families(self._state.values())


def as_text(state: NodeState) -> bytes:
    """Prometheus' text format, for a file that a collector reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StateCollector(state, None, dcgm_names=False))
    return generate_latest(registry)


class Exporter:
    """Serves a NodeState on one address and port until closed.

    ``refresh`` is called before every scrape: ages and device readings are taken when somebody asks.
    ``dcgm_names``: GPU series under dcgm-exporter's names as well. One process, one registry, no files: workers
    export nothing themselves, so that no port is fought for and no value of a process that is gone is left over.
    Raises ConfigurationError when the port cannot be bound.
    """

    def __init__(
        self,
        state: NodeState,
        address: str,
        port: int,
        refresh: Callable[[], None] | None = None,
        dcgm_names: bool = False,
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_StateCollector(state, refresh, dcgm_names))
        try:
            self._server, self._thread = start_http_server(port, addr=address, registry=registry)
        except OSError as error:
            raise ConfigurationError(
                f"metrics port {address}:{port} cannot be bound ({error.strerror}): "
                "another agent runs on this node, or the address is not the node's own"
            ) from error
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)
