#!/bin/sh
# Loads the seed events and walks through the life of one order.
#
#   j17 dev examples/orders/spec.json --data /tmp/j17-orders   in one terminal
#   J17_KEY=<write key> examples/orders/run.sh                 in another
set -eu
url=${J17_URL:-http://localhost:17000}
: "${J17_KEY:?set it to a write key, which j17 dev prints}"
here=$(cd "$(dirname "$0")" && pwd)

# call STATUSES METHOD PATH [CURL ARGUMENTS]: prints the reply, whose status must be one of those given.
call() {
  want=$1 method=$2 path=$3
  shift 3
  reply=$(curl -sS -X "$method" "$url$path" -H "Authorization: Bearer $J17_KEY" \
    -H 'Content-Type: application/json' -w '\n%{http_code}' "$@")
  status=${reply##*
}
  printf '%-4s %s\n%s %s\n\n' "$method" "$path" "$status" "${reply%????}"
  case " $want " in *" $status "*) ;; *) echo "expected status $want" >&2; exit 1 ;; esac
}

# shows TEXT, lacks TEXT: what the last reply has to contain, or must not.
shows() { printf '%s' "$reply" | grep -qF -e "$1" || { echo "expected in the reply: $1" >&2; exit 1; }; }
lacks() { ! printf '%s' "$reply" | grep -qF -e "$1" || { echo "not expected in the reply: $1" >&2; exit 1; }; }

uuid() { cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen | tr A-F a-f; }

echo '# Seed: one batch a file, named after its aggregate. A second run finds them there already (409).'
for file in "$here"/seed/*.json; do
  name=$(basename "$file" .json)
  call '201 409' POST "/${name%%.*}/${name#*.}" --data-binary "@$file"
done
call 200 GET /order/7d2f1c3a-5b64-4c8e-9a10-2f6f0c5d8e01
shows '"status":"delivered"'
shows '"paid":52.95'
call 200 GET /customer/0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10
shows '"orders":["7d2f1c3a-5b64-4c8e-9a10-2f6f0c5d8e01"]'

order=$(uuid) shopper=$(uuid)
metadata='"metadata": {"actor": {"type": "customer", "id": "'"$shopper"'"}}'
at_length() { printf '"metadata": {"actor": {"type": "customer", "id": "%s"}, "previous_length": %s}' "$shopper" "$1"; }

echo '# Place an order.'
call 201 POST "/order/$order/was_placed" -d '{"data": {"customer_id": "'"$shopper"'", "currency": "EUR", "lines": [
  {"sku": "PEN", "title": "Pen", "unit_price": 0.10, "quantity": 1},
  {"sku": "INK", "title": "Ink", "unit_price": 7.50, "quantity": 1}]}, '"$(at_length 0)"'}'
shows '"implied_count":1'
echo '# The same commit has put it on the list of its customer (had_order_placed).'
call 200 GET "/customer/$shopper"
shows '"orders":["'"$order"'"]'
echo '# Change it. A line that is changed moves to the end.'
call 201 POST "/order/$order/had_line_changed" \
  -d '{"data": {"sku": "PEN", "title": "Pen", "unit_price": 0.10, "quantity": 3}, '"$metadata"'}'
call 201 POST "/order/$order/had_line_removed" -d '{"data": {"sku": "INK"}, '"$metadata"'}'
call 200 GET "/order/$order"
shows '"lines":[{"sku":"PEN","title":"Pen","unit_price":0.10,"quantity":3}]'

echo '# Pay for it in two parts. The amounts add up exactly.'
call 201 POST "/order/$order/had_payment_received" -H "Idempotency-Key: first-$order" \
  -d '{"data": {"amount": 0.1, "method": "card"}, '"$metadata"'}'
call 201 POST "/order/$order/had_payment_received" -H "Idempotency-Key: second-$order" \
  -d '{"data": {"amount": 0.2, "method": "card"}, '"$metadata"'}'
call 200 GET "/order/$order"
shows '"paid":0.3,'

echo '# The same idempotency key again: the first answer is repeated, nothing is written.'
call 201 POST "/order/$order/had_payment_received" -H "Idempotency-Key: second-$order" \
  -d '{"data": {"amount": 0.2, "method": "card"}, '"$metadata"'}'
call 200 GET "/order/$order/length"
shows '"length":5'

echo '# A decision that is based on an old state is refused.'
call 409 POST "/order/$order/was_cancelled" -d '{"data": {"reason": "too late"}, '"$(at_length 1)"'}'
shows '"code":"conflict"'

echo '# Data that does not fit the schema is refused with a path to the fault.'
call 400 POST "/order/$order/had_payment_received" -d '{"data": {"amount": 0.001, "method": "card"}, '"$metadata"'}'
shows '"path":"data.amount"'

echo '# The state after the first event, and the events themselves.'
call 200 GET "/order/$order?length=1"
shows '"paid":0,'
call 200 GET "/order/$order/events"
shows '"type":"had_line_removed"'
echo 'All as expected.'
