#!/bin/sh
# Loads the seed events, fills a cart and leaves it behind. With an operator's token in J17_TOKEN it moves the clock too.
#
#   j17 dev examples/reminders/spec.json --data /tmp/j17-reminders   in one terminal
#   J17_KEY=<write key> examples/reminders/run.sh                    in another
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

# post PATH MEMBER DATA: writes an event of which a shopper is the actor.
post() { call 201 POST "$1" -d '{"data": '"$3"', "metadata": {"actor": {"type": "shopper", "id": "'"$2"'"}}}'; }

# shows TEXT: what the last reply has to contain.
shows() { printf '%s' "$reply" | grep -qF -e "$1" || { echo "expected in the reply: $1" >&2; exit 1; }; }

uuid() { cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen | tr A-F a-f; }

echo '# Seed: one batch a file, named after its aggregate. A second run finds them there already (409).'
for file in "$here"/seed/*.json; do
  name=$(basename "$file" .json)
  call '201 409' POST "/${name%%.*}/${name#*.}" --data-binary "@$file"
done

kim=$(uuid) cart=$(uuid) other=$(uuid)

echo '# Each item schedules a reminder and cancels the one before. What is scheduled is no event yet, so nothing is implied.'
post "/cart/$cart/had_item_added" "$kim" '{"item": "kettle"}'
post "/cart/$cart/had_item_added" "$kim" '{"item": "teapot"}'
call 200 GET "/cart/$cart"
shows '"items":["kettle","teapot"]'

echo '# A cart that is checked out reminds of nothing.'
post "/cart/$other/had_item_added" "$kim" '{"item": "mug"}'
post "/cart/$other/was_checked_out" "$kim" '{}'

echo '# A parcel is announced a day before it comes. One that comes within a day is announced at once (had_delivery_due).'
post "/cart/$other/was_shipped" "$kim" '{"arrives_at": "2020-01-01T09:00:00Z"}'

echo '# A trial ends by itself, unless the shopper is converted. A digest comes every week from the first had_digest_due on.'
post "/shopper/$kim/had_trial_started" "$kim" '{}'
post "/shopper/$kim/was_converted" "$kim" '{}'
post "/shopper/$kim/had_digest_due" "$kim" '{}'
call 200 GET "/shopper/$kim"
shows '"plan":"paid"'
shows '"digests":1'

if [ -n "${J17_TOKEN:-}" ]; then
  echo '# Fifteen days later: one reminder (had_reminder_due), two more digests, no had_trial_ended.'
  status=$(curl -sS -o /dev/null -w '%{http_code}' -X POST "$url/_dev/clock/advance" -H "Authorization: Bearer $J17_TOKEN" \
    -H 'Content-Type: application/json' -d '{"by": "360h"}')
  [ "$status" = 200 ] || { echo "the clock was not moved: $status" >&2; exit 1; }
  call 200 GET "/shopper/$kim"
  shows '"plan":"paid"'
  shows '"digests":3'
  shows '"deliveries":["'"$other"'"]'
  shows '"reminders":[{"cart":"'"$cart"'","item":"teapot"}]'
fi
echo 'All as expected.'
