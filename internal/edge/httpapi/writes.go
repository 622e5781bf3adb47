package httpapi

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/core/command"
	"j17/internal/core/engine"
)

// writeHandlers write events.
type writeHandlers struct {
	await    func(context.Context) error
	engine   *engine.Engine
	maxBatch int64
	maxEvent int64
}

// routes write events.
func (h *writeHandlers) routes() []route {
	return []route{
		{dataSite, post, transactionPath, write, need{}, "", h.postTransaction, operation{
			id: "writeTransaction", about: "Write events to several aggregates, all or none", query: tryable(),
			body: wire.WriteTransaction{}, gives: wire.TransactionWritten{}, made: true, tried: wire.WriteDryRun{},
		}},
		{dataSite, post, "/{type}/_new", write, need{}, "", h.postNewBatch, operation{
			id: "createBatch", about: "Write events to a new aggregate, all or none", query: tryable(),
			body: wire.WriteBatch{}, gives: wire.BatchWritten{}, made: true, tried: wire.WriteDryRun{},
		}},
		{dataSite, post, "/{type}/_new/{event}", write, need{}, "", h.postNewEvent, operation{
			id: "createEvent", about: "Write one event to a new aggregate", query: tryable(), body: wire.WriteEvent{},
			gives: wire.EventWritten{}, made: true, tried: wire.WriteDryRun{},
		}},
		{dataSite, post, "/{type}/{id}", write, need{}, "", h.postBatch, operation{
			id: "writeBatch", about: "Write events to an aggregate, all or none", query: tryable(),
			body: wire.WriteBatch{}, gives: wire.BatchWritten{}, made: true, tried: wire.WriteDryRun{},
		}},
		{dataSite, post, "/{type}/{id}/{event}", write, need{}, "", h.postEvent, operation{
			id: "writeEvent", about: "Write one event to an aggregate", query: tryable(), body: wire.WriteEvent{},
			gives: wire.EventWritten{}, made: true, tried: wire.WriteDryRun{},
		}},
	}
}

func (h *writeHandlers) postEvent(c *call, w http.ResponseWriter) error {
	if c.query.isSet("dry_run") {
		cmd, err := h.command(c, w, c.request.PathValue("event"), h.maxEvent)
		return h.tryWrite(c, w, cmd, err)
	}
	receipt, err := h.execute(c, w, c.request.PathValue("event"), h.maxEvent)
	if err != nil {
		return err
	}
	b := append(make([]byte, 0, 128), `{"ok":true,"stream_id":"`...)
	b = receipt.Writes[0].IDs[0].Append(b)
	b = append(b, '"')
	return h.created(c, w, b, receipt)
}

func (h *writeHandlers) postNewEvent(c *call, w http.ResponseWriter) error {
	c.fresh = true
	return h.postEvent(c, w)
}

func (h *writeHandlers) postNewBatch(c *call, w http.ResponseWriter) error {
	c.fresh = true
	return h.postBatch(c, w)
}

func (h *writeHandlers) postBatch(c *call, w http.ResponseWriter) error {
	if c.query.isSet("dry_run") {
		cmd, err := h.command(c, w, "", h.maxBatch)
		return h.tryWrite(c, w, cmd, err)
	}
	receipt, err := h.execute(c, w, "", h.maxBatch)
	if err != nil {
		return err
	}
	ids := receipt.Writes[0].IDs
	b := append(make([]byte, 0, 64+20*len(ids)), `{"ok":true,"stream_ids":`...)
	b = appendStreamIDs(b, ids)
	b = append(b, `,"count":`...)
	b = strconv.AppendInt(b, int64(len(ids)), 10)
	return h.created(c, w, b, receipt)
}

// appendStreamIDs appends a list of positions.
func appendStreamIDs(b []byte, ids []j17.StreamID) []byte {
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = id.Append(b)
		b = append(b, '"')
	}
	return append(b, ']')
}

// created ends the answer to a write.
func (*writeHandlers) created(c *call, w http.ResponseWriter, b []byte, r engine.Receipt) error {
	written := &r.Writes[0]
	b = append(b, `,"length":`...)
	b = strconv.AppendUint(b, written.Length, 10)
	if r.Implied > 0 {
		b = append(b, `,"implied_count":`...)
		b = strconv.AppendInt(b, int64(r.Implied), 10)
	}
	if c.fresh || written.Names != (j17.Names{}) {
		b = append(b, `,"id":`...)
		b = value.AppendString(b, written.Key.ID)
	}
	b = appendNames(b, written.Names)
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
func (h *writeHandlers) execute(c *call, w http.ResponseWriter, eventType string, limit int64) (engine.Receipt, error) {
	if err := h.awaitWrite(c); err != nil {
		return engine.Receipt{}, err
	}
	cmd, err := h.command(c, w, eventType, limit)
	if err != nil {
		return engine.Receipt{}, err
	}
	receipt, err := h.engine.Execute(c.request.Context(), cmd)
	c.release()
	return receipt, err
}

// awaitWrite waits until a command for events may be carried out: at once, unless the clock is being moved.
func (h *writeHandlers) awaitWrite(c *call) error {
	if h.await == nil {
		return nil
	}
	return h.await(c.request.Context())
}

// command reads the request.
func (h *writeHandlers) command(
	c *call, w http.ResponseWriter, eventType string, limit int64,
) (*engine.Command, error) {
	r := c.request
	cmd, body, err := h.asked(c, w, limit, r.PathValue("type"), strconv.FormatBool(c.fresh), eventType)
	if err != nil {
		return nil, err
	}
	cmd.Command = command.Read(eventType, body)
	to := &cmd.Writes[0]
	to.Type, to.ID, to.New = r.PathValue("type"), r.PathValue("id"), c.fresh
	cmd.CorrelationID = c.correlationID
	return cmd, nil
}

// asked reads the body of a request for events, and the headers that change its meaning. about is what else
// distinguishes two requests with the same idempotency key.
func (*writeHandlers) asked(
	c *call, w http.ResponseWriter, limit int64, about ...string,
) (cmd *engine.Command, body value.Value, err error) {
	h := c.request.Header
	cmd = &engine.Command{Tenant: c.tenant}
	if c.api.lost.Load() {
		return nil, body, errLost()
	}

	raw, err := c.readBody(w, limit)
	if err != nil {
		return nil, body, err
	}
	if cmd.IdempotencyKey, err = idempotencyKey(h); err != nil {
		return nil, body, err
	}
	if cmd.IdempotencyKey != "" {
		cmd.Fingerprint = sha256.Sum256([]byte(strings.Join(append(about, raw), "\x00")))
	}
	if cmd.IfMatch, err = entityTags(h, "If-Match"); err != nil {
		return nil, body, err
	}
	if h["If-None-Match"] != nil {
		return nil, body, j17.Errorf(j17.CodeInvalidHeader, "If-None-Match is for reads. To write only where there is no event yet, send 'previous_length': 0.").At("if-none-match")
	}

	// The body is parsed once, within what may be parsed at the same time.
	if err := c.parsing(raw); err != nil {
		return nil, body, err
	}
	if body, err = value.ParseString(raw); err != nil {
		return nil, body, invalidJSON(err)
	}
	return cmd, body, nil
}
