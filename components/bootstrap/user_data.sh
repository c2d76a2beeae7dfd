#!/bin/bash
# Boots a training node: node document, trainer release, offline install, agent. Safe to run twice.
# The variables above are this group's; the rest is the same on every node. Nothing here is secret, since whoever is
# on the node can read it. Every failure has a name and a code of its own (the trainer's exit_codes.py), is counted,
# logged, and answers the launching hook, so that no launch ends in silence.
#
# Seams of a test bed, absent on AWS: TRAINER_ROOT is put before every path, TRAINER_START_HOOK is a command that
# starts the agent in systemd's stead; AWS_ENDPOINT_URL and AWS_EC2_METADATA_SERVICE_ENDPOINT are the AWS SDKs' own.

set -Eeuo pipefail
umask 022
: "${STACK:?}" "${GROUP:?}" "${REGION:?}" "${AUTO_SCALING_GROUP:?}" "${DOCUMENT_URI:?}" "${DOCUMENT_SHA256:?}"
: "${SCHEMA_VERSION:?}" "${INTERPRETER:?}" "${AWS_CLIENT:?}" "${LAUNCHING_HOOK:?}" "${TERMINATING_HOOK:?}"
: "${ON_FAILURE:?}" "${MAX_REPLACEMENTS:?}" "${METRIC_NAMESPACE:?}" "${LOG_GROUP:?}"

root=${TRAINER_ROOT:-}
metadata=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
metadata=${metadata%/}
home=$root/opt/trainer
state=$root/var/lib/trainer
document=$root/etc/trainer/node.json
python=$root$INTERPRETER
instance_id=""
fetch_attempts=5

export HOME=${HOME:-/root} AWS_DEFAULT_REGION=$REGION AWS_PAGER="" AWS_RETRY_MODE=standard AWS_MAX_ATTEMPTS=3
export PIP_CONFIG_FILE=/dev/null PIP_NO_INPUT=1

aws_command=aws
[[ $AWS_CLIENT == /* && -x $root$AWS_CLIENT ]] && aws_command=$root$AWS_CLIENT
call() { "$aws_command" --cli-connect-timeout 5 --cli-read-timeout 60 "$@"; }
say() { echo "bootstrap: $*"; }

# step CODE NAME TEXT: what is done now, and the failure it ends in if a command fails that nobody foresaw.
step() {
  step_code=$1 step_name=$2
  say "$3"
}

count() {
  call cloudwatch put-metric-data --namespace "$METRIC_NAMESPACE" --metric-name "$1" --unit Count --value 1 \
    --dimensions "AutoScalingGroupName=$AUTO_SCALING_GROUP"
}

# Failed boots of the group in the last hour, this one included; nothing when CloudWatch does not answer.
failures_of_the_hour() {
  call cloudwatch get-metric-statistics --namespace "$METRIC_NAMESPACE" --metric-name SelfCheckFailed \
    --dimensions "Name=AutoScalingGroupName,Value=$AUTO_SCALING_GROUP" --statistics Sum --period 60 \
    --start-time "$(date -u -d '1 hour ago' +%FT%TZ)" --end-time "$(date -u -d '1 minute' +%FT%TZ)" \
    --query 'sum(Datapoints[].Sum)' --output text
}

log_remotely() {
  local stream=$GROUP/$instance_id/bootstrap text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  call logs create-log-stream --log-group-name "$LOG_GROUP" --log-stream-name "$stream" &&
    call logs put-log-events --log-group-name "$LOG_GROUP" --log-stream-name "$stream" \
      --log-events "[{\"timestamp\": $(date +%s%3N), \"message\": \"$text\"}]"
}

suspend_launches() {
  say "$1 failed boots in one hour, $MAX_REPLACEMENTS are allowed: launches of $AUTO_SCALING_GROUP are suspended"
  call autoscaling suspend-processes --auto-scaling-group-name "$AUTO_SCALING_GROUP" --scaling-processes Launch
  count LaunchesSuspended
  say "when the cause is mended, resume with: aws autoscaling resume-processes --region $REGION" \
    "--auto-scaling-group-name $AUTO_SCALING_GROUP --scaling-processes Launch"
}

# fail CODE NAME TEXT: report in every way there is, then end. Reporting is best effort: the network may be the fault.
fail() {
  trap - ERR
  set +e
  local line failures result=ABANDON
  line="FAILED $1 $2: $(tr -s '\n\r\t' ' ' <<<"$3")"
  say "$line"
  {
    count SelfCheckFailed
    log_remotely "bootstrap: $line"
  } >/dev/null
  failures=$(failures_of_the_hour)
  failures=${failures%%.*}
  if [[ $failures =~ ^[0-9]+$ ]] && ((failures > MAX_REPLACEMENTS)); then suspend_launches "$failures"; fi
  [[ $ON_FAILURE == report ]] && result=CONTINUE
  if [[ -n $instance_id ]]; then
    call autoscaling complete-lifecycle-action --auto-scaling-group-name "$AUTO_SCALING_GROUP" \
      --lifecycle-hook-name "$LAUNCHING_HOOK" --instance-id "$instance_id" --lifecycle-action-result "$result" &&
      say "launching hook: $result"
  fi
  exit "$1"
}
# Not in a subshell: its failure reaches the command that waits for it, and is reported once.
trap '((BASH_SUBSHELL)) || fail "$step_code" "$step_name" "line $LINENO: $BASH_COMMAND"' ERR

last_line() { tail -n 1 <<<"$1"; }

# fetch URI FILE MISSING_CODE MISSING_NAME: an object from S3, with a limit; what does not exist is not asked for twice.
fetch() {
  local output attempt
  for ((attempt = 1; attempt <= fetch_attempts; attempt++)); do
    if output=$(call s3 cp --only-show-errors "$1" "$2.part" 2>&1); then
      mv -f "$2.part" "$2"
      return
    fi
    if [[ $output == *"(404)"* || $output == *NoSuchKey* || $output == *NoSuchBucket* ]]; then
      fail "$3" "$4" "$1 does not exist"
    fi
    say "attempt $attempt of $fetch_attempts: $(last_line "$output")"
    if ((attempt < fetch_attempts)); then sleep $((2 ** (attempt - 1))); fi
  done
  fail 50 BOOT_UNREACHABLE "$1: $(last_line "$output")"
}

# verify FILE SHA256 CODE NAME URI
verify() {
  local found
  found=$(sha256sum "$1")
  found=${found%% *}
  if [[ $found != "$2" ]]; then
    rm -f "$1"
    fail "$3" "$4" "$5 has SHA-256 $found, expected $2"
  fi
}

# --- who am I
step 50 BOOT_UNREACHABLE "identity from $metadata"
from_metadata() { curl --fail --silent --show-error --max-time 5 --retry 5 --retry-connrefused "$@"; }
token=$(from_metadata --request PUT --header "X-aws-ec2-metadata-token-ttl-seconds: 300" "$metadata/latest/api/token")
instance_id=$(from_metadata --header "X-aws-ec2-metadata-token: $token" "$metadata/latest/meta-data/instance-id")
say "instance $instance_id of group $GROUP in stack $STACK"

# --- what is expected of me
step 51 BOOT_DOCUMENT_MISSING "node document $DOCUMENT_URI"
mkdir -p "$home/releases" "$state" "${document%/*}"
fetch "$DOCUMENT_URI" "$document.new" 51 BOOT_DOCUMENT_MISSING
verify "$document.new" "$DOCUMENT_SHA256" 52 BOOT_DOCUMENT_HASH "$DOCUMENT_URI"

step 53 BOOT_DOCUMENT_SCHEMA "schema of the node document"
[[ -x $python ]] || fail 56 BOOT_INSTALL "the image has no $INTERPRETER"
if ! facts=$("$python" -I - "$document.new" "$SCHEMA_VERSION" 2>&1 <<'PYTHON'
import json, sys

with open(sys.argv[1], encoding="utf-8") as file:
    document = json.load(file)
found, known = document["schemaVersion"], int(sys.argv[2])
if found > known:
    sys.exit(f"the document has schema version {found}, this script knows {known}")
torch = document["torch"]
artifact = torch.get("artifact", {})
print(document["release"]["uri"], document["release"]["sha256"], document["release"]["version"], sep="\n")
print(torch.get("sitePackages", ""), artifact.get("uri", ""), artifact.get("sha256", ""), sep="\n")
print(document.get("scratch", {}).get("path", ""), "end", sep="\n")
PYTHON
); then fail 53 BOOT_DOCUMENT_SCHEMA "$(last_line "$facts")"; fi
{
  read -r release_uri && read -r release_sha256 && read -r release_version
  read -r torch_site_packages && read -r torch_uri && read -r torch_sha256 && read -r scratch
} <<<"$facts"
mv -f "$document.new" "$document"

# --- the trainer, from hashed wheels and without an index
release=$home/releases/${release_sha256:0:12}
venv=$release/venv

# unpack_and_install URI SHA256 NAME
unpack_and_install() {
  local tar=$release/$3.tar
  step 54 BOOT_RELEASE_MISSING "fetch $1"
  fetch "$1" "$tar" 54 BOOT_RELEASE_MISSING
  verify "$tar" "$2" 55 BOOT_RELEASE_HASH "$1"
  step 56 BOOT_INSTALL "install $3"
  mkdir -p "$release/$3"
  tar -x --no-same-owner -f "$tar" -C "$release/$3"
  rm -f "$tar"
  local output
  if ! output=$("${pip[@]}" install --quiet --disable-pip-version-check --no-cache-dir --no-index --no-deps \
    --find-links "$release/$3/wheels" --require-hashes --requirement "$release/$3/requirements.txt" 2>&1); then
    fail 56 BOOT_INSTALL "pip: $(last_line "$(grep -i error <<<"$output" || echo "$output")")"
  fi
  rm -rf "${release:?}/$3"
}

if [[ -e $release/complete ]]; then
  step 56 BOOT_INSTALL "release $release_version is installed already"
else
  step 56 BOOT_INSTALL "environment for release $release_version"
  rm -rf "$release"
  mkdir -p "$release"
  "$python" -m venv --without-pip "$venv"
  # The image's pip installs into the new environment; an interpreter without pip has it in its bundled wheel.
  pip=("$python" -m pip --python "$venv/bin/python")
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    "$venv/bin/python" -m ensurepip >/dev/null 2>&1
    pip=("$venv/bin/python" -m pip)
  fi
  unpack_and_install "$release_uri" "$release_sha256" trainer
  if [[ -n $torch_uri ]]; then
    unpack_and_install "$torch_uri" "$torch_sha256" torch
  else
    step 56 BOOT_INSTALL "torch of the image, from $torch_site_packages"
    [[ -d $root$torch_site_packages/torch ]] || fail 56 BOOT_INSTALL "the image has no torch in $torch_site_packages"
    site_packages=$("$venv/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$root$torch_site_packages" >"$site_packages/torch-of-the-image.pth"
  fi
  touch "$release/complete"
fi
ln -sfn "releases/${release_sha256:0:12}/venv" "$home/current.new"
mv -fT "$home/current.new" "$home/current"

# --- the agent
step 57 BOOT_START "start the agent"
if [[ -n ${TRAINER_START_HOOK:-} ]]; then
  read -ra hook <<<"$TRAINER_START_HOOK"
  command -v "${hook[0]}" >/dev/null || fail 57 BOOT_START "the start hook ${hook[0]} is no program"
  exec "${hook[@]}"
fi

id trainer >/dev/null 2>&1 ||
  useradd --system --user-group --home-dir "$state" --no-create-home --shell /usr/sbin/nologin trainer

# What only root may do once the agent has ended. A node's log shows what it did: journalctl -u trainer.
cat >"$home/on-stop.new" <<HELPER
#!/bin/bash
aws=$aws_command region=$REGION id=$instance_id group=$AUTO_SCALING_GROUP hook=$TERMINATING_HOOK home=$home
HELPER
cat >>"$home/on-stop.new" <<'HELPER'
# The unit's HOME is the agent's to write, so nothing is read from there.
export HOME=/root AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null AWS_PAGER=''
say() { echo "on-stop: exit $EXIT_STATUS: $*"; }
# ask TRIES CALL...: ends before TimeoutStopSec, whatever AWS does.
ask() {
  local left=$1
  shift
  until answer=$(timeout -k 1 20 "$aws" --cli-connect-timeout 5 --cli-read-timeout 15 \
    "$@" --region "$region" --instance-id "$id" 2>&1); do
    answer=$(tail -n 1 <<<"$answer")
    ((--left > 0 && SECONDS < 80)) || return 1
    sleep 2
  done
}
replace() {
  if ask 3 autoscaling set-instance-health --health-status Unhealthy --no-should-respect-grace-period; then
    say "$1, the group was asked for a replacement"
  else
    say "$1, but no replacement could be asked for: $answer"
  fi
}
# Anything but an exit of its own (a signal, a time limit) is not the agent's word; systemd restarts it.
[[ ${EXIT_CODE:-} == exited && ${SERVICE_RESULT:-} =~ ^(success|exit-code)$ ]] || exit 0
case $EXIT_STATUS in
  10 | 12 | 13) replace "bad node" ;;
  11)
    if [[ ! -e $home/restarted ]] && touch "$home/restarted"; then
      say "reboot, once in this node's life"
      systemctl --no-block reboot
    else
      replace "a second reboot was wanted"
    fi
    ;;
  0)
    if ask 3 autoscaling terminate-instance-in-auto-scaling-group --should-decrement-desired-capacity; then
      say "the run is over, this node is released"
      ask 15 autoscaling complete-lifecycle-action --auto-scaling-group-name "$group" \
        --lifecycle-hook-name "$hook" --lifecycle-action-result CONTINUE
    else
      say "the agent is started again and waits for the next run, since this node was not released: $answer"
      systemctl reset-failed trainer.service # else the start limit would count it
      systemctl --no-block start trainer.service
    fi
    ;;
  *) say "nothing to do" ;;
esac
exit 0
HELPER
chmod 0755 "$home/on-stop.new"
mv -f "$home/on-stop.new" "$home/on-stop"

# A group that the image lacks would keep the unit from starting.
groups=""
for name in systemd-journal video render; do
  if getent group "$name" >/dev/null; then groups+=" $name"; fi
done

# Why each line is there, and what is left open for CUDA, NCCL and EFA: docs/security.md. Not restarted is every end
# that a restart would only repeat (exit_codes.py); the rest comes again, three times an hour at most. Devices come by
# a unit of their own, since the device policy knows only drivers that are loaded before the agent's unit starts.
units=$root/etc/systemd/system
mkdir -p "$units"
cat >"$units/trainer-devices.service" <<UNIT
[Unit]
Description=NVIDIA's device files, which the agent may not make

[Service]
Type=oneshot
ExecStart=-/usr/bin/nvidia-modprobe -c 0 -u
TimeoutStartSec=60
UNIT
# Root's part of the disks, at each boot. What serves a mount is a process of this unit and must outlive it, also where
# another mount failed or the time was up: hence RemainAfterExit and KillMode. A fault keeps no agent from starting, and
# all of it ends well within the launching hook's 15 minutes. dlami-nvme.service is the unit of AWS's images that mounts
# the instance store.
cat >"$units/trainer-disks.service" <<UNIT
[Unit]
Description=Scratch space and mounted datasets
Wants=network-online.target
After=network-online.target local-fs.target dlami-nvme.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=$home/current/bin/python -I -m trainer.disks --document $document
KillMode=process
TimeoutStartSec=480
TimeoutStopSec=15
UNIT
unit=$units/trainer.service
cat >"$unit.new" <<UNIT
[Unit]
Description=Training agent of group $GROUP
Wants=network-online.target trainer-devices.service trainer-disks.service
After=network-online.target trainer-devices.service trainer-disks.service
StartLimitIntervalSec=3600
StartLimitBurst=4

[Service]
User=trainer
Group=trainer
SupplementaryGroups=$groups
Environment=AWS_DEFAULT_REGION=$REGION HOME=$state XDG_CACHE_HOME=$state/cache
Environment=TORCHINDUCTOR_CACHE_DIR=$state/cache/inductor TRITON_CACHE_DIR=$state/cache/triton
ExecStart=$home/current/bin/trainer agent --document $document --state-dir $state
ExecStopPost=-+$home/on-stop
Restart=on-failure
RestartSec=10
RestartPreventExitStatus=2 10 11 12 13 14 20 30 31 40 75 76
SuccessExitStatus=75 76
KillMode=mixed
TimeoutStopSec=110
OOMPolicy=continue
StateDirectory=trainer
${scratch:+ReadWritePaths=-$scratch}
UMask=0077
LimitCORE=1
LimitMEMLOCK=infinity
LimitNOFILE=1048576
TasksMax=infinity
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
PrivateMounts=yes
PrivateTmp=yes
DevicePolicy=closed
DeviceAllow=char-nvidia* rw
DeviceAllow=char-infiniband_verbs rw
DeviceAllow=char-gdrdrv rw
KeyringMode=private
LockPersonality=yes
RemoveIPC=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
UNIT
if cmp -s "$unit.new" "$unit"; then
  rm -f "$unit.new"
else
  # Only before the first start: a reload takes the GPUs from what runs in a container.
  mv -f "$unit.new" "$unit"
  systemctl daemon-reload
fi
systemctl enable --now trainer.service
say "done"
