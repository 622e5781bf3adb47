#!/bin/sh
# Loads the seed events and walks through the life of one order.
#
#   j17 dev examples/orders/spec.json          in one terminal
#   J17_KEY=<write key> examples/orders/run.sh in another
set -eu
url=${J17_URL:-http://localhost:17000}
: "${J17_KEY:?set it to a write key, which j17 dev prints}"
here=$(cd "$(dirname "$0")" && pwd)

call() { # method path [curl arguments]: prints the body; the status must be one of $want
  method=$1 path=$2
  shift 2
  reply=$(curl -sS -X "$method" "$url$path" -H "Authorization: Bearer $J17_KEY" -H 'Content-Type: application/json' -w '\n%{http_code}' "$@")
  status=${reply##*
}
  printf '%-4s %s\n%s %s\n\n' "$method" "$path" "$status" "${reply%????}"
  case " ${want:-200 201} " in *" $status "*) ;; *) echo "expected ${want:-200 201}" >&2; exit 1 ;; esac
}

echo '# Seed: one batch a file, named after its aggregate. A second run finds them there already (409).'
for file in "$here"/seed/*.json; do
  name=$(basename "$file" .json)
  want='201 409' call POST "/${name%%.*}/${name#*.}" --data-binary "@$file"
done

echo '# Place an order, pay for it and read it back. The amounts add up exactly.'
id=$(cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen | tr A-F a-f)
customer='"actor": {"type": "customer", "id": "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"}'
call POST "/order/$id/was_placed" -d "{\"data\": {\"customer_id\": \"0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10\", \"currency\": \"EUR\",
  \"lines\": [{\"sku\": \"PEN\", \"title\": \"Pen\", \"unit_price\": 0.10, \"quantity\": 3}]}, \"metadata\": {$customer}}"
call POST "/order/$id/had_payment_received" -H "X-Idempotency-Key: first-$id" -d "{\"data\": {\"amount\": 0.1, \"method\": \"card\"}, \"metadata\": {$customer}}"
call POST "/order/$id/had_payment_received" -H "X-Idempotency-Key: second-$id" -d "{\"data\": {\"amount\": 0.2, \"method\": \"card\"}, \"metadata\": {$customer}}"
call GET "/order/$id"

echo '# The same idempotency key again: the first answer is repeated, nothing is written.'
call POST "/order/$id/had_payment_received" -H "X-Idempotency-Key: second-$id" -d "{\"data\": {\"amount\": 0.2, \"method\": \"card\"}, \"metadata\": {$customer}}"

echo '# A decision that is based on an old state is refused.'
want=409 call POST "/order/$id/was_cancelled" -d "{\"data\": {\"reason\": \"too late\"}, \"metadata\": {$customer, \"previous_length\": 1}}"

echo '# Data that does not fit the schema is refused with a path to the fault.'
want=400 call POST "/order/$id/had_payment_received" -d "{\"data\": {\"amount\": 0.001, \"method\": \"card\"}, \"metadata\": {$customer}}"

echo '# The state after the first event, and the events themselves.'
call GET "/order/$id?length=1"
call GET "/order/$id/events"
