#!/bin/sh
# Loads the seed events, then moves cards over a board and takes one from idea to done.
#
#   j17 dev examples/taskboard/spec.json --data /tmp/j17-taskboard   in one terminal
#   J17_KEY=<write key> examples/taskboard/run.sh                    in another
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

# post PATH MEMBER DATA: writes an event of which a member is the actor.
post() { call 201 POST "$1" -d '{"data": '"$3"', "metadata": {"actor": {"type": "member", "id": "'"$2"'"}}}'; }

# shows TEXT, lacks TEXT: what the last reply has to contain, or must not.
shows() { printf '%s' "$reply" | grep -qF -e "$1" || { echo "expected in the reply: $1" >&2; exit 1; }; }
lacks() { ! printf '%s' "$reply" | grep -qF -e "$1" || { echo "not expected in the reply: $1" >&2; exit 1; }; }

uuid() { cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen | tr A-F a-f; }

echo '# Seed: one batch a file, named after its aggregate. A second run finds them there already (409).'
for file in "$here"/seed/*.json; do
  name=$(basename "$file" .json)
  call '201 409' POST "/${name%%.*}/${name#*.}" --data-binary "@$file"
done
call 200 GET /card/58c3e0a1-7f2b-4d94-a6e8-13b9d5f7c026
shows '"title":"Plant a currant hedge"'
shows '"blockers":["d09f6c2e-3a85-4b17-8f6d-50e7b9c1a4f3"]'

kim=$(uuid) lou=$(uuid) max=$(uuid) board=$(uuid) one=$(uuid) two=$(uuid) three=$(uuid)

echo '# A board with three columns. One may hold two cards at a time.'
post "/board/$board/was_opened" "$kim" '{"title": "Radio play"}'
for member in "$lou" "$max"; do
  post "/board/$board/had_member_added" "$kim" '{"member_id": "'"$member"'"}'
done
post "/board/$board/had_column_added" "$kim" '{"column_id": "todo", "title": "To record", "rank": 1}'
post "/board/$board/had_column_added" "$kim" '{"column_id": "cut", "title": "Cutting", "rank": 2, "limit": 2}'
post "/board/$board/had_column_added" "$kim" '{"column_id": "mix", "title": "Mixing", "rank": 3}'
post "/board/$board/had_label_defined" "$kim" '{"label": "noisy", "color": "#aa0000"}'
post "/board/$board/had_label_defined" "$kim" '{"label": "outside", "color": "#00aa00"}'
post "/board/$board/had_label_dropped" "$kim" '{"label": "noisy"}'

# place CARD COLUMN RANK: puts a card into a column, or moves it there.
place() { post "/board/$board/had_card_placed" "$kim" '{"card_id": "'"$1"'", "column_id": "'"$2"'", "rank": '"$3"'}'; }
# at CARD COLUMN RANK: how the board shows that card.
at() { printf '{"card_id":"%s","column_id":"%s","rank":%s}' "$1" "$2" "$3"; }

echo '# Order is a number. Between two cards there is always room for a third: numbers are exact.'
place "$one" todo 1
place "$two" todo 1.0000000000000000001
place "$three" todo 1.00000000000000000005
call 200 GET "/board/$board"
shows "$(at "$three" todo 1.00000000000000000005)"
shows '"labels":{"outside":{"color":"#00aa00"}}'

echo '# Once in a while a client gives all cards of a column short ranks again.'
post "/board/$board/had_column_spread" "$kim" '{"column_id": "todo", "ranks": [{"card_id": "'"$one"'", "rank": 1},
  {"card_id": "'"$three"'", "rank": 2}, {"card_id": "'"$two"'", "rank": 3}]}'
call 200 GET "/board/$board"
shows '"cards":['"$(at "$one" todo 1),$(at "$two" todo 3),$(at "$three" todo 2)"']'

echo '# The third card does not fit into the column with a limit of two; it stays where it was.'
place "$one" cut 1
place "$two" cut 2
place "$three" cut 3
place "$one" cut 4
call 200 GET "/board/$board"
shows '"cards":['"$(at "$three" todo 2),$(at "$two" cut 2),$(at "$one" cut 4)"']'
lacks '"others"'
post "/board/$board/had_column_changed" "$kim" '{"column_id": "cut", "limit": 3, "title": "Cutting room"}'
place "$three" cut 3
call 200 GET "/board/$board"
shows "$(at "$three" cut 3)"
shows '{"column_id":"cut","title":"Cutting room","rank":2,"limit":3}'

echo '# A column goes, and its cards move into another one. A column that does not exist takes none.'
post "/board/$board/had_column_dissolved" "$kim" '{"column_id": "cut", "into": "nowhere"}'
post "/board/$board/had_column_dissolved" "$kim" '{"column_id": "cut", "into": "mix"}'
post "/board/$board/had_card_removed" "$kim" '{"card_id": "'"$two"'"}'
call 200 GET "/board/$board"
shows '"columns":[{"column_id":"todo","title":"To record","rank":1},{"column_id":"mix","title":"Mixing","rank":3}]'
shows '"cards":['"$(at "$one" mix 4),$(at "$three" mix 3)"']'

echo '# Two people move cards at the same time: the one who saw an old board is refused and looks again.'
call 409 POST "/board/$board/had_card_placed" -d '{"data": {"card_id": "'"$one"'", "column_id": "todo", "rank": 9},
  "metadata": {"actor": {"type": "member", "id": "'"$lou"'"}, "previous_length": 3}}'

# status_is TEXT: reads the card and checks its status.
status_is() {
  call 200 GET "/card/$one"
  shows '"status":"'"$1"'"'
}

echo '# A card that waits for another one cannot be started.'
post "/card/$one/was_written" "$kim" '{"board_id": "'"$board"'", "title": "Storm scene"}'
post "/card/$one/had_check_added" "$kim" '{"check_id": "tin", "text": "Shake a sheet of tin", "rank": 1}'
post "/card/$one/had_check_added" "$kim" '{"check_id": "rain", "text": "Pour rice on a drum", "rank": 2}'
post "/card/$one/had_check_added" "$kim" '{"check_id": "gun", "text": "Fire the starting pistol", "rank": 3}'
post "/card/$one/had_check_removed" "$kim" '{"check_id": "gun"}'
post "/card/$one/was_blocked" "$kim" '{"by_card_id": "'"$three"'"}'
post "/card/$one/was_started" "$lou" '{}'
status_is open
post "/card/$one/was_unblocked" "$kim" '{"by_card_id": "'"$three"'"}'
post "/card/$one/was_started" "$lou" '{}'
status_is doing

echo '# It is not ready for review before its checklist is done, and not for the review of whoever did it.'
review='{"reviewers": ["'"$kim"'", "'"$max"'"]}'
post "/card/$one/had_check_ticked" "$lou" '{"check_id": "tin", "done": true}'
post "/card/$one/had_review_requested" "$lou" "$review"
status_is doing
post "/card/$one/had_check_ticked" "$lou" '{"check_id": "rain", "done": true}'
post "/card/$one/had_review_requested" "$lou" '{"reviewers": ["'"$lou"'"]}'
status_is doing
post "/card/$one/had_review_requested" "$lou" "$review"
status_is review

echo '# It is finished when all reviewers have approved. Others do not count.'
post "/card/$one/had_approval" "$lou" '{}'
post "/card/$one/had_approval" "$kim" '{}'
post "/card/$one/was_finished" "$lou" '{}'
status_is review
shows '"approvals":["'"$kim"'"]'

echo '# A reviewer sends it back. The next review starts from the beginning.'
post "/card/$one/was_sent_back" "$max" '{"reason": "The rain sounds like rice."}'
status_is doing
post "/card/$one/had_review_requested" "$lou" "$review"
status_is review
shows '"approvals":[]'
post "/card/$one/had_approval" "$kim" '{}'
post "/card/$one/had_approval" "$max" '{}'
post "/card/$one/was_finished" "$lou" '{}'
status_is done

echo '# Opened again, it starts with a fresh checklist.'
post "/card/$one/was_reopened" "$kim" '{}'
status_is open
lacks '"done":true'
shows '"reopened":1'

echo '# Labels: no two the same, and five at most.'
for label in outside loud outside l3 l4 l5 l6; do
  post "/card/$one/had_label_put_on" "$kim" '{"label": "'"$label"'"}'
done
post "/card/$one/had_label_taken_off" "$kim" '{"label": "loud"}'
call 200 GET "/card/$one"
shows '"labels":["outside","l3","l4","l5"]'

echo '# Comments and hours come from many people at once and never get in each other'"'"'s way.'
comment=$(uuid)
for text in 'Use the old tin.' 'Sent twice by a nervous finger.'; do
  call 201 POST "/card/$one/had_comment" -d '{"data": {"comment_id": "'"$comment"'", "text": "'"$text"'"},
    "metadata": {"actor": {"type": "member", "id": "'"$max"'"}, "skip_occ": true}}'
done
for member in "$lou" "$max" "$lou"; do
  call 201 POST "/card/$one/had_time_logged" -d '{"data": {"minutes": 25},
    "metadata": {"actor": {"type": "member", "id": "'"$member"'"}, "skip_occ": true}}'
done
post "/card/$one/had_comment_withdrawn" "$lou" '{"comment_id": "'"$comment"'"}'
post "/card/$one/had_budget_set" "$kim" '{"minutes": 60}'
call 200 GET "/card/$one"
shows 'Use the old tin.'
lacks nervous
shows '"minutes":75,"minutes_by_member":{"'"$lou"'":50,"'"$max"'":25}'
shows '"over_budget":true'
post "/card/$one/had_comment_withdrawn" "$max" '{"comment_id": "'"$comment"'"}'
call 200 GET "/card/$one"
shows '"comments":[]'

echo '# Members leave, but for the last one.'
for member in "$lou" "$max" "$kim"; do
  post "/board/$board/had_member_removed" "$kim" '{"member_id": "'"$member"'"}'
done
call 200 GET "/board/$board"
shows '"members":["'"$kim"'"]'
echo 'All as expected.'
