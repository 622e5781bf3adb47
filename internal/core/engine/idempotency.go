package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/storage/store"
)

// idempotencyWindow is how long the outcome of a command with an idempotency key is kept.
const idempotencyWindow = 24 * time.Hour

// commandID returns the store's id for the command with an idempotency key.
func commandID(key string) store.CommandID {
	sum := sha256.Sum256([]byte(key))
	return store.CommandID(sum[:16])
}

// memo returns what is kept with a command's result: the fingerprint of its request, then numbers as varints. For one
// write these are the number of its own events and the index of its aggregate's last event in the unit, followed by the
// aggregate's id. For several writes they are a 0, the number of writes and, for each, the number of its own events,
// the index of its aggregate's last event and the length of the aggregate's key, followed by that key.
func memo(fingerprint [32]byte, p *plan) []byte {
	b := fingerprint[:]
	if len(p.writes) == 1 {
		w := &p.writes[0]
		b = binary.AppendUvarint(b, uint64(p.own))
		b = binary.AppendUvarint(b, uint64(w.last))
		return append(b, w.Key.ID...)
	}
	b = binary.AppendUvarint(b, 0)
	b = binary.AppendUvarint(b, uint64(len(p.writes)))
	for i := range p.writes {
		w := &p.writes[i]
		key := w.Key.String()
		for _, n := range []int{w.To - w.From, w.last, len(key)} {
			b = binary.AppendUvarint(b, uint64(n))
		}
		b = append(b, key...)
	}
	return b
}

// readMemo returns a plan with the writes of a memo, which is given without its fingerprint. aggregateType is the type
// of the aggregate of a single write, events the number of events of the unit. The error is CodeCorruption.
func readMemo(memo []byte, aggregateType string, events int) (*plan, error) {
	ok := true
	number := func(most int) int {
		n, width := binary.Uvarint(memo)
		if ok = ok && width > 0 && n <= uint64(most); !ok {
			return 0
		}
		memo = memo[width:]
		return int(n)
	}
	p := &plan{}
	p.own = number(events)
	if p.own > 0 {
		w := plannedWrite{&decider.AdmittedWrite{To: p.own}, number(events - 1)}
		w.Key = j17.Key{Type: aggregateType, ID: string(memo)}
		p.writes = []plannedWrite{w}
	} else {
		for range number(events) {
			w := plannedWrite{&decider.AdmittedWrite{From: p.own}, 0}
			p.own += number(events - p.own)
			w.To, w.last = p.own, number(events-1)
			n := number(len(memo))
			key, known := j17.ParseKey(string(memo[:n]))
			ok, memo = ok && known && w.To > w.From, memo[n:]
			w.Key = key
			p.writes = append(p.writes, w)
		}
	}
	if !ok || p.own == 0 {
		return nil, store.UserError(&store.CorruptionError{
			Where: "the record of an idempotency key", Err: fmt.Errorf("%d own events of %d", p.own, events),
		})
	}
	return p, nil
}

// replay returns the receipt of a command that was carried out before, from the result of that time.
func (x *execution) replay(ctx context.Context, first *store.Result) (Receipt, error) {
	if len(first.IDs) == 0 {
		return Receipt{}, j17.Errorf(j17.CodeIdempotencyErased, "A request with this idempotency key was carried out before, and what it wrote was erased since. Nothing was written. Use a new key to write it again.")
	}

	// Check that it is the same request.
	reused := j17.Errorf(j17.CodeIdempotencyReuse, "The idempotency key was used before with a different request. Use a new key for a new operation.")
	if len(first.Memo) <= len(x.c.Fingerprint) || [32]byte(first.Memo) != x.c.Fingerprint {
		return Receipt{}, reused
	}
	p, err := readMemo(first.Memo[len(x.c.Fingerprint):], x.c.Writes[0].Type, len(first.IDs))
	if err != nil {
		return Receipt{}, err
	}
	if w := &x.c.Writes[0]; !x.c.Several && !w.New {
		// The fingerprint does not include the aggregate, since the retry may give another of its names.
		key, err := x.e.names.resolve(ctx, x.c.Tenant, x.d, w.Type, w.ID)
		if err != nil && j17.CodeOf(err) != j17.CodeAggregateNotFound && j17.CodeOf(err) != j17.CodeInvalidIdentifier {
			return Receipt{}, err
		}
		if key.ID != p.writes[0].Key.ID {
			return Receipt{}, reused
		}
	}

	// Add the names of its aggregates, which never change.
	r := p.receipt(first)
	r.Replayed = true
	for i := range r.Writes {
		w := &r.Writes[i]
		if typ := x.d.Types[w.Key.Type]; typ == nil || !decider.Named(typ) || w.Key.ID == "" {
			continue
		}
		if w.Names, err = x.e.names.of(ctx, x.c.Tenant, x.d.Decider, w.Key); err != nil {
			return Receipt{}, err
		}
	}
	return r, nil
}
