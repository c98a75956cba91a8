#!/usr/bin/env bash
# Holds a conversation with an agent, and checks that message and answer are stored.
set -euo pipefail

session=helm-test-$(date +%s)
word=hello-$session
echo "asking in the session $session"
answer=$(holdfast chat --output json --session "$session" "$word")
id=$(printf '%s' "$answer" | sed -n 's/.*"session_id": *"\([^"]*\)".*/\1/p')
[ -n "$id" ] || { echo "error: the answer names no session: $answer" >&2; exit 1; }
history=$(holdfast sessions history --output json "$id")
case $history in
    *"$word"*) ;;
    *) echo "error: the message is not in the history of $id: $history" >&2; exit 1 ;;
esac
runs=$(holdfast runs list --output json --session "$id")
case $runs in
    *'"completed"'*) echo "the message was answered and is stored in $id" ;;
    *) echo "error: no run of $id completed: $runs" >&2; exit 1 ;;
esac
# The memory service answers, too.
holdfast memory search "$word" >/dev/null
holdfast sessions delete "$id" >/dev/null
