"""Rules of identity: secrets by name, the permission boundary, names that Systems Manager and IAM take."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .faults import Fault, warning
from .model import Settings

# What the node, torchrun or the SDKs set themselves; a secret of that name would break a run or be lost.
RESERVED_VARIABLES = frozenset(
    {
        *("PATH", "HOME", "USER", "SHELL", "TMPDIR", "LANG", "TZ"),
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
        *("GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"),
    }
)
RESERVED_PREFIXES = (
    *("AWS_", "TRAINER_", "MASTER_", "TORCH", "NCCL_", "GLOO_", "FI_", "LD_", "PYTHON", "XDG_"),
    "BASH_FUNC_",
)
SECRET_NAME = re.compile(r"[A-Za-z0-9/_+=.@-]{1,512}")  # Secrets Manager API reference, CreateSecret (2026)
RANDOM_SUFFIX = re.compile(r"-[A-Za-z0-9]{6}$")
SECRET_ARN = re.compile(r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:(.+?)(-[A-Za-z0-9]{6})?")
# The forms that issuers give their tokens, so that scanners find them; and long runs of hex or base64.
TOKEN_FORMS = re.compile(
    r"(hf_|sk-|sk_|pk_|rk_|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA|npm_|pypi-|dckr_pat_|eyJ)\S{12,}"
    r"|[0-9a-f]{32,}|(?=\S*\d)(?=\S*[A-Z])(?=\S*[a-z])[A-Za-z0-9+=_]{32,}",
)
# Systems Manager API reference, CreateDocument: names that begin like this are AWS's own.
RESERVED_DOCUMENT_PREFIXES = ("aws", "amazon", "amzn")
# IAM quotas (2026): characters of all inline policies of one role, without white space.
MAX_INLINE_CHARACTERS = 10_240
BASE_CHARACTERS = 4_600  # of a role whose stack has no dataset and no secret; a test measures it


def secrets_have_variables(s: Settings) -> Iterator[Fault]:
    """Keys of `secrets` are names of environment variables that nobody else sets (POSIX, torchrun, the SDKs)."""
    for variable in s.secrets:
        path = ("secrets", variable)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            yield Fault(path, "is no name of an environment variable", "use letters, digits and _")
        elif variable in RESERVED_VARIABLES or variable.startswith(RESERVED_PREFIXES):
            yield Fault(path, "is set by the node, torchrun or an SDK itself", "choose another variable")


def secrets_are_named(s: Settings) -> Iterator[Fault]:
    """Values of `secrets` are names that Secrets Manager takes (API reference, CreateSecret), not ARNs."""
    for variable, name in s.secrets.items():
        path = ("secrets", variable)
        if TOKEN_FORMS.fullmatch(name):
            continue  # told by secrets_are_no_values, which does not repeat it
        if arn := SECRET_ARN.fullmatch(name):
            yield Fault(
                path, "is an ARN", "write the secret's name, of this account and region", arn.group(1)
            )
        elif not SECRET_NAME.fullmatch(name):
            yield Fault(
                path, "is no name of a secret", "1 to 512 letters, digits and /_+=.@-, such as research/token"
            )


def secrets_are_no_values(s: Settings) -> Iterator[Fault]:
    """A value that looks like a token would stand in the state, in a document and in this message."""
    for variable, name in s.secrets.items():
        if TOKEN_FORMS.fullmatch(name):
            yield Fault(
                ("secrets", variable),
                "looks like a secret itself, not like the name of one",
                "revoke it, store its successor with `aws secretsmanager create-secret`, and write that name",
            )


@warning
def secret_names_do_not_end_like_arns(s: Settings) -> Iterator[Fault]:
    """A dash and six characters at a name's end are taken for the suffix of its ARN (Secrets Manager user guide)."""
    for variable, name in s.secrets.items():
        if RANDOM_SUFFIX.search(name) and SECRET_NAME.fullmatch(name) and not TOKEN_FORMS.fullmatch(name):
            yield Fault(
                ("secrets", variable),
                f"'{name}' ends with a dash and six characters, as the ARN of a secret does",
                "give the secret another name, else one without that end may be found in its place",
            )


def boundary_is_of_the_account(s: Settings) -> Iterator[Fault]:
    """IAM takes as boundary a policy of the role's own account, or one of AWS's (IAM user guide)."""
    if s.permission_boundary_arn is None:
        return
    owner = s.permission_boundary_arn.split(":")[4]
    if owner not in ("aws", s.account_id):
        yield Fault(
            ("permissionBoundaryArn",),
            f"the policy is of account {owner}, the roles are of {s.account_id}",
            "name a policy of that account",
        )


def prefix_is_free_for_documents(s: Settings) -> Iterator[Fault]:
    """The session document begins with the prefix, and Systems Manager keeps some beginnings (CreateDocument)."""
    if s.name_prefix.startswith(RESERVED_DOCUMENT_PREFIXES):
        yield Fault(
            ("namePrefix",),
            f"Systems Manager takes no document whose name begins with {', '.join(RESERVED_DOCUMENT_PREFIXES)}",
            "choose another",
        )


def datasets_and_secrets_fit_a_role(s: Settings) -> Iterator[Fault]:
    """A node's role names each dataset and secret; IAM takes 10240 characters of inline policies a role."""
    arn = len("arn:aws-us-gov:secretsmanager:::secret:??????") + len(s.region) + 12
    bucket = len(f"arn:aws-us-gov:s3:::{s.base_name}-data--") + 12
    needed = sum(2 * (bucket + len(d.name)) + len("/datasets//*") + len(d.name) + 6 for d in s.datasets)
    needed += sum(arn + len(name) + 4 for name in set(s.secrets.values()))
    if BASE_CHARACTERS + needed > MAX_INLINE_CHARACTERS:
        yield Fault(
            ("datasets",),
            f"{len(s.datasets)} datasets and {len(s.secrets)} secrets make a node's role longer than IAM takes",
            "split the stack, or put several datasets' versions under one name",
        )


RULES = (
    secrets_have_variables,
    secrets_are_named,
    secrets_are_no_values,
    secret_names_do_not_end_like_arns,
    boundary_is_of_the_account,
    prefix_is_free_for_documents,
    datasets_and_secrets_fit_a_role,
)
