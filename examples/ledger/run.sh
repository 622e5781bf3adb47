#!/bin/sh
# Loads the seed events, then opens accounts, moves money between them, and shows what is refused.
#
#   j17 dev examples/ledger/spec.json --data /tmp/j17-ledger   in one terminal
#   J17_KEY=<write key> examples/ledger/run.sh                 in another
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

# post STATUS PATH DATA: writes an event as the owner. What is refused says why.
post() { call "$1" POST "$2" -d '{"data": '"$3"', "metadata": {"actor": {"type": "person", "id": "'"$owner"'"}}}'; }

# together STATUS WRITES: writes to several accounts, all or none.
together() { call "$1" POST /_transaction -d '{"writes": ['"$2"'], "metadata": {"actor": {"type": "person", "id": "'"$owner"'"}}}'; }

# shows TEXT, lacks TEXT: what the last reply has to contain, or must not.
shows() { printf '%s' "$reply" | grep -qF -e "$1" || { echo "expected in the reply: $1" >&2; exit 1; }; }
lacks() { ! printf '%s' "$reply" | grep -qF -e "$1" || { echo "not expected in the reply: $1" >&2; exit 1; }; }

# ids: the ids of the accounts in the last reply.
ids() { printf '%s' "$reply" | grep -o '"key":"account:[^"]*"' | sed 's/.*account:\(.*\)"/\1/'; }

uuid() { cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen | tr A-F a-f; }

echo '# Seed: one batch a file, named after its aggregate. A second run finds them there already (409).'
for file in "$here"/seed/*.json; do
  name=$(basename "$file" .json)
  call '201 409' POST "/${name%%.*}/${name#*.}" --data-binary "@$file"
done
call 200 GET /account/3f8c2d71-5b0e-4a96-8d24-e17a9c6b0f35
shows '"balance":200.1'

owner=$(uuid) friend=$(uuid)

echo '# Three accounts are opened at once, one of them with money. The server chooses their ids and numbers.'
together 201 '
  {"key": "account:_new", "as": "daily", "events": [
    {"type": "was_opened", "data": {"name": "Daily", "owner": "'"$owner"'", "currency": "EUR", "fee_rate": 0.0125}},
    {"type": "had_deposit", "data": {"amount": 100.10}}]},
  {"key": "account:_new", "events": [
    {"type": "was_opened", "data": {"name": "Savings", "owner": "'"$owner"'", "currency": "EUR", "fee_rate": 0}}]},
  {"key": "account:_new", "events": [
    {"type": "was_opened", "data": {"name": "Daily", "owner": "'"$friend"'", "currency": "CHF", "fee_rate": 0}}]}'
shows '"as":"daily"'
shows '"public_id":"LED-'
daily=$(ids | sed -n 1p) savings=$(ids | sed -n 2p) abroad=$(ids | sed -n 3p)

echo '# One of several writes that cannot be is enough: the owner has an account of that name, so there is no new one at all.'
together 409 '
  {"key": "account:_new", "events": [
    {"type": "was_opened", "data": {"name": "Holidays", "owner": "'"$owner"'", "currency": "EUR", "fee_rate": 0}}]},
  {"key": "account:_new", "events": [
    {"type": "was_opened", "data": {"name": " daily", "owner": "'"$owner"'", "currency": "EUR", "fee_rate": 0}}]}'
shows '"code":"not_unique"'
shows '"write_index":1'

echo '# Money is sent: what arrives and what it costs are events of the same commit, to the cent.'
post 201 "/account/$daily/was_sent" '{"to": "'"$savings"'", "amount": 33.40}'
shows '"implied_count":3'
call 200 GET "/account/$daily"
shows '"balance":66.28'
call 200 GET "/account/$daily/events"
shows '"type":"had_fee","data":{"amount":0.42}'
call 200 GET "/account/$savings/events"
shows '"type":"was_received","data":{"amount":33.40,"from":"account:'"$daily"'"}'

echo '# What is refused says why, and leaves no event.'
post 422 "/account/$daily/was_sent" '{"to": "'"$savings"'", "amount": 66.29}'
shows '"requirement":"insufficient_funds"'
shows 'The balance is 66.28, and 66.29 are asked for.'
post 422 "/account/$daily/was_sent" '{"to": "'"$savings"'", "amount": 66.28}'
shows 'which does not cover the fee of 0.83.'
shows '"chain":'
post 422 "/account/$daily/was_sent" '{"to": "'"$abroad"'", "amount": 1}'
shows '"requirement":"other_currency"'
post 422 "/account/$daily/was_sent" '{"to": "'"$(uuid)"'", "amount": 1}'
shows '"requirement":"no_payee"'
post 404 "/account/$(uuid)/was_withdrawn" '{"amount": 1}'
shows '"code":"aggregate_not_found"'
post 422 "/account/$savings/was_closed" '{}'
shows '"requirement":"not_empty"'

echo '# Two withdrawals that only make sense together: the second is more than there is, so neither happens.'
together 422 '
  {"key": "account:'"$daily"'", "events": [{"type": "was_withdrawn", "data": {"amount": 60}}]},
  {"key": "account:'"$savings"'", "events": [{"type": "was_withdrawn", "data": {"amount": 60}}]}'
shows '"write_index":1'
call 200 GET "/account/$daily"
shows '"balance":66.28'

echo '# An account that is empty is closed, and its name is free again.'
post 201 "/account/$savings/was_withdrawn" '{"amount": 33.4}'
post 201 "/account/$savings/was_closed" '{}'
post 422 "/account/$savings/had_deposit" '{"amount": 1}'
shows '"requirement":"closed"'
post 201 /account/_new/was_opened '{"name": "Savings", "owner": "'"$owner"'", "currency": "EUR", "fee_rate": 0}'

echo 'All as expected.'
