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
# may decide. The loop ends after so many changes, or with the exit status of a decision that could
# not be made: 2 refused, 4 not decided (nothing is reverted then), 3 nothing more can be accepted.
set -euo pipefail

holdout=$1 changes=${2:-100}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PREDICTIONS=${PREDICTIONS:-$folder/predictions.npy}

decide() { # by the exit status: 0 keep, 1 and 5 (no prediction is altered) revert, all others end
  rm -f "$PREDICTIONS"
  bash -c "$PREDICT" || return 2
  ${GATE:-ladder-holdout gate} "$@" ${LADDERHOLDOUT_SERVER:+--server "$LADDERHOLDOUT_SERVER"} \
    --context "commit=$(git rev-parse --short HEAD)" -- "$holdout" "$PREDICTIONS"
}

revert() {
  git reset --quiet --hard "$kept"
  git clean --quiet --force -d
}

kept=$(git rev-parse HEAD)
status=0
decide --baseline || status=$? # what there is is the baseline, or what was kept before
case $status in 0 | 1 | 5) ;; *) exit "$status" ;; esac

for ((change = 1; change <= changes; change++)); do
  bash -c "$PROPOSE" || true
  git add --all
  git diff --cached --quiet || git commit --quiet --message "change $change"
  [ "$(git rev-parse HEAD)" != "$kept" ] || continue
  status=0
  decide || status=$?
  case $status in
    0) kept=$(git rev-parse HEAD) ;;
    1 | 5) revert ;;
    *)
      echo "Not kept: $(git rev-parse HEAD). Kept: $kept." >&2
      [ "$status" -ne 3 ] || revert # `git cherry-pick` brings back what a limit of the day stopped
      exit "$status"
      ;;
  esac
done
