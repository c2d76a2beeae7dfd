"""A bench for user data: the real script, with `aws`, `curl` and the system's own tools replaced by recorders."""

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

from components.bootstrap.user_data import BootVariables, render_user_data

BUCKET = "gputrain-test-artifacts-123456789012"
INSTANCE = "i-0123456789abcdef0"
AUTO_SCALING_GROUP = "gputrain-test-trainers"

# Copies objects from $BUCKETS, answers the failure count from $FAILURES, refuses the call $REFUSE, and writes down
# every call, with the HOME that it was made in.
AWS = """#!/bin/bash
echo "$*" >>"$CALLS"
echo "$HOME" >>"$CALLS.homes"
shift 4
if [[ -n ${REFUSE:-} && $2 == "$REFUSE" ]]; then
  printf '\\nAn error occurred (ValidationError) when calling the operation: minimum size\\n' >&2
  exit 254
fi
case "$1 $2" in
  "s3 cp")
    source=$BUCKETS/${4#s3://}
    if [[ -n ${AWS_DOWN:-} ]]; then echo "Could not connect to the endpoint URL" >&2; exit 255; fi
    if [[ ! -e $source ]]; then
      echo "fatal error: An error occurred (404) when calling the HeadObject operation: no such key" >&2
      exit 1
    fi
    cp "$source" "$5" ;;
  "cloudwatch get-metric-statistics") echo "${FAILURES:-1.0}" ;;
esac
"""
CURL = """#!/bin/bash
[[ -n ${METADATA_DOWN:-} ]] && { echo "curl: (7) Failed to connect" >&2; exit 7; }
case "$*" in
  *"--request PUT"*"/latest/api/token") echo -n TOKEN ;;
  *"X-aws-ec2-metadata-token: TOKEN"*instance-id) echo -n i-0123456789abcdef0 ;;
  *) exit 22 ;;
esac
"""
RECORDER = '#!/bin/bash\necho "$(basename "$0") $*" >>"$CALLS"\n'


def variables(**changes: object) -> BootVariables:
    base = BootVariables(
        stack="test",
        group="trainers",
        region="us-east-1",
        auto_scaling_group=AUTO_SCALING_GROUP,
        document_uri=f"s3://{BUCKET}/groups/trainers/node.json",
        document_sha256="0" * 64,
        schema_version=1,
        interpreter="/opt/pytorch/bin/python3",
        aws_client="/opt/pytorch/bin/aws",
        launching_hook="launching",
        terminating_hook="terminating",
        on_failure="replace",
        max_replacements=3,
        metric_namespace="GpuTraining",
        log_group="/gputrain-test/nodes",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def minimal_release(folder: Path, wheel_hash: str | None = None, pin_hash: bool = True) -> bytes:
    """A release tar with one wheel that brings the command `trainer`."""
    wheel = folder / "trainer_stub-1.0-py3-none-any.whl"
    info = "trainer_stub-1.0.dist-info"
    files = {
        "trainer_stub.py": "import sys\n\n\ndef main() -> None:\n    print('trainer', *sys.argv[1:])\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: trainer-stub\nVersion: 1.0\nRequires-Dist: torch\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ntrainer = trainer_stub:main\n",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    pin = "trainer-stub==1.0"
    if pin_hash:
        pin += f" --hash=sha256:{wheel_hash or sha256(wheel.read_bytes())}"
    (folder / "requirements.txt").write_text(f"{pin}\n")
    path = folder / "release.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(wheel, f"wheels/{wheel.name}")
        tar.add(folder / "requirements.txt", "requirements.txt")
    return path.read_bytes()


@dataclass
class Bench:
    """A node's root folder, its buckets, and the stand-ins on its PATH."""

    folder: Path

    def __post_init__(self) -> None:
        self.root = self.folder / "root"
        self.buckets = self.folder / "buckets"
        self.calls_file = self.folder / "calls"
        self.calls_file.touch()
        programs = self.folder / "bin"
        programs.mkdir()
        scripts = {"aws": AWS, "curl": CURL, "sleep": RECORDER, "systemctl": RECORDER, "useradd": RECORDER}
        # Every node in these tests is new: it has no user trainer yet. Of the groups it has two.
        scripts["getent"] = '#!/bin/bash\n[[ "$*" == "group systemd-journal" || "$*" == "group video" ]]\n'
        scripts["id"] = "#!/bin/bash\nexit 1\n"
        for name, text in scripts.items():
            (programs / name).write_text(text)
            (programs / name).chmod(stat.S_IRWXU)
        image = self.root / "opt/pytorch"
        (image / "bin").mkdir(parents=True)
        (image / "bin/python3").symlink_to(sys.executable)
        (image / "lib/python3/site-packages/torch").mkdir(parents=True)
        (image / "lib/python3/site-packages/torch/__init__.py").write_text("__version__ = 'of the image'\n")

    def put(self, key: str, data: bytes) -> None:
        path = self.buckets / BUCKET / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def run(self, boot: BootVariables, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "TRAINER_ROOT": str(self.root),
            "CALLS": str(self.calls_file),
            "BUCKETS": str(self.buckets),
            **environment,
        }
        return subprocess.run(
            ["bash", "-c", render_user_data(boot)], env=env, capture_output=True, text=True, timeout=120
        )

    @property
    def calls(self) -> list[str]:
        """The calls so far, without the two time limits that every one begins with."""
        lines = self.calls_file.read_text().splitlines()
        return [re.sub(r"^--cli-connect-timeout \d+ --cli-read-timeout \d+ ", "", line) for line in lines]

    def calls_of(self, words: str) -> list[str]:
        return [call for call in self.calls if call.startswith(words)]


def publish(bench: Bench, release: bytes, **changes: object) -> BootVariables:
    bench.put("releases/trainer/release.tar", release)
    document = {
        "schemaVersion": 1,
        "release": {
            "uri": f"s3://{BUCKET}/releases/trainer/release.tar",
            "sha256": sha256(release),
            "version": "1.0",
        },
        "torch": {"sitePackages": "/opt/pytorch/lib/python3/site-packages"},
        **changes,
    }
    text = json.dumps(document).encode()
    bench.put("groups/trainers/node.json", text)
    return variables(document_sha256=sha256(text))
