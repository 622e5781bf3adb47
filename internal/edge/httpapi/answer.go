package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"j17/internal/base/value"
	"j17/internal/base/wire"
)

// smallAnswer is how large an answer is put together in memory, since one call of the system is cheaper than several.
const smallAnswer = 16 << 10

// write sends an answer of one or more parts whose headers are set. Large parts are not copied: they may belong to a
// cache.
func (c *call) write(w http.ResponseWriter, status int, parts ...[]byte) {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	c.status = status
	c.bytes += int64(size)
	c.api.forward.awaitReplicas(c)
	c.show(w.Header(), "Content-Length", strconv.Itoa(size))
	w.WriteHeader(status)
	if c.request.Method == http.MethodHead {
		return
	}
	if len(parts) > 1 && size <= smallAnswer {
		parts = [][]byte{bytes.Join(parts, nil)}
	}
	for _, part := range parts {
		if len(part) == 0 && size > 0 {
			continue // empty, see put
		}
		if _, err := w.Write(part); err != nil {
			return // the client has gone
		}
	}
}

// reply sends a JSON answer.
func (c *call) reply(w http.ResponseWriter, status int, body []byte) error {
	c.show(w.Header(), "Content-Type", typeJSON)
	c.write(w, status, body)
	return nil
}

// answer sends {"ok":true,...} with the members of a shape, nil for none. Texts are not escaped for HTML.
func (c *call) answer(w http.ResponseWriter, status int, shape any) error {
	b := []byte(`{"ok":true`)
	if c.api.forward.awaitReplicas(c); c.behind != nil {
		b = append(b, `,"workers_behind":`...)
		raw, err := marshal(c.behind)
		if err != nil {
			return err
		}
		b = append(b, raw...)
	}
	if shape != nil {
		raw, err := marshal(shape)
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

// done answers with what was read or done, or with the error that came of it.
func (c *call) done(w http.ResponseWriter, status int, shape any, err error) error {
	if err != nil {
		return err
	}
	return c.answer(w, status, shape)
}

// listing is the part of a list that is asked for. Handlers gather limit+1 rows from offset on, if there are as many,
// and hand them to list.
type listing struct{ limit, offset int }

// listing returns the part that the parameters say.
func (c *call) listing() listing {
	return listing{c.query.number("limit", defaultCount), c.query.number("offset", 0)}
}

// list answers with the part l of a list; rows has one row more than l where there are any after it. If err is set, it
// is the answer.
func list[T any](c *call, w http.ResponseWriter, plural string, l listing, rows []T, err error) error {
	rows, next := cut(rows, l)
	return page(c, w, plural, rows, next, err)
}

// cut returns the rows of the part l, where there may be one more, and the offset of the part behind it; 0 where there
// is none.
func cut[T any](rows []T, l listing) (part []T, next int) {
	if len(rows) > l.limit {
		return rows[:l.limit], l.offset + l.limit
	}
	return rows, 0
}

// page answers {"ok":true,"<plural>":[...],"next":...} with the rows of a page. next is where the page after it starts:
// an offset, or a text that only the list itself understands; the zero value is sent as null.
func page[T any, N int | string](c *call, w http.ResponseWriter, plural string, rows []T, next N, err error) error {
	if err != nil {
		return err
	}
	if rows == nil {
		rows = []T{}
	}
	raw, err := marshal(rows)
	if err != nil {
		return err
	}
	where, err := marshal(wire.OrNull(next))
	if err != nil {
		return err
	}
	b := append([]byte(`{"`+plural+`":`), raw...)
	b = append(append(b, `,"next":`...), where...)
	return c.answer(w, http.StatusOK, json.RawMessage(append(b, '}')))
}

// appendNext appends where the next page starts, in an answer that is put together without a shape; "" where there is
// none.
func appendNext(b []byte, next string) []byte {
	b = append(b, `,"next":`...)
	if next == "" {
		return append(b, "null"...)
	}
	return value.AppendString(b, next)
}

// portion returns the rows of a whole list that l asks for, and one more if there is one.
func portion[T any](all []T, l listing) []T {
	from := min(l.offset, len(all))
	return all[from:min(len(all), from+l.limit+1)]
}

// marshal encodes JSON without escaping <, > and &.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// known sets the entity tag of what is read. If the client already has that, it answers so and reports true.
func (c *call) known(w http.ResponseWriter, tag string) (bool, error) {
	tags, err := entityTags(c.request.Header, "If-None-Match")
	if err != nil {
		return false, err
	}
	h := w.Header()
	c.show(h, "Etag", tag)
	c.show(h, "Cache-Control", "private, no-cache")
	for _, t := range tags {
		if t == "*" || strings.TrimPrefix(t, "W/") == tag {
			c.status = http.StatusNotModified
			w.WriteHeader(http.StatusNotModified)
			return true, nil
		}
	}
	return false, nil
}

// page answers a read with JSON whose entity tag is a digest of it.
func (c *call) page(w http.ResponseWriter, body []byte) error {
	return c.pageOf(w, digestTag(body), body)
}

// pageOf answers a read with JSON.
func (c *call) pageOf(w http.ResponseWriter, tag string, parts ...[]byte) error {
	return c.textOf(w, typeJSON, tag, parts...)
}

// textOf answers a read with a text of this media type.
func (c *call) textOf(w http.ResponseWriter, media, tag string, parts ...[]byte) error {
	if known, err := c.known(w, tag); known || err != nil {
		return err
	}
	c.show(w.Header(), "Content-Type", media)
	c.write(w, http.StatusOK, parts...)
	return nil
}

// digestTag returns the entity tag of content that has none of its own.
func digestTag(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}
