"""Lambda. As of 2026-11: pulumi_aws 7.51.1, Terraform AWS provider 6."""

from __future__ import annotations

from .build import arn, row

_FUNCTION = arn("lambda", "function:{name}")

KINDS = (
    row(
        "aws:lambda/function:Function",
        "{name}",
        {
            "arn": _FUNCTION,
            "invokeArn": "arn:{partition}:apigateway:{region}:lambda:path/2015-03-31/functions/"
            + _FUNCTION
            + "/invocations",
            "lastModified": "2026-01-01T00:00:00.000+0000",
            "qualifiedArn": _FUNCTION + ":$LATEST",
            "qualifiedInvokeArn": "arn:{partition}:apigateway:{region}:lambda:path/2015-03-31/functions/"
            + _FUNCTION
            + ":$LATEST/invocations",
            "responseStreamingInvokeArn": "arn:{partition}:apigateway:{region}:lambda:path/2021-11-15/functions/"
            + _FUNCTION
            + "/response-streaming-invocations",
            "signingJobArn": "",
            "signingProfileVersionArn": "",
            "sourceCodeSize": 1024,
            "version": "$LATEST",
        },
        replace="packageType",
        name="name",
        taggable=True,
    ),
    row(
        "aws:lambda/permission:Permission",
        "{in[statementId]}",
        filled={"statementId": "terraform-{hex17}"},
        replace="action eventSourceToken function functionUrlAuthType invokedViaFunctionUrl principal principalOrgId "
        "qualifier sourceAccount sourceArn statementId statementIdPrefix",
    ),
    row(
        "aws:lambda/functionEventInvokeConfig:FunctionEventInvokeConfig",
        "{in[functionName]}",
        replace="functionName qualifier",
    ),
)
