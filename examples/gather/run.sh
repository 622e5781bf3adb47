#!/bin/sh
# Loads the seed events, then plans a supper for two: invitations, replies, a waiting list.
#
#   j17 dev examples/gather/spec.json --data /tmp/j17-gather   in one terminal
#   J17_KEY=<write key> examples/gather/run.sh                 in another
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

# post PATH PERSON DATA: writes an event of which a person is the actor.
post() { call 201 POST "$1" -d '{"data": '"$3"', "metadata": {"actor": {"type": "person", "id": "'"$2"'"}}}'; }

# shows TEXT, lacks TEXT: what the last reply has to contain, or must not.
shows() { printf '%s' "$reply" | grep -qF -e "$1" || { echo "expected in the reply: $1" >&2; exit 1; }; }
lacks() { ! printf '%s' "$reply" | grep -qF -e "$1" || { echo "not expected in the reply: $1" >&2; exit 1; }; }

uuid() { cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen | tr A-F a-f; }

echo '# Seed: one batch a file, named after its aggregate. A second run finds them there already (409).'
for file in "$here"/seed/*.json; do
  name=$(basename "$file" .json)
  call '201 409' POST "/${name%%.*}/${name#*.}" --data-binary "@$file"
done
call 200 GET /gathering/91e6c0d2-4b3f-47a8-a5d7-c8f20b1e6934
shows '"starts_at":"2031-05-18T11:00:00+02:00"'
shows '"tally":{"invited":2,"yes":0,"maybe":0,"no":0}'

host=$(uuid) ana=$(uuid) ben=$(uuid) cleo=$(uuid) supper=$(uuid) invitation=$(uuid)

echo '# The host plans a supper with two seats.'
post "/gathering/$supper/was_planned" "$host" '{"title": "Soup and stories", "place": "The kitchen",
  "starts_at": "2032-11-02T19:00:00Z", "capacity": 2}'

echo '# An invitation takes three writes, to three aggregates: the letter, the guest list, the guest.'
post "/invitation/$invitation/was_issued" "$host" \
  '{"gathering_id": "'"$supper"'", "person_id": "'"$ana"'", "valid_seconds": 604800}'
guest='{"person_id": "'"$ana"'", "name": "Ana", "invitation_id": "'"$invitation"'"}'
post "/gathering/$supper/had_guest_invited" "$host" "$guest"
letter='{"invitation_id": "'"$invitation"'", "gathering_id": "'"$supper"'", "title": "Soup and stories"}'
post "/person/$ana/had_invitation" "$host" "$letter"

echo '# Doing any of it again does no harm: whoever is not sure that it worked repeats it.'
post "/gathering/$supper/had_guest_invited" "$host" "$guest"
post "/person/$ana/had_invitation" "$host" "$letter"
call 200 GET "/gathering/$supper"
shows '"tally":{"invited":1,'
call 200 GET "/person/$ana"
shows '"invitations":[{"invitation_id":"'"$invitation"'","gathering_id":"'"$supper"'","title":"Soup and stories","outcome":"open"}],'

echo '# Only hosts invite. An event from somebody else is stored, but changes nothing.'
post "/gathering/$supper/had_guest_invited" "$ana" \
  '{"person_id": "'"$cleo"'", "name": "Cleo", "invitation_id": "'"$(uuid)"'"}'
call 200 GET "/gathering/$supper"
lacks Cleo
letter_to_cleo=$(uuid)
post "/invitation/$letter_to_cleo/was_issued" "$host" \
  '{"gathering_id": "'"$supper"'", "person_id": "'"$cleo"'", "valid_seconds": 604800}'
for who in "$ben Ben $(uuid)" "$cleo Cleo $letter_to_cleo"; do
  id=${who%% *} name=${who#* }
  post "/gathering/$supper/had_guest_invited" "$host" \
    '{"person_id": "'"$id"'", "name": "'"${name% *}"'", "invitation_id": "'"${name#* }"'"}'
done

echo '# Three guests say yes, and there are two seats: the third waits.'
post "/invitation/$invitation/was_opened" "$ana" '{}'
post "/invitation/$invitation/was_answered" "$ana" '{"reply": "yes"}'
for who in "$ana" "$ben" "$cleo"; do
  post "/gathering/$supper/had_reply" "$who" '{"reply": "yes"}'
done
post "/person/$ana/had_invitation_closed" "$ana" '{"invitation_id": "'"$invitation"'", "outcome": "accepted"}'
call 200 GET "/gathering/$supper"
shows '"attending":["'"$ana"'","'"$ben"'"]'
shows '"waiting":["'"$cleo"'"]'
shows '"tally":{"invited":0,"yes":3,"maybe":0,"no":0}'
call 200 GET "/invitation/$invitation"
shows '"status":"answered"'
shows '"times_opened":1'

echo '# Guests who have a seat promise dishes, one each: a second promise takes the place of the first.'
post "/gathering/$supper/had_dish_promised" "$ana" '{"dish": "Bread", "serves": 4}'
post "/gathering/$supper/had_dish_promised" "$ana" '{"dish": "Lentil soup", "serves": 3}'
post "/gathering/$supper/had_dish_promised" "$cleo" '{"dish": "Cake", "serves": 8}'
call 200 GET "/gathering/$supper"
shows '"dishes":[{"by":"'"$ana"'","dish":"Lentil soup","serves":3}]'

echo '# Ana cannot come after all: her dish goes, and the first in line gets her seat.'
post "/gathering/$supper/had_reply" "$ana" '{"reply": "no", "note": "A cold. Sorry!"}'
call 200 GET "/gathering/$supper"
shows '"attending":["'"$ben"'","'"$cleo"'"]'
shows '"waiting":[]'
shows '"dishes":[]'
shows '"note":"A cold. Sorry!"'

echo '# Seats that are taken are not taken away. Another one more is no problem.'
post "/gathering/$supper/had_capacity_changed" "$host" '{"capacity": 1}'
call 200 GET "/gathering/$supper"
shows '"capacity":2'
post "/gathering/$supper/had_reply" "$ana" '{"reply": "yes", "note": "It was only hay fever."}'
post "/gathering/$supper/had_capacity_changed" "$host" '{"capacity": 3}'
post "/gathering/$supper/had_seat_given" "$host" '{"person_id": "'"$ana"'"}'
call 200 GET "/gathering/$supper"
shows '"attending":["'"$ben"'","'"$cleo"'","'"$ana"'"]'

echo '# A program reminds everybody, at most once a day.'
for attempt in 1 2; do
  call 201 POST "/gathering/$supper/had_reminder_sent" -H "Idempotency-Key: reminder-$attempt-$supper" \
    -d '{"data": {}, "metadata": {"actor": {"type": "program", "id": "reminder_job"}}}'
done
call 200 GET "/gathering/$supper"
shows '"reminders":1'

echo '# Many write messages at the same time: these events skip the check for concurrent writes.'
call 201 POST "/gathering/$supper/had_message_posted" -d '{"data": {"text": "Is there parking?"},
  "metadata": {"actor": {"type": "person", "id": "'"$ben"'"}, "skip_occ": true}}'
call 400 POST "/gathering/$supper/was_called_off" -d '{"data": {"reason": "Rain"},
  "metadata": {"actor": {"type": "person", "id": "'"$host"'"}, "skip_occ": true}}'

echo '# Hosts share their work: Ben becomes one and strikes Cleo from the list. Her seat and her place in the tally go too.'
post "/gathering/$supper/had_host_added" "$host" '{"person_id": "'"$ben"'"}'
post "/gathering/$supper/had_guest_struck" "$ben" '{"person_id": "'"$cleo"'"}'
post "/invitation/$letter_to_cleo/was_withdrawn" "$ben" '{}'
call 200 GET "/gathering/$supper"
shows '"attending":["'"$ben"'","'"$ana"'"]'
shows '"tally":{"invited":0,"yes":2,"maybe":0,"no":0}'
lacks '"name":"Cleo"'
call 200 GET "/invitation/$letter_to_cleo"
shows '"status":"withdrawn"'

echo '# What is known about a person is for all gatherings.'
post "/person/$ana/had_diet_noted" "$ana" '{"diet": "no nuts"}'
post "/person/$ana/had_diet_noted" "$ana" '{"diet": "vegetarian"}'
post "/person/$ana/had_diet_dropped" "$ana" '{"diet": "no nuts"}'
call 200 GET "/person/$ana"
shows '"diets":["vegetarian"]'
shows '"outcome":"accepted"'

echo '# The evening itself. Who came without having a seat is computed from who did.'
post "/gathering/$supper/was_held" "$host" '{"came": ["'"$ben"'", "'"$ana"'", "'"$cleo"'"]}'
call 200 GET "/gathering/$supper"
shows '"status":"held"'
shows '"surprises":["'"$cleo"'"]'

echo '# A reply after the last day is not counted, unless it frees a seat.'
party=$(uuid)
post "/gathering/$party/was_planned" "$host" '{"title": "Long ago", "place": "Attic",
  "starts_at": "2001-09-10T20:00:00Z", "reply_by": 1000000000, "capacity": 5}'
post "/gathering/$party/had_guest_invited" "$host" \
  '{"person_id": "'"$ben"'", "name": "Ben", "invitation_id": "'"$(uuid)"'"}'
post "/gathering/$party/had_reply" "$ben" '{"reply": "yes"}'
call 200 GET "/gathering/$party"
shows '"tally":{"invited":1,"yes":0,"maybe":0,"no":0}'
post "/gathering/$party/had_reply" "$ben" '{"reply": "no"}'
call 200 GET "/gathering/$party"
shows '"tally":{"invited":0,"yes":0,"maybe":0,"no":1}'
echo 'All as expected.'
