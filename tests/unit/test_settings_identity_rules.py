"""The rules of identity, each once satisfied and once broken, with the exact line that a person reads."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from components.bootstrap.node_document import METRIC_NAMESPACE
from components.compute.node_rights import (
    key_statement,
    node_statements,
    only_from_the_own_vpc,
    services_behind_the_key,
)
from components.iam import policy_document
from components.names import stack_names
from components.settings import identity_rules, load
from components.settings.storage_model import DatasetSettings
from tests.unit.rule_cases import Case, Changes, configured, lines

# Put together at run time, so that nobody's scanner takes this file for a leak.
TOKENS = {
    "hugging face": "hf_" + "aBcDeFgHiJkLmNoPqRsT",
    "github": "ghp" + "_0123456789abcdefABCDEF",
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9.e30.x",
    "hex": "0123456789abcdef" * 2,
    "base64": "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4MTIz",
}


PLAIN = load("dev", configured({}))


def secrets(**named: str) -> Changes:
    return {("secrets",): named}


CASES = [
    Case(
        identity_rules.secrets_have_variables,
        secrets(**{"HF-TOKEN": "research/token"}),
        "gpu-training:secrets.HF-TOKEN: is no name of an environment variable; use letters, digits and _",
        secrets(HF_TOKEN="research/token", _x1="research/token"),
    ),
    Case(
        identity_rules.secrets_have_variables,
        secrets(MASTER_ADDR="research/token"),
        "gpu-training:secrets.MASTER_ADDR: is set by the node, torchrun or an SDK itself; choose another variable",
        secrets(MASTERS_TOKEN="research/token"),
    ),
    Case(
        identity_rules.secrets_have_variables,
        secrets(AWS_SESSION_TOKEN="research/token"),
        "gpu-training:secrets.AWS_SESSION_TOKEN: is set by the node, torchrun or an SDK itself; "
        "choose another variable",
        secrets(PATHS="research/token"),
    ),
    Case(
        identity_rules.secrets_are_named,
        secrets(HF_TOKEN="my token"),
        "gpu-training:secrets.HF_TOKEN: is no name of a secret; 1 to 512 letters, digits and /_+=.@-, "
        "such as research/token",
        secrets(HF_TOKEN="my_token@team.x=1+2"),
    ),
    Case(
        identity_rules.secrets_are_named,
        secrets(HF_TOKEN="arn:aws:secretsmanager:us-east-1:123456789012:secret:research/token-AbCdEf"),
        "gpu-training:secrets.HF_TOKEN: is an ARN; write the secret's name, of this account and region "
        "(nearest match: research/token)",
        secrets(HF_TOKEN="research/token"),
    ),
    Case(
        identity_rules.secret_names_do_not_end_like_arns,
        secrets(HF_TOKEN="research-tokens"),
        "gpu-training:secrets.HF_TOKEN: 'research-tokens' ends with a dash and six characters, as the ARN of a secret "
        "does; give the secret another name, else one without that end may be found in its place",
        secrets(HF_TOKEN="research-token"),
    ),
    *(
        Case(
            identity_rules.secrets_are_no_values,
            secrets(HF_TOKEN=token),
            "gpu-training:secrets.HF_TOKEN: looks like a secret itself, not like the name of one; revoke it, store its "
            "successor with `aws secretsmanager create-secret`, and write that name",
            secrets(HF_TOKEN="a-rather-long-name/of-the-research-group/hugging-face"),
        )
        for token in TOKENS.values()
    ),
    Case(
        identity_rules.boundary_is_of_the_account,
        {("permissionBoundaryArn",): "arn:aws:iam::999999999999:policy/boundary"},
        "gpu-training:permissionBoundaryArn: the policy is of account 999999999999, the roles are of 123456789012; "
        "name a policy of that account",
        {("permissionBoundaryArn",): "arn:aws:iam::aws:policy/ReadOnlyAccess"},
    ),
    Case(
        identity_rules.prefix_is_free_for_documents,
        {("namePrefix",): "awsome"},
        "gpu-training:namePrefix: Systems Manager takes no document whose name begins with aws, amazon, amzn; "
        "choose another",
        {("namePrefix",): "gpuaws"},
    ),
    Case(
        identity_rules.datasets_and_secrets_fit_a_role,
        {("datasets",): [{"name": f"{'d' * 26}-{n:02}"} for n in range(40)]},
        "gpu-training:datasets: 40 datasets and 0 secrets make a node's role longer than IAM takes; split the stack, "
        "or put several datasets' versions under one name",
        {("datasets",): [{"name": f"set-{n:02}"} for n in range(20)]},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule.__name__)
def test_what_is_refused_and_what_is_not(case: Case) -> None:
    told = [line for line in lines(case.stack, case.refused) if line == case.line]
    assert told == [case.line] or case.line in warned(case)
    assert case.line not in lines(case.stack, case.accepted)
    assert not list(case.rule(load(case.stack, configured(case.accepted))))


def warned(case: Case) -> list[str]:
    """What a rule of a lower level finds, which `load` does not raise."""
    return [str(fault) for fault in case.rule(load(case.stack, configured(case.refused)))]


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == set(identity_rules.RULES)


@pytest.mark.parametrize("kind", TOKENS)
def test_a_token_is_not_repeated_in_the_message(kind: str) -> None:
    (line,) = lines("dev", secrets(HF_TOKEN=TOKENS[kind]))
    assert TOKENS[kind] not in line


@limits(deadline=None, max_examples=50)
@given(
    st.integers(0, 60),
    st.integers(1, 31),
    st.integers(0, 20),
    st.sampled_from(["us-east-1", "us-gov-west-1", "ap-southeast-2"]),
)
def test_what_the_rule_lets_pass_fits_a_role(
    datasets: int, length: int, secret_count: int, region: str
) -> None:
    """The longest role: a key of the stack's own, and credentials bound to the VPC."""
    settings = PLAIN.model_copy(
        update={
            "region": region,
            "name_prefix": "p" * 16,
            "datasets": [DatasetSettings(name=f"d{n:02}".ljust(length, "x")) for n in range(datasets)],
            "secrets": {f"S{n}": f"{n}".rjust(60, "s") for n in range(secret_count)},
        }
    )
    if list(identity_rules.datasets_and_secrets_fit_a_role(settings)):
        return
    names = stack_names(settings)
    group = "g" * 31
    rights = node_statements(names, group, names.auto_scaling_group(group), METRIC_NAMESPACE)
    key = f"arn:aws-us-gov:kms:{region}:123456789012:key/{'0' * 36}"
    texts = [
        policy_document([*rights, *only_from_the_own_vpc(rights, ("*",))]),
        policy_document([key_statement(key, region, services_behind_the_key(names))]),
    ]
    assert sum(len(json.dumps(json.loads(t), separators=(",", ":"))) for t in texts) <= (
        identity_rules.MAX_INLINE_CHARACTERS
    )
