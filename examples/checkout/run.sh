#!/bin/sh
# Loads the seed events, then checks out carts: one that is paid for, one whose product is gone, one that is declined, and one that
# cannot be sent, so that all is undone. The script plays the bank.
#
#   j17 dev examples/checkout/spec.json --data /tmp/j17-checkout   in one terminal
#   J17_KEY=<write key> examples/checkout/run.sh                   in another
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

# post ACTOR PATH DATA: writes an event.
post() { call 201 POST "$2" -d '{"data": '"$3"', "metadata": {"actor": '"$1"'}}'; }

# shows TEXT, lacks TEXT: what the last reply has to contain, or must not.
shows() { printf '%s' "$reply" | grep -qF -e "$1" || { echo "expected in the reply: $1" >&2; exit 1; }; }
lacks() { ! printf '%s' "$reply" | grep -qF -e "$1" || { echo "not expected in the reply: $1" >&2; exit 1; }; }

# becomes PATH TEXT: reads a state until it contains the text. A saga goes on by itself, after the reply to whoever has triggered it.
becomes() {
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
    if curl -sS "$url$1" -H "Authorization: Bearer $J17_KEY" | grep -qF -e "$2"; then
      break
    fi
    sleep 0.5
  done
  call 200 GET "$1"
  shows "$2"
}

uuid() { cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen | tr A-F a-f; }

echo '# Seed: one batch a file, named after its aggregate. A second run finds them there already (409).'
for file in "$here"/seed/*.json; do
  name=$(basename "$file" .json)
  call '201 409' POST "/${name%%.*}/${name#*.}" --data-binary "@$file"
done

clerk='{"type": "clerk", "id": "'$(uuid)'"}'
customer='{"type": "customer", "id": "'$(uuid)'"}'
bank='{"type": "bank", "id": "bank_feed"}'
product=$(uuid)
post "$clerk" "/product/$product/was_stocked" '{"quantity": 5}'

# checkout QUANTITY [MEMBERS]: a new cart is checked out. Who has triggered the saga gets the reply at once.
checkout() {
  cart=$(uuid) order=$(uuid) payment=$(uuid) parcel=$(uuid)
  post "$customer" "/cart/$cart/had_item_added" '{"product_id": "'"$product"'", "quantity": '"$1"'}'
  post "$customer" "/cart/$cart/checkout_started" '{"order_id": "'"$order"'", "payment_id": "'"$payment"'",
    "parcel_id": "'"$parcel"'", "product_id": "'"$product"'", "quantity": '"$1"', "total": 12.50'"${2:-}"'}'
}
address=', "address": "Mill Lane 1, Vienna"'

echo '# Two pieces are reserved, the bank is asked and answers, and a parcel is ordered.'
checkout 2 "$address"
becomes "/payment/$payment" '"status":"asked"'
call 200 GET "/product/$product"
shows '"available":3'
post "$bank" "/payment/$payment/was_charged" '{"transaction_id": "tx_17"}'
becomes "/order/$order" '"status":"placed"'
shows '"transaction_id":"tx_17"'
call 200 GET "/parcel/$parcel"
shows 'Mill Lane'
call 200 GET "/parcel/$parcel/events"
shows '"saga":{"saga_id":"sag_'
shows '"id":"saga_coordinator"'

echo '# There are not as many: the bank is never asked, and on_complete, which has a condition, writes nothing.'
checkout 4 "$address"
becomes "/order/$order" '"status":"out of stock"'
call 404 GET "/payment/$payment"
call 200 GET "/order/$order/events"
shows '"type":"was_out_of_stock"'
lacks '"type":"checkout_ended"'
call 200 GET "/product/$product/events"
shows '"type":"reservation_failed"'

echo '# The bank declines. That is an answer, and a step of its own releases what was reserved.'
checkout 3 "$address"
becomes "/payment/$payment" '"status":"asked"'
post "$bank" "/payment/$payment/charge_failed" '{"reason": "no funds"}'
becomes "/order/$order" '"status":"rejected"'
call 200 GET "/product/$product"
shows '"available":3'
lacks "$order"'","quantity"'
call 404 GET "/parcel/$parcel"

echo '# Without an address no parcel can be ordered: the payment is refunded and the reservation released, in reverse.'
checkout 3
becomes "/payment/$payment" '"status":"asked"'
post "$bank" "/payment/$payment/was_charged" '{"transaction_id": "tx_18"}'
becomes "/order/$order" '"status":"address missing"'
shows '"step":"pack"'
shows '"code":"requirement_failed"'
call 200 GET "/payment/$payment"
shows '"status":"refund asked"'
call 200 GET "/payment/$payment/events"
shows '"type":"refund_requested"'
shows '"id":"saga_compensator"'
call 200 GET "/product/$product/events"
shows '"type":"reservation_requested"'
shows '"type":"reservation_released"'
call 200 GET "/order/$order/events"
shows '"type":"checkout_failed"'
call 200 GET "/product/$product"
shows '"available":3'
echo 'All as expected.'
