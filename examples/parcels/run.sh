#!/bin/sh
# Loads the seed events, then writes as clients of several ages do, and follows a parcel to its door.
#
#   j17 dev examples/parcels/spec.json --data /tmp/j17-parcels   in one terminal
#   J17_KEY=<write key> examples/parcels/run.sh                  in another
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

# post STATUS PATH DATA [METADATA]: writes an event of which the courier is the actor.
post() {
  call "$1" POST "$2" -d '{"data": '"$3"', "metadata": {"actor": {"type": "courier", "id": "'"$courier"'"}'"${4:-}"'}}'
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

courier=$(uuid) parcel=$(uuid)

echo '# A client that knows generation 2 says so. What is stored is the newest.'
post 201 "/parcel/$parcel/was_registered" '{"recipient": {"name": "Plato"}, "address": {"street": "Oak Row 7b", "town": "Linz"},
  "weight_kg": 0.750, "service": "standard", "fees": {"customs": 4.5}}' ', "generation": 2'
call 200 GET "/parcel/$parcel/events?generation=stored"
shows '"data":{"recipient":{"given_name":"Plato","family_name":""},"address":{"street":"Oak Row 7b","town":"Linz","country":"AT"},'
shows '"weight_kg":0.750'
shows '"fees":{"customs":{"amount":4.5,"currency":"EUR"}}'
shows '"generation":3,"timestamp"'

echo '# One that says nothing is taken to send the newest, and generation 1 is closed.'
post 400 "/parcel/$parcel/was_registered" '{"recipient": {"name": "Plato"}}'
shows '"code":"validation_failed"'
post 410 "/parcel/$parcel/was_registered" '{"recipient": "Plato"}' ', "generation": 1'
shows '"code":"event_type_retired"'

echo '# An event under its old name, of a client that says how old it is.'
post 201 "/parcel/$parcel/was_collected" '{"driver": "Jo"}' ', "generation": 1'
post 410 "/parcel/$parcel/was_collected" '{"driver": "Jo"}'
shows '"as":"was_handed_over"'

echo '# One under the new name.'
post 201 "/parcel/$parcel/was_handed_over" '{"courier": "Kim", "depot": "north"}'

echo '# Nobody faxes any more.'
post 410 "/parcel/$parcel/had_notice_faxed" '{"number": "+43 732 1234"}'
shows '"code":"event_type_retired"'

echo '# The state knows one shape only.'
post 201 "/parcel/$parcel/was_delivered" '{}'
call 200 GET "/parcel/$parcel"
shows '"status":"delivered"'
shows '"couriers":[{"courier":"Jo","depot":"main"},{"courier":"Kim","depot":"north"}]'
lacks driver
echo 'All as expected.'
