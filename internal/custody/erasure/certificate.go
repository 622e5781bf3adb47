package erasure

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"j17"
	"j17/internal/custody/proof"
	"j17/internal/storage/store"
)

// complete ends an execution of which nothing is left to do: it certifies what was done.
func (x *execution) complete(ctx context.Context) error {
	r := x.row
	if r.Streams > maxListed && r.AffectedRoot == "" {
		if err := x.total(ctx); err != nil {
			return err
		}
	}

	// The certificate describes the tombstone as it is shown from now on.
	sides := r.become(Completed)
	r.Phase, r.CompletedAt = "", x.o.Clock.Now().UTC().Truncate(time.Second)
	text, err := x.certificate(ctx)
	if err != nil {
		return err
	}
	note, err := x.o.Sign(ctx, x.tenant, text)
	if err != nil {
		return err
	}

	// The same commit completes it and ends its claim.
	err = x.o.Store.Write(ctx, x.tenant, append(
		sides, x.put(), x.claim.Remove(),
		store.Side{Op: store.Put, Space: certificates, Key: r.id, Value: []byte(note)},
	))
	for i := range x.parts {
		if told := x.parts[i].Erase.Completed; told != nil && err == nil {
			told()
		}
	}
	return err
}

// total computes the root of the tree over all streams, if there are too many to list.
func (x *execution) total(ctx context.Context) error {
	var all tree
	for cursor := ""; ; {
		some, err := x.entries(ctx, x.tenant, x.row.id, cursor, maxListed)
		if err != nil {
			return err
		}
		for _, e := range some {
			line, err := json.Marshal(e.shown())
			if err != nil {
				return err
			}
			all.add(j17.Leaf(line))
			cursor = e.key.String()
		}
		if len(some) < maxListed {
			x.row.AffectedRoot = all.root().String()
			return nil
		}
	}
}

// certificate is the text that is signed.
func (x *execution) certificate(ctx context.Context) (string, error) {
	shown, err := x.shown(ctx, x.tenant, x.row)
	if err != nil {
		return "", err
	}
	instance, env, _ := strings.Cut(string(x.tenant), "/")
	r := x.row
	c := proof.Certificate{
		ID: r.id, TombstoneID: r.id, Instance: instance, Environment: j17.Environment(env), Key: r.Key,
		Status:    string(r.Status),
		CreatedAt: r.CreatedAt, ExecutableAt: r.ExecutableAt, ExecutedAt: r.StartedAt, CompletedAt: r.CompletedAt,
		Forced:           r.Forced,
		PreTombstoneRoot: r.Root, PreTombstoneSize: r.Size, Events: r.Events, AffectedCount: shown.AffectedCount,
		AffectedRoot: shown.AffectedRoot,
	}
	if p := r.Purged; p != nil {
		c.Method, c.LSN, c.Servers, c.Unseen, c.Remains = p.Method, p.LSN, p.Servers, p.Unseen, p.Remains
	}
	if r.LegalBasis != nil {
		c.LegalBasis = *r.LegalBasis
	}
	if r.RequestID != nil {
		c.RequestID = *r.RequestID
	}
	if r.RequestedBy != nil {
		c.RequestedBy = r.RequestedBy
	}
	for _, s := range shown.AffectedStreams {
		c.Streams = append(c.Streams, proof.ErasedStream{
			Key: s.Key, Events: s.EventCount, Action: s.Action, RootBefore: s.RootBefore, RootAfter: s.RootAfter,
		})
	}
	return c.Text()
}
