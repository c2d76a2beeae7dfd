"""The AWS account of a stack, asked with the caller's credentials and never before it is known to be the right one."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

from components.settings import Settings

from .refusal import EXIT_FINDINGS, EXIT_NO_CREDENTIALS, EXIT_USAGE, Refused

# One call answers or fails within the limit of a check.
QUICK = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=3, read_timeout=6)
EXPIRED = {
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "InvalidToken",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "AuthFailure",
}
DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError"}
LOCAL_STACK = "local"
HOW = "log in (aws sso login), or set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


@dataclass
class Account:
    """`region` is the stack's. Clients are made once and shared by threads, which boto3's clients allow."""

    id: str
    arn: str  # who asks
    region: str
    session: Any
    _clients: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False)
    _making: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def client(self, service: str, region: str | None = None) -> Any:
        key = (service, region or self.region)
        with self._making:  # making one is not thread-safe
            if key not in self._clients:
                self._clients[key] = self.session.client(service, region_name=key[1], config=QUICK)
            return self._clients[key]


def open_account(settings: Settings) -> Account:
    """One call, to learn whose credentials these are. Raises Refused."""
    if settings.stack == LOCAL_STACK and "AWS_ENDPOINT_URL" not in os.environ:
        raise Refused("the local stack has no account: name another one, such as STACK=dev")
    try:
        session = boto3.Session(region_name=settings.region)
        caller = session.client("sts", config=QUICK).get_caller_identity()
    except ProfileNotFound as error:
        raise Refused(f"{error}: set AWS_PROFILE to one that exists", EXIT_NO_CREDENTIALS) from None
    except (NoCredentialsError, PartialCredentialsError, SSOError, TokenRetrievalError) as error:
        raise Refused(f"no AWS credentials ({_one_line(error)}): {HOW}", EXIT_NO_CREDENTIALS) from None
    except ClientError as error:
        if code_of(error) in EXPIRED:
            raise Refused(
                f"the AWS credentials are not valid any more ({code_of(error)}): {HOW}", EXIT_NO_CREDENTIALS
            ) from None
        raise Refused(f"AWS does not say who you are: {reason(error)}", EXIT_NO_CREDENTIALS) from None
    except (ConnectionError, EndpointConnectionError) as error:
        raise Refused(f"AWS cannot be reached: {_one_line(error)}", EXIT_FINDINGS) from None
    except BotoCoreError as error:
        raise Refused(f"AWS: {_one_line(error)}", EXIT_NO_CREDENTIALS) from None
    if caller["Account"] not in settings.allowed_account_ids:
        raise Refused(
            f"these credentials are of account {caller['Account']}, and stack '{settings.stack}' may touch "
            f"{', '.join(settings.allowed_account_ids)} only: use other credentials (AWS_PROFILE), or add the account "
            "to gpu-training:allowedAccountIds",
            EXIT_USAGE,
        )
    return Account(caller["Account"], caller["Arn"], settings.region, session)


def code_of(error: BaseException) -> str:
    """AWS's own name of the error; empty for one that is not AWS's answer."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def reason(error: BaseException) -> str:
    """Why a call failed, in one line."""
    if isinstance(error, ClientError):
        told = error.response.get("Error", {})
        code, text = told.get("Code", "?"), _shortened(str(told.get("Message", "")))
        if code in DENIED:
            return f"not allowed: {text}" if text else f"not allowed to call {error.operation_name}"
        return f"{code}: {text}" if text else f"{code} from {error.operation_name}"
    if isinstance(error, NotImplementedError):
        return "this API is not there"
    return _one_line(error) or type(error).__name__


def _one_line(error: BaseException) -> str:
    return _shortened(" ".join(str(error).split()).rstrip("."))


def _shortened(text: str, limit: int = 240) -> str:
    text = text.partition(" Encoded authorization failure message")[0].strip().rstrip(".")
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
