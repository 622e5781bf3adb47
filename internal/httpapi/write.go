package httpapi

import (
	"crypto/sha256"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"j17"
	"j17/internal/command"
	"j17/internal/engine"
	"j17/internal/value"
)

// postEvent is POST /{type}/{id}/{event}.
func (c *call) postEvent(w http.ResponseWriter) error {
	receipt, err := c.execute(w, c.request.PathValue("event"), c.api.MaxEventBytes)
	if err != nil {
		return err
	}
	b := append(make([]byte, 0, 128), `{"ok":true,"stream_id":"`...)
	b = receipt.IDs[0].Append(b)
	b = append(b, '"')
	return c.created(w, b, receipt)
}

// postNewEvent is POST /{type}/_new/{event}.
func (c *call) postNewEvent(w http.ResponseWriter) error {
	c.fresh = true
	return c.postEvent(w)
}

// postNewBatch is POST /{type}/_new.
func (c *call) postNewBatch(w http.ResponseWriter) error {
	c.fresh = true
	return c.postBatch(w)
}

// postBatch is POST /{type}/{id}.
func (c *call) postBatch(w http.ResponseWriter) error {
	receipt, err := c.execute(w, "", c.api.MaxBatchBytes)
	if err != nil {
		return err
	}
	b := append(make([]byte, 0, 64+20*len(receipt.IDs)), `{"ok":true,"stream_ids":[`...)
	for i, id := range receipt.IDs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = id.Append(b)
		b = append(b, '"')
	}
	b = append(b, `],"count":`...)
	b = strconv.AppendInt(b, int64(len(receipt.IDs)), 10)
	return c.created(w, b, receipt)
}

// created ends the answer to a write.
func (c *call) created(w http.ResponseWriter, b []byte, r engine.Receipt) error {
	b = append(b, `,"length":`...)
	b = strconv.AppendUint(b, r.Length, 10)
	if r.Implied > 0 {
		b = append(b, `,"implied_count":`...)
		b = strconv.AppendInt(b, int64(r.Implied), 10)
	}
	if c.fresh || r.Names != (j17.Names{}) {
		b = append(b, `,"id":`...)
		b = value.AppendString(b, r.ID)
	}
	b = appendNames(b, r.Names)
	b = append(b, '}')
	if r.Replayed {
		w.Header().Set(headerIdempotencyReplayed, "true")
	}
	return c.reply(w, http.StatusCreated, b)
}

// appendNames appends the members that tell what an aggregate is called.
func appendNames(b []byte, id j17.Names) []byte {
	if id.Handle != "" {
		b = append(b, `,"handle":`...)
		b = value.AppendString(b, id.Handle)
	}
	if id.PublicID != "" {
		b = append(b, `,"public_id":`...)
		b = value.AppendString(b, id.PublicID)
	}
	return b
}

// execute reads the request and carries out the command: one event of a type, or for "" a batch.
func (c *call) execute(w http.ResponseWriter, eventType string, limit int64) (engine.Receipt, error) {
	r := c.request
	cmd := engine.Command{Tenant: c.tenant}
	if c.api.lost.Load() {
		return engine.Receipt{}, errLost()
	}
	raw, err := c.readBody(w, limit)
	if err != nil {
		return engine.Receipt{}, err
	}
	if cmd.IdempotencyKey, err = idempotencyKey(r.Header); err != nil {
		return engine.Receipt{}, err
	}
	if cmd.IdempotencyKey != "" {
		cmd.Fingerprint = sha256.Sum256([]byte(r.PathValue("type") + "\x00" + strconv.FormatBool(c.fresh) + "\x00" + eventType + "\x00" + raw))
	}
	if cmd.IfMatch, err = entityTags(r.Header, "If-Match"); err != nil {
		return engine.Receipt{}, err
	}
	if err := c.parsing(raw); err != nil {
		return engine.Receipt{}, err
	}
	body, err := value.ParseString(raw)
	if err != nil {
		return engine.Receipt{}, invalidJSON(err)
	}
	cmd.Command = command.Read(eventType, body)
	cmd.Type = r.PathValue("type")
	cmd.ID, cmd.New = r.PathValue("id"), c.fresh
	cmd.CorrelationID = c.correlationID
	receipt, err := c.api.Engine.Execute(r.Context(), &cmd)
	c.release()
	return receipt, err
}

type syntaxDetails struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

func invalidJSON(err error) error {
	e := j17.Errorf(j17.CodeInvalidJSON, "The request body is not valid JSON")
	if s, ok := errors.AsType[*value.SyntaxError](err); ok {
		e.Message += ": " + s.Error()
		e.Details = syntaxDetails{Line: s.Line, Column: s.Column}
	}
	return e
}

// chunkSize is how much of a body is read at once.
const chunkSize = 8 << 10

// readBody returns a JSON request's body, as the string that parsed values will share. The content type is checked before a
// byte is read.
func (c *call) readBody(w http.ResponseWriter, limit int64) (string, error) {
	r := c.request
	if err := jsonContent(r.Header); err != nil {
		return "", err
	}
	if r.ContentLength > limit {
		return "", tooLarge(limit)
	}
	body, err := c.text(w, limit)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return "", tooLarge(limit)
	}
	if _, ok := errors.AsType[*j17.Error](err); ok {
		return "", err
	}
	switch {
	case err != nil:
		return "", j17.Errorf(j17.CodeInvalidRequest, "The request body could not be read to its end").Because(err)
	case body == "":
		return "", j17.Errorf(j17.CodeInvalidJSON, "The request body is empty; it must be a JSON object")
	}
	return body, nil
}

// growth is how much larger the memory for a body becomes when it is full.
const growth = 4

// text reads the body. Memory is taken for what has arrived, not for what was announced, and the room for all of it when more
// than a little has.
func (c *call) text(w http.ResponseWriter, limit int64) (string, error) {
	r := c.request
	from, size := r.Body, r.ContentLength
	if size < 0 {
		from, size = http.MaxBytesReader(w, from, limit), limit
	}
	body := new(strings.Builder)
	body.Grow(int(min(max(r.ContentLength, 0), unaccounted)))
	chunk, _ := c.api.chunks.Get().(*[chunkSize]byte)
	defer c.api.chunks.Put(chunk)
	for {
		n, err := from.Read(chunk[:])
		if body.Len() <= unaccounted && body.Len()+n > unaccounted {
			if err := c.take(c.api.room.bodies, size, "such a body"); err != nil {
				return "", err
			}
		}
		if need := body.Len() + n; need > body.Cap() {
			larger := new(strings.Builder)
			larger.Grow(max(need, int(min(size, int64(growth*need))))) // not more than there will be
			larger.WriteString(body.String())
			body = larger
		}
		body.Write(chunk[:n])
		switch {
		case errors.Is(err, io.EOF):
			return body.String(), nil
		case err != nil:
			return "", err
		}
	}
}

func tooLarge(limit int64) error {
	return j17.Errorf(j17.CodePayloadTooLarge, "The request body is larger than %d bytes", limit)
}

func jsonContent(h http.Header) error {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return j17.Errorf(j17.CodeInvalidContentType, "Request bodies must not be compressed; send them without Content-Encoding")
	}
	ct := h.Get("Content-Type")
	if ct == "application/json" {
		return nil
	}
	media, params, err := mime.ParseMediaType(ct)
	if err != nil || media != "application/json" {
		return j17.Errorf(j17.CodeInvalidContentType, "The Content-Type must be application/json")
	}
	if cs := params["charset"]; cs != "" && !strings.EqualFold(cs, "utf-8") {
		return j17.Errorf(j17.CodeInvalidContentType, "JSON must be sent as UTF-8")
	}
	return nil
}

// maxIdempotencyKey is the length of the longest idempotency key.
const maxIdempotencyKey = 255

// idempotencyKey returns the key that a request is repeated with, "" where it has none. It may stand in either of two headers,
// or in both.
func idempotencyKey(h http.Header) (string, error) {
	key := ""
	for _, name := range []string{headerIdempotencyKey, headerIdempotencyKeyOld} {
		values, ok := h[name]
		if !ok {
			continue
		}
		if len(values) != 1 || !validKey(values[0]) {
			return "", j17.Errorf(j17.CodeInvalidHeader, "%s must be one value of 1 to %d printable ASCII characters", name, maxIdempotencyKey).At(strings.ToLower(name))
		}
		if key != "" && key != values[0] {
			return "", j17.Errorf(j17.CodeInvalidHeader, "%s and %s are two names of one header and have different values. Send one of them.", headerIdempotencyKey, headerIdempotencyKeyOld).At(strings.ToLower(name))
		}
		key = values[0]
	}
	return key, nil
}

// validKey reports whether a text may be an idempotency key.
func validKey(key string) bool {
	for i := range len(key) {
		if b := key[i]; b < ' ' || b > '~' {
			return false
		}
	}
	return key != "" && len(key) <= maxIdempotencyKey
}

// entityTags reads a list of strong entity tags or "*". Weak tags are left out: they never match a strong comparison, so
// a list of nothing else matches nothing.
func entityTags(h http.Header, name string) ([]string, error) {
	values := h.Values(name)
	if len(values) == 0 {
		return nil, nil
	}
	bad := j17.Errorf(j17.CodeInvalidHeader, "%s must be * or a list of entity tags in double quotes, as ETag shows them", name).At(strings.ToLower(name))
	var tags []string
	rest := strings.TrimSpace(strings.Join(values, ","))
	if rest == "*" {
		return []string{"*"}, nil
	}
	for rest != "" {
		weak := strings.HasPrefix(rest, "W/")
		rest = strings.TrimPrefix(rest, "W/")
		if rest == "" || rest[0] != '"' {
			return nil, bad
		}
		end := strings.IndexByte(rest[1:], '"')
		if end < 0 {
			return nil, bad
		}
		tag := rest[:end+2]
		if weak {
			tag = "W/" + tag
		}
		tags = append(tags, tag)
		rest = strings.TrimSpace(rest[end+2:])
		if rest != "" {
			if rest[0] != ',' {
				return nil, bad
			}
			rest = strings.TrimSpace(rest[1:])
		}
	}
	if tags == nil {
		return nil, bad
	}
	return tags, nil
}
