#!/bin/bash
# Starts the agent in systemd's stead, by the rules of the unit that the user data writes on AWS: restarted on
# failure, four starts in all, never for the codes of RestartPreventExitStatus. Ends with the agent's last code.
set -u
agent=(
  "$TRAINER_ROOT/opt/trainer/current/bin/trainer" agent
  --document "$TRAINER_ROOT/etc/trainer/node.json" --state-dir "$TRAINER_ROOT/var/lib/trainer"
)
starts=4
pause_seconds=${TRAINER_RESTART_SECONDS:-10}
stopping=""
trap 'stopping=yes interrupted=yes; [[ -n ${child:-} ]] && kill -TERM "$child" 2>/dev/null' TERM

for ((start = 1; ; start++)); do
  "${agent[@]}" &
  child=$!
  echo "bootstrap: agent started, pid $child"
  interrupted=yes
  while [[ -n $interrupted ]]; do # a trapped signal ends `wait` early: go on waiting for the agent itself
    interrupted=""
    wait "$child"
    code=$?
  done
  echo "bootstrap: agent ended with $code"
  case $code in
    0 | 2 | 10 | 11 | 12 | 13 | 14 | 20 | 30 | 31 | 40 | 75 | 76) exit "$code" ;;
  esac
  [[ -n $stopping ]] && exit "$code"
  if ((start >= starts)); then
    echo "bootstrap: the agent failed $starts times, it is not started again"
    exit "$code"
  fi
  echo "bootstrap: agent is started again in $pause_seconds s"
  sleep "$pause_seconds" &
  wait $!
  [[ -n $stopping ]] && exit "$code"
done
