package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"j17"
	"j17/internal/store"
)

// idempotencyWindow is how long the outcome of a command with an idempotency key is kept.
const idempotencyWindow = 24 * time.Hour

// tries is how often a command is planned that was overtaken by another write: once, and once more from fresh state.
const tries = 2

// Execute writes the events of a command. When it returns without an error they are durable. Errors are *j17.Error.
func (e *Engine) Execute(ctx context.Context, c *Command) (Receipt, error) {
	d, err := e.deployed(c.Tenant)
	if err != nil {
		return Receipt{}, err
	}
	if c.IdempotencyKey != "" {
		first, err := e.store.Command(ctx, c.Tenant, commandID(c.IdempotencyKey))
		if err != nil {
			return Receipt{}, storage(err)
		}
		if first != nil {
			return replay(c, first)
		}
	}
	a, err := d.admit(c)
	if err != nil {
		return Receipt{}, err
	}
	for try := 1; ; try++ {
		p, err := e.plan(ctx, d, c, a)
		if err != nil {
			return Receipt{}, err
		}
		results, err := e.store.Append(ctx, c.Tenant, []store.Append{p.unit})
		if err != nil {
			return Receipt{}, storage(err)
		}
		switch r := &results[0]; r.Outcome {
		case store.Committed:
			e.committed(c.Tenant, d, a.key, r)
			return p.receipt(r), nil
		case store.Duplicate:
			return replay(c, r)
		case store.Conflict:
			if p.expected != nil || try == tries {
				e.counts.conflicts.Add(1)
				return Receipt{}, p.refusal(r)
			}
		default:
			return Receipt{}, fmt.Errorf("engine: unknown outcome %d of an append", r.Outcome)
		}
	}
}

// plan is one atomic append that carries out a command, and how to read its result.
type plan struct {
	unit store.Append
	// own is the number of the command's own events; they come first.
	own int
	// expected is the length that the caller expects, nil for none. A conflict with it is the caller's to resolve:
	// planning anew would change nothing.
	expected *uint64
}

// plan turns an admitted command into an append. What it reads becomes a precondition: a stream that was not looked at
// cannot conflict.
func (e *Engine) plan(ctx context.Context, d *deployed, c *Command, a *admitted) (*plan, error) {
	p := &plan{own: len(a.events), expected: a.expected}
	p.unit.Timestamp = e.clock.Now().Unix()
	if a.expected != nil {
		p.unit.Pre = append(p.unit.Pre, store.Pre{Key: a.key, Length: *a.expected})
	}
	if len(c.IfMatch) > 0 {
		length, err := e.matching(ctx, d, c, a.key)
		if err != nil {
			return nil, err
		}
		p.unit.Pre = append(p.unit.Pre, store.Pre{Key: a.key, Length: length})
	}
	p.unit.Events = make([]store.NewEvent, len(a.events))
	data := make([]byte, 0, 512)
	for i := range a.events {
		from := len(data)
		data = a.events[i].data.AppendJSON(data)
		p.unit.Events[i] = store.NewEvent{Key: a.key, Type: a.events[i].typ.Name, Data: data[from:len(data):len(data)], Metadata: a.metadata}
	}
	if c.IdempotencyKey != "" {
		p.unit.Command = &store.Command{
			ID:      commandID(c.IdempotencyKey),
			Memo:    memo(c.Fingerprint, p.own),
			Expires: e.clock.Now().Add(idempotencyWindow),
		}
	}
	return p, nil
}

// matching returns the present length of the aggregate if it has one of the command's entity tags.
func (e *Engine) matching(ctx context.Context, d *deployed, c *Command, key j17.Key) (uint64, error) {
	heads, err := e.store.Heads(ctx, c.Tenant, []j17.Key{key})
	if err != nil {
		return 0, storage(err)
	}
	length := heads[0].Length
	present := entityTag(d.spec.Types[key.Type], length)
	for _, tag := range c.IfMatch {
		if tag == present || (tag == "*" && length > 0) {
			return length, nil
		}
	}
	return 0, preconditionFailed()
}

func (p *plan) receipt(r *store.Result) Receipt {
	return Receipt{IDs: r.IDs[:p.own], Length: r.Lengths[p.own-1], Implied: len(r.IDs) - p.own}
}

// refusal is the error of a plan that was overtaken: a conflict where the caller named a length that does not hold, else a
// failed If-Match.
func (p *plan) refusal(r *store.Result) error {
	for _, c := range r.Streams {
		if p.expected != nil && c.Expected == *p.expected {
			return conflict(c)
		}
	}
	return preconditionFailed()
}

// committed does what has to follow a write: counting, and making the snapshots and warm states that are due.
func (e *Engine) committed(t store.Tenant, d *deployed, key j17.Key, r *store.Result) {
	e.counts.events.Add(uint64(len(r.IDs)))
	last := r.Lengths[len(r.Lengths)-1]
	due := last/e.every != (last-uint64(len(r.Lengths)))/e.every
	if due || d.spec.Types[key.Type].Cache {
		e.enqueue(stateKey{t, key})
	}
}

// commandID names an idempotency key in the store.
func commandID(key string) store.CommandID {
	sum := sha256.Sum256([]byte(key))
	return store.CommandID(sum[:16])
}

// memo is what is kept with a command's result: the fingerprint of its request and the number of its own events.
func memo(fingerprint [32]byte, own int) []byte {
	return binary.AppendUvarint(fingerprint[:], uint64(max(own, 0)))
}

// replay answers a command that was carried out before.
func replay(c *Command, first *store.Result) (Receipt, error) {
	if len(first.Memo) <= len(c.Fingerprint) || [32]byte(first.Memo) != c.Fingerprint {
		return Receipt{}, j17.Errorf(j17.CodeIdempotencyReuse, "The idempotency key was used before with a different request. Use a new key for a new operation.")
	}
	own, n := binary.Uvarint(first.Memo[len(c.Fingerprint):])
	if n <= 0 || own == 0 || own > uint64(len(first.IDs)) {
		return Receipt{}, storage(&store.CorruptionError{Where: "the record of an idempotency key", Err: fmt.Errorf("%d own events of %d", own, len(first.IDs))})
	}
	p := plan{own: int(own)} //nolint:gosec // at most len(first.IDs)
	r := p.receipt(first)
	r.Replayed = true
	return r, nil
}
