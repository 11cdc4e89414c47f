# shellcheck shell=bash
# Sourced by setup, check and quickstart: long steps that say what they do and for how long, and fail with one clear message.

if [[ -t 2 ]]; then progress_tty=1; else progress_tty=0; fi
progress_every_seconds=30  # without a terminal, a line as often as this shows that a step is alive

say() { printf '%s\n' "$*" >&2; }

# fail WHAT [WHAT TO DO]: the one message of a failure, then exit 1.
fail() {
  say ""
  say "$(basename "$0"): $1"
  if [[ $# -gt 1 ]]; then say "  $2"; fi
  exit 1
}

# run_logged TITLE LOG COMMAND...: runs with output in LOG and the elapsed seconds on the terminal. Returns the command's status. step_seconds: how long it took.
run_logged() {
  local title=$1 log=$2 start=$SECONDS pid status=0 last=0 tail_text
  shift 2
  mkdir -p "$(dirname "$log")"
  if [[ $progress_tty == 0 ]]; then say "  $title ..."; fi
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    if [[ $progress_tty == 1 ]]; then
      tail_text=$(tail -c 400 "$log" 2>/dev/null | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1 | cut -c1-60 || true)
      printf '\r\033[K  %s  %d s  %s' "$title" $((SECONDS - start)) "$tail_text" >&2
    elif ((SECONDS - start - last >= progress_every_seconds)); then
      last=$((SECONDS - start))
      say "  $title: $last s so far"
    fi
    sleep 0.5
  done
  wait "$pid" || status=$?
  step_seconds=$((SECONDS - start))
  if [[ $progress_tty == 1 ]]; then printf '\r\033[K' >&2; fi
  if [[ $status == 0 ]]; then
    say "  $title: done in $step_seconds s"
  else
    say "  $title: FAILED after $step_seconds s"
  fi
  return "$status"
}

# step TITLE LOG HINT COMMAND...: like run_logged, but a failure shows the end of the log with a hint, and ends the script.
step() {
  local title=$1 log=$2 hint=$3
  shift 3
  run_logged "$title" "$log" "$@" && return 0
  say ""
  say "The last lines of $log:"
  tail -n 15 "$log" | sed 's/^/    /' >&2
  if grep -q 'No space left on device' "$log"; then hint="The disk is full: free some space, or set TROUPE_CACHE_DIR to a folder on a larger disk."; fi
  fail "this step failed: $title." "$hint"
}

troupe_cache_dir() { printf '%s\n' "${TROUPE_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/troupe}"; }
