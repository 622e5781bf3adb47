#!/bin/sh
# Loads the seed events, opens a store, and finds it by where it is, by its name, and on the map.
#
#   j17 dev examples/storefinder/spec.json --data /tmp/j17-storefinder   in one terminal
#   J17_KEY=<write key> examples/storefinder/run.sh                      in another
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

# post PATH DATA: writes an event of which a member of the staff is the actor.
post() { call 201 POST "$1" -d '{"data": '"$2"', "metadata": {"actor": {"type": "staff", "id": "'"$staff"'"}}}'; }

# shows TEXT, hides TEXT: what the last reply has to contain, and what it must not.
shows() { printf '%s' "$reply" | grep -qF -e "$1" || { echo "expected in the reply: $1" >&2; exit 1; }; }
hides() { if printf '%s' "$reply" | grep -qF -e "$1"; then echo "not expected in the reply: $1" >&2; exit 1; fi; }

uuid() { cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen | tr A-F a-f; }

staff=b2a7c940-51de-4f38-8c06-7e9d3a1f5b24
harbour=91d4e7b0-6c2f-4a85-b3e9-0f5a8c7d2e61
store=$(uuid) chain=$(uuid) zone=$(uuid)

echo '# Seed: one batch a file, named after its aggregate. A second run finds them there already (409).'
for file in "$here"/seed/*.json; do
  name=$(basename "$file" .json)
  call '201 409' POST "/${name%%.*}/${name#*.}" --data-binary "@$file"
done

echo '# A store opens: the next request finds it, on the map and in the list.'
post "/chain/$chain/was_founded" '{"name": "Turning Page"}'
post "/store/$store/was_opened" '{"name": "Page by the Canal", "kind": "books", "chain_id": "'"$chain"'", "place": {"lat": 53.551, "lng": 9.985}}'
call 200 GET '/store/nearby?lat=53.551&lng=9.985&radius=5&count=1000&data=false'
shows "$store"
call 200 GET '/_projections/store_card?kind=books&near=53.551,9.985&radius=2000&count=1000'
shows '"chain":"Turning Page"'
call 200 GET '/_projections/store_card?name.words=canal%20pa&count=1000'
shows "$store"

echo '# Which zones deliver to a guest, and for how much.'
call 200 GET '/zone/containing?lat=53.55&lng=9.97'
shows '"fee":2.50'

echo '# Reviews move a store in the list; a chain that is renamed is renamed on every card at once.'
post "/store/$store/had_review" '{"stars": 5}'
post "/store/$store/had_review" '{"stars": 4}'
post "/chain/$chain/was_renamed" '{"name": "Turned Page"}'
call 200 GET "/_projections/store_card/$store"
shows '"chain":"Turned Page"'
shows '"reviews":2,"stars":9'
call 200 GET '/_projections/store_card?kind=books&order=-reviews&count=1'
shows '"reviews":2'
call 200 GET '/_projections/store_card/_count?chain=Turned%20Page'

echo '# It moves across the river, gets a zone of its own, and closes: then it is nowhere.'
post "/store/$store/had_moved" '{"place": {"type": "Point", "coordinates": [9.99, 53.53]}}'
post "/zone/$zone/was_drawn" '{"name": "South", "fee": 4, "store_id": "'"$store"'", "area": {"type": "Polygon", "coordinates": [[[9.97, 53.52], [10.01, 53.52], [10.01, 53.54], [9.97, 53.54], [9.97, 53.52]]]}}'
call 200 GET "/_projections/delivers_from/$zone"
shows '"store":"Page by the Canal"'
post "/store/$store/was_closed" '{"place": null}'
call 200 GET '/store/within?box=53.52,9.97,53.54,10.01&count=1000&data=false'
hides "$store"

echo '# For a map: GeoJSON.'
call 200 GET '/store/nearby?lat=53.5461&lng=9.9665&radius=5&data=false' -H 'Accept: application/geo+json'
shows '"FeatureCollection"'
shows "$harbour"
echo 'All as expected.'
