"""The rows of the log of public reports for which the program builds the right thing: over one stack with all of it."""

from __future__ import annotations

import re
from typing import Any

from components.catalog import INSTANCE_TYPES
from tests.components.kit import Recording, Registered
from tests.unit.public_reports import (
    BLOCK,
    FILE_SYSTEM,
    LIFECYCLE,
    ONE_ZONE,
    SCALING,
    TEMPLATE,
    Built,
)
from tests.unit.rule_cases import IMAGE
from tests.unit.stack_files import ROOT, minimal

BUCKET, PLACEMENT = "aws:s3/bucket:Bucket", "aws:ec2/placementGroup:PlacementGroup"
ASSOCIATION = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
ODCR = {"kind": "on-demand", "id": "cr-0123456789abcdef1", "zone": "us-east-1a", "count": 2}
BASE_IMAGE = {**IMAGE, "profile": "dlami-base-ubuntu-24.04"}


def _group(name: str, type_: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "instanceTypes": [type_], "maxNodes": 2, "image": IMAGE, **more}


GROUPS = [
    _group("h100", "p5.48xlarge", placement="cluster", **ONE_ZONE),
    _group("b300", "p6-b300.48xlarge", **{**ONE_ZONE, "zones": ["us-east-1b"], "image": BASE_IMAGE}),
    _group("one-efa", "p5.4xlarge", **ONE_ZONE),
    _group("near", "g6.xlarge", efa="off", placement="cluster", **ONE_ZONE),
    _group("block", "p5en.48xlarge", reservation={**BLOCK, "zone": "us-east-1b"}, zones=["us-east-1b"]),
    _group("reserved", "g6.12xlarge", reservation=ODCR, **ONE_ZONE),
    {
        **_group("spot", "g6.12xlarge", efa="off", purchase={"spotPercent": 100}, rollout="refresh"),
        "instanceTypes": ["g6.12xlarge", "g6.24xlarge"],
    },
]
FLEET: dict[str, Any] = {
    **minimal(),
    "gpuGroups": GROUPS,
    "datasets": [{"name": "one", "readPath": "lustre"}, {"name": "two", "readPath": "lustre"}],
    "lustre": {"zone": "us-east-1a", "capacityGib": 1200, "efa": True, "metadataIops": 6000},
}


def _template(program: Recording, group: str) -> dict[str, Any]:
    return next(t.inputs for t in program.of_type(TEMPLATE) if t.name.startswith(f"{group}-template"))


def _scaling(program: Recording, group: str) -> Registered:
    return program.one(SCALING, f"{group}-group")


def _interfaces(program: Recording, group: str) -> list[dict[str, Any]]:
    return _template(program, group)["networkInterfaces"]


def _all_interfaces(program: Recording) -> list[dict[str, Any]]:
    return [one for t in program.of_type(TEMPLATE) for one in t.inputs["networkInterfaces"]]


def _efas(program: Recording, group: str) -> list[dict[str, Any]]:
    return [one for one in _interfaces(program, group) if one["interfaceType"] != "interface"]


def _versions(program: Recording) -> list[str]:
    groups = [group.inputs for group in program.of_type(SCALING)]
    mixed = [g["mixedInstancesPolicy"]["launchTemplate"] for g in groups if "mixedInstancesPolicy" in g]
    return [g["launchTemplate"]["version"] for g in groups if "launchTemplate" in g] + [
        one["launchTemplateSpecification"]["version"] for one in mixed
    ]


def _chained(program: Recording) -> bool:
    first, second = sorted(program.of_type(ASSOCIATION), key=lambda a: len(a.depends_on))
    return first.name in second.depends_on


BUILT = [
    Built(
        "A2",
        "eksctl#8685",
        "as many EFAs as the type has, not as it has cards",
        lambda p: len(_efas(p, "b300")) == INSTANCE_TYPES["p6-b300.48xlarge"].max_efa_interfaces == 16,
    ),
    Built(
        "A6",
        "terraform-aws-eks#3653",
        "a plain primary interface, efa-only beside it, all in the nodes' own group",
        lambda p: (
            _interfaces(p, "h100")[0]["interfaceType"] == "interface"
            and {one["interfaceType"] for one in _efas(p, "h100")} == {"efa-only"}
            and all(one["securityGroups"] == ["network-nodes-id"] for one in _all_interfaces(p))
        ),
    ),
    Built(
        "A7",
        "terraform-aws-eks#2182",
        "a card index on each interface",
        lambda p: all("networkCardIndex" in one for one in _all_interfaces(p)),
    ),
    Built(
        "A10",
        "terraform-provider-aws#24043",
        "launch templates, no instances",
        lambda p: len(p.of_type(TEMPLATE)) >= len(GROUPS) and not p.of_type("aws:ec2/instance:Instance"),
    ),
    Built(
        "A11",
        "aws-efa-eks#19",
        "no subnet in an interface: the group names it",
        lambda p: not any("subnetId" in one for one in _all_interfaces(p)),
    ),
    Built("A14", "dstack#1804", "the one EFA of p5.4xlarge", lambda p: len(_efas(p, "one-efa")) == 1),
    Built(
        "A18",
        "karpenter (kubernetes-sigs)#2440",
        "all EFAs by default",
        lambda p: len(_efas(p, "h100")) == 32,
    ),
    Built(
        "A21",
        "pulumi-eks#1564",
        "the template has the disk and its size",
        lambda p: _template(p, "h100")["blockDeviceMappings"][0]["ebs"]["volumeSize"] == 200,
    ),
    Built(
        "B5",
        "pulumi-eks#1550",
        "the image that was given",
        lambda p: _template(p, "h100")["imageId"] == IMAGE["amiId"],
    ),
    Built(
        "B10",
        "buildkite elastic-ci#857",
        "tokens only; the trainer runs on the node itself, so one hop is enough",
        lambda p: all(
            (
                t.inputs["metadataOptions"]["httpTokens"],
                t.inputs["metadataOptions"]["httpPutResponseHopLimit"],
            )
            == ("required", 1)
            for t in p.of_type(TEMPLATE)
        ),
    ),
    Built(
        "C5",
        "terraform-provider-aws#33665",
        "nothing waits for capacity; several types in several zones",
        lambda p: (
            all(g.inputs["waitForCapacityTimeout"] == "0" for g in p.of_type(SCALING))
            and len(_scaling(p, "spot").inputs["vpcZoneIdentifiers"]) == 2
            and len(_scaling(p, "spot").inputs["mixedInstancesPolicy"]["launchTemplate"]["overrides"]) == 2
        ),
    ),
    Built(
        "C6",
        "terraform-provider-aws#46437",
        "the provider's version is locked with its hashes",
        lambda p: (
            re.search(
                r"^pulumi-aws==\S+ \\\n    --hash=",
                (ROOT / "requirements/program.txt").read_text(),
                re.MULTILINE,
            )
            is not None
        ),
    ),
    Built(
        "C7",
        "terraform-provider-aws#34189",
        "a numbered version, without which a rollback has nothing to go back to",
        lambda p: all(version.isdigit() for version in _versions(p)),
    ),
    Built(
        "C13",
        "skypilot#779",
        "every node carries its stack's tag from its launch on",
        lambda p: all(
            any(tag["key"] == "gpu-training:stack" and tag["propagateAtLaunch"] for tag in g.inputs["tags"])
            for g in p.of_type(SCALING)
        ),
    ),
    Built(
        "C14",
        "skypilot#6939",
        "a cluster placement group where it was asked for",
        lambda p: (
            p.one(PLACEMENT, "h100-placement").inputs["strategy"] == "cluster"
            and bool(_scaling(p, "h100").inputs.get("placementGroup"))
        ),
    ),
    Built(
        "C22",
        "awsome-distributed-ai PR 1258",
        "the reservation is the template's target",
        lambda p: (
            _template(p, "reserved")["capacityReservationSpecification"]["capacityReservationTarget"]
            == {"capacityReservationId": ODCR["id"]}
        ),
    ),
    Built(
        "D2",
        "terraform-provider-aws#21460",
        "the group goes before its placement group",
        lambda p: "h100-placement" in _scaling(p, "h100").depends_on,
    ),
    Built(
        "D3",
        "terraform-provider-aws#47679",
        "the placement group is the scaling group's, so a change replaces no node by itself",
        lambda p: not any("placement" in t.inputs for t in p.of_type(TEMPLATE)),
    ),
    Built(
        "D5",
        "terraform-aws-eks PR 2959",
        "EFA without a placement group, and a placement group without EFA",
        lambda p: (
            bool(_efas(p, "b300"))
            and not _scaling(p, "b300").inputs.get("placementGroup")
            and not _efas(p, "near")
            and bool(_scaling(p, "near").inputs.get("placementGroup"))
        ),
    ),
    Built("E2", "terraform-provider-aws#24678", "associations one after another", _chained),
    Built(
        "E3",
        "eks-ml-kubeflow#112",
        "half an hour at least for an association",
        lambda p: all(
            int(a.request.customTimeouts.create.removesuffix("m")) >= 30 for a in p.of_type(ASSOCIATION)
        ),
    ),
    Built(
        "E5",
        "aws-parallelcluster#7616",
        "EFA and its metadata configuration at creation",
        lambda p: (
            p.one(FILE_SYSTEM).inputs["deploymentType"] == "PERSISTENT_2"
            and p.one(FILE_SYSTEM).inputs["efaEnabled"] is True
            and p.one(FILE_SYSTEM).inputs["metadataConfiguration"]["iops"] == 6000
        ),
    ),
    Built(
        "E9",
        "pulumi-aws#5187",
        "one lifecycle configuration a bucket",
        lambda p: len({r.inputs["bucket"] for r in p.of_type(LIFECYCLE)}) == len(p.of_type(LIFECYCLE)),
    ),
    Built(
        "E9b",
        "pulumi-aws#6244",
        "a bucket leaves its lifecycle to the resource of its own",
        lambda p: all(
            "lifecycleRules" in b.request.ignoreChanges and "lifecycleRules" not in b.inputs
            for b in p.of_type(BUCKET)
        ),
    ),
]
