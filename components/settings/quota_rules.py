"""What a stack needs of the account's quotas when every group is as large as it may be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from components.catalog import INSTANCE_TYPES, InstanceType
from components.catalog.quotas import QUOTAS, Quota, quota_by_code

from .faults import Fault, Path, info, warning
from .group_model import GpuGroupSettings
from .model import Settings

GROUP_LIFECYCLE_HOOKS = 2  # launching and terminating
CAPACITY_BLOCK_ACTIONS = 2  # scaled out at its start, in before its end
GIB_PER_TIB = 1024


@dataclass(frozen=True)
class QuotaNeed:
    """How much of a quota the stack takes at `maxNodes`; other stacks of the account come on top."""

    quota: Quota
    needed: int  # in the quota's unit
    path: Path  # of the configuration: what needs it

    @property
    def code(self) -> str | None:
        return self.quota.code

    @property
    def is_above_default(self) -> bool:
        """True where an account with AWS's documented default has too little."""
        return self.quota.default is not None and self.needed > self.quota.default

    @property
    def is_of_gpus(self) -> bool:
        return self.quota.unit == "vCPUs"

    def __str__(self) -> str:
        quota = self.quota
        name = f"{quota.name} {quota.code}" if quota.code else quota.name
        default = (
            "no documented default" if quota.default is None else f"the documented default is {quota.default}"
        )
        return f"{name}: {self.needed} {quota.unit} at maxNodes; {default}"


def quota_needs(settings: Settings) -> list[QuotaNeed]:
    """All quotas that the stack takes something of, GPUs first. Types that the catalog lacks count nothing."""
    return [*_gpu_needs(settings), *_other_needs(settings)]


@info
def gpu_quotas_hold_all_nodes(s: Settings) -> Iterator[Fault]:
    """What the account's vCPU quotas must be for all nodes; `make doctor` compares it with the account's."""
    for need in _gpu_needs(s):
        yield Fault(need.path, str(need), "`make doctor` asks what the account has")


@warning
def other_quotas_hold_the_stack(s: Settings) -> Iterator[Fault]:
    """Quotas other than vCPUs whose documented default is too small, but which AWS raises on request."""
    for need in _other_needs(s):
        if need.is_above_default and need.quota.adjustable:
            yield Fault(need.path, str(need), "ask AWS for more first, in Service Quotas")


def fixed_limits_hold_the_stack(s: Settings) -> Iterator[Fault]:
    """Limits of AWS that no request raises (catalog/quotas.json has the sources)."""
    for need in _other_needs(s):
        if need.is_above_default and not need.quota.adjustable:
            yield Fault(need.path, str(need), f"at most {need.quota.default}")


def _gpu_needs(s: Settings) -> list[QuotaNeed]:
    vcpus: dict[str, int] = {}
    for group in s.gpu_groups:
        for key, needed in _vcpus_of(group).items():
            vcpus[key] = vcpus.get(key, 0) + needed
    return [QuotaNeed(QUOTAS[key], vcpus[key], ("gpuGroups",)) for key in QUOTAS if key in vcpus]


def _vcpus_of(group: GpuGroupSettings) -> dict[str, int]:
    """vCPUs at the largest size by quota. Any of the types may be what all nodes are."""
    if group.reservation is not None and group.reservation.kind == "capacity-block":
        return {}  # a block does not count towards the on-demand quotas (EC2 user guide, 2026)
    purchase = group.purchase
    base = min(purchase.on_demand_base, group.max_nodes)
    above = group.max_nodes - base
    # Auto Scaling rounds the on-demand share up; where it starts from decides how the rest falls.
    spot = ceil(above * purchase.spot_percent / 100)
    on_demand = base + ceil(above * (100 - purchase.spot_percent) / 100)
    needs: dict[str, int] = {}
    for type_ in (INSTANCE_TYPES[name] for name in group.instance_types if name in INSTANCE_TYPES):
        for nodes, key in ((on_demand, _quota_key(type_, False)), (spot, _quota_key(type_, True))):
            if nodes:
                needs[key] = max(needs.get(key, 0), nodes * type_.vcpus)
    return needs


def _quota_key(type_: InstanceType, spot: bool) -> str:
    code = type_.vcpu_quota_codes.spot if spot else type_.vcpu_quota_codes.on_demand
    if code is not None:
        return quota_by_code(code).key
    return "spot-p6" if spot else "on-demand-p"


def _other_needs(s: Settings) -> list[QuotaNeed]:
    from components.network.plan import interface_endpoints  # it reads settings: not at the top

    groups, network = s.gpu_groups, s.network
    needs: list[QuotaNeed] = []

    def need(key: str, amount: int, *path: str | int) -> None:
        if amount:
            needs.append(QuotaNeed(QUOTAS[key], amount, path))

    if network.existing is None:
        gateways = {"none": 0, "single": 1, "per-az": len(network.availability_zones)}[network.nat]
        need("vpcs", 1, "network")
        need("internet-gateways", min(gateways, 1), "network")
        need("elastic-ips", gateways, "network", "nat")
        need("nat-gateways", min(gateways, 1), "network", "nat")
        need("interface-endpoints", len(interface_endpoints(s)), "network", "endpoints")
        need("gateway-endpoints", 1, "network")
    need("auto-scaling-groups", len(groups), "gpuGroups")
    need("launch-templates", len(groups), "gpuGroups")
    need("placement-groups", sum(group.placement == "cluster" for group in groups), "gpuGroups")
    need("lifecycle-hooks", GROUP_LIFECYCLE_HOOKS, "gpuGroups")
    gib = sum(group.root_volume_gib * group.max_nodes for group in groups)
    need("gp3-storage", ceil(gib / GIB_PER_TIB), "gpuGroups")
    for place, group in enumerate(groups):
        block = group.reservation is not None and group.reservation.kind == "capacity-block"
        actions = len(group.schedules) + (CAPACITY_BLOCK_ACTIONS if block else 0)
        need("scheduled-actions", actions, "gpuGroups", place)
        need("capacity-block-instances", group.max_nodes if block else 0, "gpuGroups", place)
    logs = 0 if s.access_logs.retention_days is None else 1
    need("buckets", 1 + len(s.datasets) + logs, "datasets")
    if s.lustre is not None:
        kind = "persistent" if s.lustre.deployment == "PERSISTENT_2" else "scratch"
        need(f"lustre-{kind}-storage", s.lustre.capacity_gib, "lustre")
    if s.budget is not None:
        need("budget-notifications", 3 + (s.budget.stop_at_percent is not None), "budget")
    return needs


RULES = (gpu_quotas_hold_all_nodes, other_quotas_hold_the_stack, fixed_limits_hold_the_stack)
