"""Stand-ins for the official AWS and Kubernetes provider plugins, spoken to by the real Pulumi engine.

Run `python -m localcloud.provider.aws` (or `.kubernetes`): the process prints its port and serves the
engine's ResourceProvider protocol until SIGINT or SIGTERM. The engine starts it when an executable of the
plugin's name (`pulumi-resource-aws`) comes first on its PATH.

Environment:

- `GPU_TRAINING_STANDIN_MODE`: `preview` (any stack; refuses to create, update or delete) or `local` (realises
  what the local cloud needs and keeps the rest as declared). No default: the mode is chosen, never guessed.
- `GPU_TRAINING_LOCAL_ROOT` (local): the folder that must hold the state backend.
- `PULUMI_BACKEND_URL` (local): must be a `file://` URL below that folder.
- `GPU_TRAINING_LOCAL_ENDPOINT` (local): the AWS emulation's URL; its host must be a loopback address.
- `GPU_TRAINING_LOCAL_STACKS` (local): comma-separated stacks that may be realised; default `local`.

Layout: `service.py` the protocol, `values.py` wire values, `kinds.py` what a resource kind is, `diff.py` what
a change means, `guard.py` who may be realised, `tables/` the dated facts of each kind, `realise/` the boto3
calls of each service.
"""
