#!/usr/bin/env bash
# A loop over a git repository: an agent proposes, the gate of a holdout decides, and what is not
# shown to be better is reverted.
#
#   PROPOSE='my-agent --task "improve the model"' PREDICT='python predict.py' \
#     bash keep_or_revert.sh HOLDOUT [CHANGES]
#
# It runs in the repository. PROPOSE changes files, and may commit; PREDICT writes predictions for
# the holdout's rows into the file that $PREDICTIONS names. LADDERHOLDOUT_SERVER is the server that
# has the labels, and LADDERHOLDOUT_TOKEN or LADDERHOLDOUT_TOKEN_FILE the token of an account that
# may decide. The loop ends after so many changes, or when nothing can be accepted any more.
set -euo pipefail

holdout=$1 changes=${2:-100}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PREDICTIONS=${PREDICTIONS:-$folder/predictions.npy}

decide() { # by the exit status: 0 keep, 1 revert, 2 refused, 3 nothing more can be accepted
  rm -f "$PREDICTIONS"
  bash -c "$PREDICT" || return 2
  ${GATE:-ladder-holdout gate} "$holdout" "$PREDICTIONS" \
    ${LADDERHOLDOUT_SERVER:+--server "$LADDERHOLDOUT_SERVER"} \
    --context "commit=$(git rev-parse --short HEAD)"
}

revert() {
  git reset --quiet --hard "$kept"
  git clean --quiet --force -d
}

kept=$(git rev-parse HEAD)
status=0
decide || status=$? # what there is is the baseline, or a repeat of what was kept before
[ "$status" -le 1 ] || exit "$status"

for ((change = 1; change <= changes; change++)); do
  bash -c "$PROPOSE" || true
  git add --all
  git diff --cached --quiet || git commit --quiet --message "change $change"
  [ "$(git rev-parse HEAD)" != "$kept" ] || continue
  status=0
  decide || status=$?
  if [ "$status" -eq 0 ]; then
    kept=$(git rev-parse HEAD)
  else
    revert
  fi
  [ "$status" -ne 3 ] || break
done
