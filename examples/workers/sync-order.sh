#!/bin/sh
# A command worker: one process per call, with the call as JSON on stdin. Only a call of one key has the
# variables SERIATIM_JOB_KEY and SERIATIM_JOB_TOKEN, so do not set `batch_size` of the queue.
#
#   [[workers]]
#   queue = "orders"
#   command = ["sh", "examples/workers/sync-order.sh"]
#
# Exit code 0: done; 75: run again later; 65: to the morgue (dead-letter queue); any other: retry, with
# the last lines of stderr as the error.
set -eu
call=$(cat)
target=${ORDERS_DIR:-orders}
if ! [ -d "$target" ]; then
    echo "there is no folder $target yet" >&2
    exit 75
fi
case $call in
    *'"status"'*) ;;
    *) echo "an order update needs a status" >&2; exit 65 ;;
esac
# Write a temporary file and rename it, so that readers never see a partial file.
file=$target/$(printf '%s' "$SERIATIM_JOB_KEY" | tr -c 'A-Za-z0-9._-' '_')
printf '%s\n' "$call" > "$file.$SERIATIM_JOB_TOKEN.part"
mv "$file.$SERIATIM_JOB_TOKEN.part" "$file.json"
