#!/usr/bin/env bash
# The reward is 1 where the predictions are shown to be better than those that are kept, else 0.
# Predictions that are refused have the reward 0. Where the server gives no decision there is no
# reward, so that the trial is an error and no failure of the agent.
set -uo pipefail

artifacts=${ARTIFACTS:-/logs/artifacts} logs=${VERIFIER_LOGS:-/logs/verifier}
mkdir -p "$logs"
rm -f "$logs/reward.txt"

status=0
ladder-holdout gate --ids id --json --server "$LADDERHOLDOUT_SERVER" \
  --context "trial=${HOSTNAME:-trial}" -- "$HOLDOUT" "$artifacts/predictions.csv" \
  >"$logs/decision.json" 2>"$logs/refusal.json" || status=$?

case $status in
  0 | 1 | 3 | 5)
    grep -q '"accepted"' "$logs/decision.json" || exit 1
    [ "$status" -eq 0 ] && echo 1 >"$logs/reward.txt" || echo 0 >"$logs/reward.txt"
    ;;
  2)
    cat "$logs/refusal.json" >&2
    grep -qE '"kind": "Invalid(Submission|Argument)"' "$logs/refusal.json" || exit 1
    echo 0 >"$logs/reward.txt"
    ;;
  *)
    cat "$logs/decision.json" "$logs/refusal.json" >&2
    exit 1
    ;;
esac
