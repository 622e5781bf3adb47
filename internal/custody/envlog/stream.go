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

// Stream is what a stream's own tree and chain are: those of the bytes that its events have now.
type Stream struct {
	// Length is the number of events, Root that of their tree, Head the last hash of their chain.
	Length     uint64
	Root, Head [sha256.Size]byte
	// Bad says which event, or which hash, is not what it has to be; nil where all of it is.
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

// StreamProof proves that a stream's own tree has the event with an index, counted from 0; ErrBeyond where there is
// none.
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

// rewriteTries is how often a stream is read again that is rewritten while it is read.
const rewriteTries = 3

// whole calls do with the head of a stream and what reads its events up to there, again where events were rewritten
// meanwhile.
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

		// Events that do not fit together may be of two generations.
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
			b.Renew(work.Command) // all of it is looked at, however much that is
		}
		if !b.SpendBytes(hashCost + len(e.Raw)) {
			return b.Err()
		}
	}
	return nil
}

// hashCost is what the hashes of an event cost beside those of its bytes, in bytes.
const hashCost = 512
