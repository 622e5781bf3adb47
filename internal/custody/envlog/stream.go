package envlog

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"j17"
	"j17/internal/base/work"
	"j17/internal/custody/proof"
	"j17/internal/storage/store"
)

// Stream has a stream's own tree and chain, over the current bytes of its events.
type Stream struct {
	// Length is the number of events, Root that of their tree, Head the last hash of their chain.
	Length     uint64
	Root, Head [sha256.Size]byte
	// Bad says which event, or which hash, is wrong; nil if all are right.
	Bad error
}

// Stream reads a whole stream and computes its tree and its chain. A stream without events has the length 0.
func (s *Service) Stream(ctx context.Context, t j17.Tenant, key j17.Key) (of Stream, err error) {
	err = s.whole(ctx, t, key, func(head *store.Head, events func(func(*j17.Event) error) error) error {
		of = Stream{Length: head.Length}
		var tree proof.Tree
		var first [sha256.Size]byte
		err := events(func(e *j17.Event) error {
			if e.Version != tree.Size()+1 || e.Key != key {
				return fmt.Errorf("event %s stands in the place of event %d", e.StreamID, tree.Size()+1)
			}
			leaf := j17.Leaf(e.Raw)
			tree.Add(leaf)
			of.Head, first = j17.Link(of.Head, leaf), j17.Link(first, e.Leaf())
			return nil
		})
		of.Root = tree.Root()

		// The chain over the present content, and the one over the original content.
		now := head.Now()
		damage, damaged := errors.AsType[*store.CorruptionError](err)
		switch {
		case damaged:
			of.Bad, err = damage, nil
		case err != nil:
		case tree.Size() != head.Length:
			of.Bad = fmt.Errorf("the stream has %d events, %d are stored", head.Length, tree.Size())
		case !head.Rewriting() && of.Head != now:
			of.Bad = fmt.Errorf("the chain of the %d events is %x, %x is stored", head.Length, of.Head, now)
		case first != head.Chain:
			of.Bad = fmt.Errorf("the chain of the leaves that the %d events had at first is %x, %x is stored", head.Length, first, head.Chain)
		}
		return err
	})
	return of, err
}

// StreamProof proves that a stream's own tree has the event with an index, counted from 0; ErrBeyond if there is none.
func (s *Service) StreamProof(ctx context.Context, t j17.Tenant, key j17.Key, index uint64) (p Inclusion, err error) {
	err = s.whole(ctx, t, key, func(head *store.Head, events func(func(*j17.Event) error) error) error {
		if index >= head.Length {
			return ErrBeyond
		}
		tree := proof.Prover(index, head.Length)
		if err := events(func(e *j17.Event) error {
			tree.Add(j17.Leaf(e.Raw))
			return nil
		}); err != nil {
			return err
		}
		if tree.Size() != head.Length {
			return &store.CorruptionError{
				Where: "stream " + key.String(),
				Err:   fmt.Errorf("it has %d events, %d are stored", head.Length, tree.Size()),
			}
		}
		p = Inclusion{Index: index, Size: head.Length, Root: tree.Root()}
		p.Leaf, p.Proof = tree.Proof()
		return nil
	})
	return p, err
}

// rewriteTries is how often a stream is read that is rewritten meanwhile.
const rewriteTries = 3

// whole calls do with the head of a stream and a function that reads its events up to there, and again if events were
// rewritten meanwhile.
func (s *Service) whole(
	ctx context.Context, t j17.Tenant, key j17.Key,
	do func(head *store.Head, events func(func(*j17.Event) error) error) error,
) error {
	for try := 1; ; try++ {
		heads, err := s.Store.Heads(ctx, t, []j17.Key{key})
		if err != nil {
			return err
		}
		head := &heads[0]
		failed := do(head, func(add func(*j17.Event) error) error { return s.events(ctx, t, key, head.Length, add) })

		// Inconsistent events may be of two generations.
		after, err := s.Store.Heads(ctx, t, []j17.Key{key})
		if err != nil {
			return err
		}
		if after[0].Generation == head.Generation || try == rewriteTries {
			return failed
		}
	}
}

// events reads the first n events of a stream. It takes turns with other requests.
func (s *Service) events(ctx context.Context, t j17.Tenant, key j17.Key, n uint64, add func(*j17.Event) error) error {
	if n == 0 {
		return nil
	}
	b := work.New(ctx, work.Command)
	for e, err := range s.Store.ReadStream(ctx, t, key, 1, n) {
		if err == nil {
			err = add(e)
		}
		if err != nil {
			return err
		}
		if b.Left() < work.Command/2 {
			b.Renew(work.Command) // all events are read, however many they are
		}
		if !b.SpendBytes(hashCost + len(e.Raw)) {
			return b.Err()
		}
	}
	return nil
}

// hashCost is what the hashes of an event cost beside that of its bytes, in bytes.
const hashCost = 512
