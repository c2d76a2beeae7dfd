"""The topic on which nodes tell that a run finished, failed or was stopped."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.iam import policy_document
from components.names import StackNames

# SNS's own key of the account: its policy lets in whoever the account lets publish (SNS developer guide, Key
# management), so that nodes need no right to a key.
SNS_OWN_KEY = "alias/aws/sns"


@dataclass(frozen=True)
class RunEventsArgs:
    """Who is told of what a stack's runs came to."""

    names: StackNames
    """The topic's name, and where it is."""

    emails: list[str]
    """Addresses that get each message as text, after the owner confirmed the subscription. Empty: the topic alone."""

    kms_key_arn: pulumi.Input[str] | None = None
    """A key whose policy lets nodes use it through SNS. None: SNS's own key of the account, at no charge."""


class RunEvents(pulumi.ComponentResource):
    """Topic, its policy and the subscriptions. Nodes publish by the right of their role; nobody else is let in."""

    topic_arn: pulumi.Output[str]
    ready: list[pulumi.Resource]  # what must exist before a node tells anything

    def __init__(self, name: str, args: RunEventsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gputraining:monitoring:RunEvents", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        topic = aws.sns.Topic(
            f"{name}-topic",
            name=args.names.runs_topic,
            kms_master_key_id=args.kms_key_arn or SNS_OWN_KEY,
            tags={"Name": args.names.runs_topic},
            opts=child,
        )
        policy = aws.sns.TopicPolicy(
            f"{name}-policy",
            arn=topic.arn,
            policy=policy_document(
                [
                    {
                        "Sid": "TlsOnly",
                        "Effect": "Deny",
                        "Principal": "*",
                        "Action": ["sns:Publish"],
                        "Resource": [args.names.arn("sns", args.names.runs_topic)],
                        "Condition": {"Bool": {"aws:SecureTransport": ["false"]}},
                    }
                ]
            ),
            opts=child,
        )
        for email in args.emails:
            aws.sns.TopicSubscription(
                f"{name}-email-{email}", topic=topic.arn, protocol="email", endpoint=email, opts=child
            )
        self.topic_arn = topic.arn
        self.ready = [topic, policy]
        self.register_outputs({"topicArn": self.topic_arn})
