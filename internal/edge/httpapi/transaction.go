package httpapi

import (
	"net/http"
	"strconv"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/command"
	"j17/internal/core/engine"
)

// transactionPath is the path to which events for several aggregates are sent.
const transactionPath = "/_transaction"

func (h *writeHandlers) postTransaction(c *call, w http.ResponseWriter) error {
	dry := c.query.isSet("dry_run")
	if !dry {
		if err := h.awaitWrite(c); err != nil {
			return err
		}
	}
	cmd, err := h.transaction(c, w)
	if dry {
		return h.tryWrite(c, w, cmd, err)
	}
	if err != nil {
		return err
	}
	receipt, err := h.engine.Execute(c.request.Context(), cmd)
	c.release()
	if err != nil {
		return err
	}
	if receipt.Replayed {
		w.Header().Set(headerIdempotencyReplayed, "true")
	}
	return c.reply(w, http.StatusCreated, appendTransaction(cmd, &receipt))
}

// transaction reads the request.
func (h *writeHandlers) transaction(c *call, w http.ResponseWriter) (*engine.Command, error) {
	if c.request.Header["If-Match"] != nil {
		return nil, j17.Errorf(j17.CodeInvalidHeader, "A transaction is about several aggregates, so there is nothing that If-Match could mean. Give writes a 'previous_length' instead.").At("if-match")
	}
	cmd, body, err := h.asked(c, w, h.maxBatch, transactionPath)
	if err != nil {
		return nil, err
	}
	cmd.Command = command.ReadTransaction(body)
	cmd.CorrelationID = c.correlationID
	return cmd, nil
}

// appendTransaction returns the answer to a transaction.
func appendTransaction(cmd *engine.Command, r *engine.Receipt) []byte {
	b, count := append(make([]byte, 0, 256*len(r.Writes)), `{"ok":true,"writes":[`...), 0
	for i := range r.Writes {
		written := &r.Writes[i]
		if i > 0 {
			b = append(b, ',')
		}

		// The aggregate, and what it is called.
		b = append(b, `{"key":`...)
		b = value.AppendString(b, written.Key.String())
		b = append(b, `,"id":`...)
		b = value.AppendString(b, written.Key.ID)
		if as := cmd.Writes[i].As; as != "" {
			b = append(b, `,"as":`...)
			b = value.AppendString(b, as)
		}
		b = appendNames(b, written.Names)

		// Its events.
		b = append(b, `,"stream_ids":`...)
		b = appendStreamIDs(b, written.IDs)
		b = append(b, `,"count":`...)
		b = strconv.AppendInt(b, int64(len(written.IDs)), 10)
		b = append(b, `,"length":`...)
		b = strconv.AppendUint(b, written.Length, 10)
		b = append(b, '}')
		count += len(written.IDs)
	}
	b = append(b, `],"count":`...)
	b = strconv.AppendInt(b, int64(count), 10)
	if r.Implied > 0 {
		b = append(b, `,"implied_count":`...)
		b = strconv.AppendInt(b, int64(r.Implied), 10)
	}
	return append(b, '}')
}
