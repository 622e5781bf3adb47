#!/bin/sh
# Loads the seed events, then takes invoices through their lives: draft, sent, paid, void.
#
#   j17 dev examples/invoicer/spec.json --data /tmp/j17-invoicer   in one terminal
#   J17_KEY=<write key> examples/invoicer/run.sh                   in another
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

# post PATH DATA: writes an event of which the clerk is the actor.
post() { call 201 POST "$1" -d '{"data": '"$2"', "metadata": {"actor": {"type": "clerk", "id": "'"$clerk"'"}}}'; }

# shows TEXT, lacks TEXT: what the last reply has to contain, or must not.
shows() { printf '%s' "$reply" | grep -qF -e "$1" || { echo "expected in the reply: $1" >&2; exit 1; }; }
lacks() { ! printf '%s' "$reply" | grep -qF -e "$1" || { echo "not expected in the reply: $1" >&2; exit 1; }; }

uuid() { cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen | tr A-F a-f; }

echo '# Seed: one batch a file, named after its aggregate. A second run finds them there already (409).'
for file in "$here"/seed/*.json; do
  name=$(basename "$file" .json)
  call '201 409' POST "/${name%%.*}/${name#*.}" --data-binary "@$file"
done
call 200 GET /invoice/0ad3f7b5-91c2-4e68-a47f-3b5d8e1c6f09
shows '"status":"paid"'
shows '"due":0.00'

clerk=$(uuid) customer=$(uuid) invoice=$(uuid) second=$(uuid)

echo '# A draft. Totals follow its lines, to the cent.'
post "/customer/$customer/was_registered" '{"name": "Nut & Bolt", "email": "hello@nutbolt.example",
  "address": {"street": "Lathe Row 8", "town": "Leeds", "country": "GB"}}'
post "/invoice/$invoice/was_drafted" '{"customer_id": "'"$customer"'", "currency": "GBP"}'
post "/invoice/$invoice/had_line_added" '{"line_id": "a1", "text": "Washers", "quantity": 1000, "unit": "piece",
  "unit_price": 0.0001, "amount": 0.10, "rate": "standard"}'
post "/invoice/$invoice/had_line_added" '{"line_id": "a2", "text": "Oil", "quantity": 0.5, "unit": "kg",
  "unit_price": 0.40, "amount": 0.20, "rate": "standard"}'
post "/invoice/$invoice/had_line_added" '{"line_id": "b1", "text": "Manual", "quantity": 1, "unit": "piece",
  "unit_price": 12.00, "amount": 12.00, "rate": "zero"}'
call 200 GET "/invoice/$invoice"
shows '"net":12.30'
shows '"net_by_rate":{"standard":0.30,"zero":12.00}'

echo '# A new price keeps the place of its line; a struck line takes its amount along.'
post "/invoice/$invoice/had_line_repriced" '{"line_id": "a1", "quantity": 2000, "unit_price": 0.0001, "amount": 0.20}'
post "/invoice/$invoice/had_line_struck" '{"line_id": "b1"}'
call 200 GET "/invoice/$invoice"
shows '"net":0.40'
shows '"net_by_rate":{"standard":0.40,"zero":0.00}'
shows '"lines":[{"line_id":"a1","text":"Washers","quantity":2000,'
lacks Manual
lacks minus

echo '# An amount with a third decimal is refused.'
call 400 POST "/invoice/$invoice/had_line_added" -d '{"data": {"line_id": "c1", "text": "?", "quantity": 1, "unit": "piece",
  "unit_price": 0.005, "amount": 0.005, "rate": "zero"}, "metadata": {"actor": {"type": "clerk", "id": "'"$clerk"'"}}}'
shows '"path":"data.amount"'

# number INVOICE: takes the next number of the year for an invoice, or finds the one that it has.
number() {
  post /series/year_2032/had_number_taken '{"invoice_id": "'"$1"'"}'
  call 200 GET /series/year_2032
  n=$(printf '%s' "$reply" | sed -n 's/.*"'"$1"'":\([0-9]*\).*/\1/p')
}

echo '# Numbers come from one aggregate, which counts. Asking twice gives the same number.'
number "$invoice"
first=$n
number "$invoice"
[ "$n" -eq "$first" ] || { echo "two numbers for an invoice: $first and $n" >&2; exit 1; }
number "$second"
[ "$n" -gt "$first" ] || { echo "number $n after $first" >&2; exit 1; }

echo '# Sent: the invoice has a total, and its lines are final.'
post "/invoice/$invoice/was_sent" '{"number": "2032-'"$first"'", "due_at": 1000000000, "tax_by_rate": {"standard": 0.08}, "tax": 0.08}'
post "/invoice/$invoice/had_line_struck" '{"line_id": "a1"}'
post "/invoice/$invoice/was_sent" '{"number": "2032-999999", "due_at": 0, "tax_by_rate": {}, "tax": 99}'
call 200 GET "/invoice/$invoice"
shows '"status":"sent"'
shows '"number":"2032-'"$first"'"'
shows '"total":0.48'
shows '"line_id":"a1"'

echo '# It is overdue, so it gets a reminder; not another one in the same week.'
post "/invoice/$invoice/had_reminder_sent" '{"fee": 0.02}'
post "/invoice/$invoice/had_reminder_sent" '{"fee": 0.02}'
call 200 GET "/invoice/$invoice"
shows '"due":0.50'

echo '# Payments count once each, however often the bank reports them. One of them bounces.'
one=$(uuid) two=$(uuid)
for payment in "$one 0.30" "$two 0.10" "$one 0.30"; do
  call 201 POST "/invoice/$invoice/had_payment" -d '{"data": {"payment_id": "'"${payment% *}"'", "amount": '"${payment#* }"',
    "received_on": "2032-04-01"}, "metadata": {"actor": {"type": "bank", "id": "bank_feed"}}}'
done
call 200 GET "/invoice/$invoice"
shows '"paid":0.40'
shows '"due":0.10'
post "/invoice/$invoice/had_payment_bounced" '{"payment_id": "'"$two"'"}'
call 200 GET "/invoice/$invoice"
shows '"paid":0.30'
shows '"due":0.20'

echo '# Credit: first the customer spends it, which is where it could be missing, then the invoice counts it.'
post "/customer/$customer/had_credit_granted" '{"credit_id": "'"$(uuid)"'", "amount": 0.15, "reason": "Late delivery"}'
post "/customer/$customer/had_credit_spent" '{"invoice_id": "'"$second"'", "amount": 0.16}'
post "/customer/$customer/had_credit_spent" '{"invoice_id": "'"$invoice"'", "amount": 0.15}'
call 200 GET "/customer/$customer"
shows '"credit":0.00'
shows '"spent":[{"invoice_id":"'"$invoice"'","amount":0.15}]'
post "/invoice/$invoice/had_credit_applied" '{"amount": 0.15}'

echo '# The rest is paid, and a little more; the excess goes back.'
post "/invoice/$invoice/had_payment" '{"payment_id": "'"$(uuid)"'", "amount": 0.07, "received_on": "2032-04-09"}'
call 200 GET "/invoice/$invoice"
shows '"status":"paid"'
shows '"due":-0.02'
post "/invoice/$invoice/had_refund" '{"amount": 0.03}'
post "/invoice/$invoice/had_refund" '{"amount": 0.02}'
call 200 GET "/invoice/$invoice"
shows '"due":0.00'
shows '"refunded":0.02'

echo '# What is paid cannot be voided. A draft can, and stays void.'
post "/invoice/$invoice/was_voided" '{"reason": "A mistake"}'
call 200 GET "/invoice/$invoice"
shows '"status":"paid"'
post "/invoice/$second/was_drafted" '{"customer_id": "'"$customer"'", "currency": "GBP"}'
post "/invoice/$second/was_voided" '{"reason": "Ordered twice"}'
post "/invoice/$second/was_sent" '{"number": "2032-'"$n"'", "due_at": 2000000000, "tax_by_rate": {}, "tax": 0}'
call 200 GET "/invoice/$second"
shows '"status":"void"'

echo '# Two clerks edit the same draft: the one who saw an old state is refused and looks again.'
third=$(uuid)
post "/invoice/$third/was_drafted" '{"customer_id": "'"$customer"'", "currency": "GBP"}'
line='"data": {"line_id": "x", "text": "Crate", "quantity": 1, "unit": "piece", "unit_price": 3, "amount": 3, "rate": "zero"}'
for want in 201 409; do
  call "$want" POST "/invoice/$third/had_line_added" \
    -d '{'"$line"', "metadata": {"actor": {"type": "clerk", "id": "'"$clerk"'"}, "previous_length": 1}}'
done
echo 'All as expected.'
