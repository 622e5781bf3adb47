package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"

	"j17"
	"j17/internal/auth"
	"j17/internal/store"
)

// headerNodeSecret carries the secret that the nodes of one server share.
const headerNodeSecret = "X-Node-Secret" //nolint:gosec // a name, not the secret

// admitNode lets in who knows the node secret.
func (c *call) admitNode() error {
	given := c.request.Header[headerNodeSecret]
	if len(given) != 1 || given[0] == "" {
		return j17.Errorf(j17.CodeUnauthorized, "This needs the node secret, in one header %s.", headerNodeSecret)
	}
	peer := c.peer()
	if wait := c.api.guesses.Take(peer, c.api.Clock.Now()); wait > 0 {
		e := j17.Errorf(j17.CodeRateLimited, "Too many wrong node secrets came from this address. Try again in %d seconds.", seconds(wait))
		e.Details = auth.RetryAfter{Seconds: seconds(wait)}
		c.api.refusals.note(c, e)
		return e
	}
	// Hashes have one length, so that not even the secret's length shows in the time this takes.
	got, want := sha256.Sum256([]byte(given[0])), sha256.Sum256([]byte(c.api.Registry.Secrets.NodeSecret()))
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		err := j17.Errorf(j17.CodeForbidden, "This is not the node secret of this server.")
		c.api.refusals.note(c, err)
		return err
	}
	c.api.guesses.Right(peer)
	c.principal = j17.Principal{Kind: j17.Node}
	c.actFor()
	return nil
}

// listing is the part of a list that is asked for. Handlers gather limit+1 rows from offset on, if there are as many, and hand
// them to list.
type listing struct{ limit, offset int }

// listing returns the part that the parameters say.
func (c *call) listing() listing {
	return listing{c.number("limit", defaultCount), c.number("offset", 0)}
}

// list answers {"ok":true,"<plural>":[...],"next":...} with up to l.limit of the rows that begin at l.offset; next is the
// offset of those after them, null where there are none.
func list[T any](c *call, w http.ResponseWriter, plural string, l listing, rows []T) error {
	var next *int
	if len(rows) > l.limit {
		rows = rows[:l.limit]
		next = new(l.offset + l.limit)
	}
	if rows == nil {
		rows = []T{}
	}
	return c.answer(w, http.StatusOK, struct {
		Next *int `json:"next"`
	}{next}, member{plural, rows})
}

// part returns the rows of a whole list that l asks for, and one more if there is one.
func part[T any](all []T, l listing) []T {
	from := min(l.offset, len(all))
	return all[from:min(len(all), from+l.limit+1)]
}

// member is one member of an answer.
type member struct {
	name  string
	value any
}

// answer sends {"ok":true,...}: the members, then those of rest, which is a struct or nil. Texts are not escaped for HTML.
func (c *call) answer(w http.ResponseWriter, status int, rest any, members ...member) error {
	b := []byte(`{"ok":true`)
	if c.awaitReplicas(); c.behind != nil {
		members = append(members, member{"workers_behind", c.behind})
	}
	for _, m := range members {
		raw, err := marshal(m.value)
		if err != nil {
			return err
		}
		b = append(append(append(b, `,"`...), m.name...), `":`...)
		b = append(b, raw...)
	}
	if rest != nil {
		raw, err := marshal(rest)
		if err != nil {
			return err
		}
		if len(raw) > len("{}") {
			b = append(append(b, ','), raw[1:len(raw)-1]...)
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	return c.reply(w, status, append(b, '}'))
}

// marshal encodes JSON as people write it: with <, > and & as they are.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// tombstoneSpace holds the erasures of an environment: one JSON object each.
const tombstoneSpace store.Space = "tombstones"

// listTombstones is GET tombstones.
func (c *call) listTombstones(w http.ResponseWriter) error {
	l := c.listing()
	items, err := c.api.Store.Scan(c.request.Context(), c.tenant, tombstoneSpace, store.Range{}, l.offset+l.limit+1)
	if err != nil {
		return err
	}
	rows := make([]json.RawMessage, 0, len(items))
	for _, it := range part(items, l) {
		rows = append(rows, it.Value)
	}
	return list(c, w, "tombstones", l, rows)
}
