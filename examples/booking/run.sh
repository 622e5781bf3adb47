#!/bin/sh
# Loads the seed events, then books seats of a show: one seat for one guest at a time, and two seats a guest at most.
#
#   j17 dev examples/booking/spec.json --data /tmp/j17-booking   in one terminal
#   J17_KEY=<write key> examples/booking/run.sh                  in another
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

# count TEXT: how often it stands in the last reply.
count() { printf '%s' "$reply" | grep -oF -e "$1" | wc -l | tr -d ' '; }

# looked: up to where the last reply has looked.
looked() { printf '%s' "$reply" | sed -n 's/.*"position":"\([^"]*\)".*/\1/p'; }

# office PATH DATA: the box office writes an event.
office() { call 201 POST "$1" -d '{"data": '"$2"', "metadata": {"actor": {"type": "box_office", "id": "global"}}}'; }

# look TAGS: reads what the decision is about.
look() { call 200 GET "/_events?types=booking.*&tags=$1"; }

# book STATUS SEAT GUEST POSITION: books a seat unless there is something newer about the seat, the guest or the show.
book() {
  booking=$(uuid)
  call "$1" POST "/booking/$booking/was_made" -d '{
    "data": {"show": "'"$show"'", "seat": "'"$2"'", "guest": "'"$3"'"},
    "conditions": [
      {"fail_if_events_match": {"types": ["booking.*"], "tags": ["show:'"$show"'", "seat:'"$2"'"]}, "after": "'"$4"'"},
      {"fail_if_events_match": {"types": ["booking.*"], "tags": ["show:'"$show"'", "guest:'"$3"'"]}, "after": "'"$4"'"},
      {"fail_if_events_match": {"tags": ["called_off:'"$show"'"]}}
    ],
    "metadata": {"actor": {"type": "guest", "id": "'"$3"'"}}}'
}

echo '# Seed: one batch a file, named after its aggregate. A second run finds them there already (409).'
for type in show booking; do # a booking looks at its show
  for file in "$here"/seed/$type.*.json; do
    name=$(basename "$file" .json)
    call '201 409' POST "/${name%%.*}/${name#*.}" --data-binary "@$file"
  done
done

show=$(uuid) ann=$(uuid) ben=$(uuid)
office "/show/$show/was_announced" '{"title": "The Tempest", "starts_at": "2032-06-01T20:00:00Z", "seats": ["A1", "A2", "A3", "A4"]}'

echo '# Nobody has booked anything. Ann and Ben look at the same time, and both want A1.'
look "show:$show,seat:A1"
shows '"events":[]'
before=$(looked)
book 201 A1 "$ann" "$before"
first=$booking
book 409 A1 "$ben" "$before"
shows '"code":"condition_failed"'
shows '"path":"conditions[0]"'

echo '# The answer to a condition that failed names what has matched, and up to where was looked. Ben takes another seat.'
book 201 A2 "$ben" "$before"

echo '# A guest has two seats at most. Each booking of Ann says what she had when she looked.'
look "show:$show,guest:$ann"
[ "$(count '"type":"was_made"')" = 1 ]
book 201 A3 "$ann" "$(looked)"
look "show:$show,guest:$ann"
[ "$(count '"type":"was_made"')" = 2 ] # so she does not even ask for a third one

echo '# From two windows at once it works no better: what one of them has seen is old when the other has written.'
book 409 A4 "$ann" "$before"
shows '"path":"conditions[1]"'

echo '# A seat that is given back can be had again, by who has seen that it was.'
call 201 POST "/booking/$first/was_cancelled" -d '{
  "data": {"show": "'"$show"'", "seat": "A1", "guest": "'"$ann"'"}, "metadata": {"actor": {"type": "guest", "id": "'"$ann"'"}}}'
look "show:$show,seat:A1"
[ "$(count '"type":"was_made"')" = "$(count '"type":"was_cancelled"')" ]
book 409 A1 "$ben" "$before"
look "show:$show,seat:A1"
book 201 A1 "$ben" "$(looked)"

echo '# Once the show is called off nobody books any more, whatever they have seen.'
office "/show/$show/was_called_off" '{"reason": "Calm sea"}'
look "show:$show,seat:A4"
book 409 A4 "$ben" "$(looked)"
shows '"path":"conditions[2]"'
echo 'All as expected.'
