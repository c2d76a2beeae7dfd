"""All rules of the pack, one a file."""

from . import (
    aws_would_refuse,
    aws_would_refuse_together,
    bucket_hardening,
    cost_ceiling,
    efa_self_rules,
    encrypted_volumes,
    iam_no_star_star,
    images_pinned,
    imdsv2_required,
    log_retention_set,
    no_inline_security_group_rules,
    no_latest_template_version,
    no_public_ip_on_gpu_nodes,
    no_secrets_in_user_data,
    no_world_open_ingress,
    spot_no_lowest_price,
)
from ._judge import AnyRule

RULES: list[AnyRule] = [
    aws_would_refuse.RULE,
    aws_would_refuse_together.RULE,
    bucket_hardening.RULE,
    cost_ceiling.RULE,
    efa_self_rules.RULE,
    encrypted_volumes.RULE,
    iam_no_star_star.RULE,
    images_pinned.RULE,
    imdsv2_required.RULE,
    log_retention_set.RULE,
    no_inline_security_group_rules.RULE,
    no_latest_template_version.RULE,
    no_public_ip_on_gpu_nodes.RULE,
    no_secrets_in_user_data.RULE,
    no_world_open_ingress.RULE,
    spot_no_lowest_price.RULE,
]
