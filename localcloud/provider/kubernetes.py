"""The stand-in Kubernetes provider: objects and Helm releases as declared.

Run it as `python -m localcloud.provider.kubernetes`.
"""

from __future__ import annotations

import sys

from .declared import Declared
from .kinds import Place
from .service import Package
from .serving import main, sdk_version
from .tables.kubernetes import kubernetes_kind

PACKAGE = Package(
    name="kubernetes",
    version=sdk_version("pulumi-kubernetes"),
    kind_of=kubernetes_kind,
    place_of=lambda config, standing: Place(region="", account=""),
    backend_of=lambda place, standing: Declared(),
)

if __name__ == "__main__":
    sys.exit(main(PACKAGE))
