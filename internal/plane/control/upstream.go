package control

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// readOnly is the refusal of a change to a replica.
func readOnly() error {
	return j17.Errorf(j17.CodeUnavailable, "This server is a worker, and the headnode alone can change this. Send the request to the headnode.")
}

// putUpstream is Put of a replica. When it returns, what the headnode has stored is here as well.
func (r *Specs) putUpstream(ctx context.Context, t j17.Tenant, d Deployment) (Spec, error) {
	put, err := r.upstream.PutSpec(ctx, d)
	if err != nil {
		return Spec{}, err
	}

	// It may have arrived as a change already; whichever is second finds the other's writes.
	if err := r.lock(ctx); err != nil {
		return Spec{}, err
	}
	defer r.change.release()
	head, rev, err := getOf[specHead](ctx, r.store, t, specHeadSpace, headKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return Spec{}, err
	case head.Version > put.Version:
		return Spec{}, outdatedSpec(d.Environment)
	case head.Version == put.Version: // arrived as a change already, or was current before
		put.Source, put.Fence = d.Source, store.Fence{Space: specHeadSpace, Key: headKey, Rev: rev}
		return put, r.writeBeside(context.WithoutCancel(ctx), t, &d, put.Fence)
	}

	// The headnode's version replaces the replica's items.
	sides, err := specSides(put, d.Source)
	if err != nil {
		return Spec{}, err
	}
	for i := range sides {
		sides[i].Cond = store.Always
	}
	if err := r.store.Write(context.WithoutCancel(ctx), t, append(sides, d.Sides...), d.Fences...); err != nil {
		if !unwritten(err) {
			r.doubt(nil)
		}
		return Spec{}, failure(err)
	}

	put.Source = d.Source
	put.Fence, err = r.fence(ctx, t, put.Version)
	return put, err
}

// sourceUpstream reads a version of a spec from the headnode and keeps it.
func (r *Specs) sourceUpstream(ctx context.Context, t j17.Tenant, version int) (Spec, error) {
	id, env, _ := strings.Cut(string(t), "/")
	s, err := r.upstream.SpecVersion(ctx, id, j17.Environment(env), version)
	if err != nil {
		return Spec{}, err
	}
	side := store.Side{Op: store.Put, Space: specSpace, Key: sourceKey(version), Value: s.Source}
	if err := r.store.Write(ctx, t, []store.Side{side}); err != nil {
		return Spec{}, failure(err)
	}
	return s, nil
}

// unsentSpace has the audit records of a replica that could not be sent to the headnode yet, oldest first.
const unsentSpace store.Space = "control.unsent_audit"

// addUpstream is Add of a replica. Records that cannot be sent now are kept for SendUnsent.
func (r *AuditLog) addUpstream(ctx context.Context, rec Record) error {
	if rec.Actor == (Actor{}) {
		rec.Actor, rec.RequestID = ActorOf(ctx)
	}
	if err := r.upstream.Audit(ctx, rec); err == nil {
		return nil
	}
	rec.At = r.second()
	side, err := putNew(unsentSpace, r.mint.UUIDv7(), rec)
	if err != nil {
		return err
	}
	if err := r.store.Write(context.WithoutCancel(ctx), j17.System, []store.Side{side}); err != nil {
		return failure(err)
	}
	return nil
}

// SendUnsent sends the audit records that were made while the headnode was away, with their time in the detail
// happened_at. After a crash one may be sent twice.
func (r *AuditLog) SendUnsent(ctx context.Context) error {
	for {
		items, err := r.store.Scan(ctx, j17.System, unsentSpace, store.Range{}, scanLimit)
		if err != nil {
			return failure(err)
		}
		for _, it := range items {
			rec, err := decode[Record](unsentSpace, it)
			if err != nil {
				return err
			}
			details := map[string]string{"happened_at": rec.At.Format(time.RFC3339)}
			maps.Copy(details, rec.Details)
			rec.Details = details
			if err := r.upstream.Audit(ctx, *rec); err != nil {
				return err
			}
			if err := r.store.Write(ctx, j17.System, []store.Side{
				{Op: store.Delete, Space: unsentSpace, Key: it.Key},
			}); err != nil {
				return failure(err)
			}
		}
		if len(items) < scanLimit {
			return nil
		}
	}
}

// Uses returns when keys were last used, in Unix seconds by handle, for those that were used since a time.
func (r *Keys) Uses(since time.Time) map[string]int64 {
	uses := map[string]int64{}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for id, rec := range r.known.keys {
		if last := rec.use.last.Load(); last >= since.Unix() && last > 0 {
			uses[id] = last
		}
	}
	return uses
}

// NoteUses records the uses of keys that a replica has seen.
func (r *Keys) NoteUses(uses map[string]int64) {
	now := r.clock.Now().Unix()
	r.mu.RLock()
	defer r.mu.RUnlock()
	for id, last := range uses {
		if rec := r.known.keys[id]; rec != nil && last <= now+int64(time.Minute/time.Second) {
			rec.use.note(last)
		}
	}
}
