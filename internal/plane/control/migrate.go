package control

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"j17"
	"j17/internal/storage/store"
)

// The specs of all environments used to be items of the System tenant: each version under "<instance
// uuid>/<environment>/<version, 10 digits>", its text under that and "/source", and the head under "<instance
// uuid>/<environment>".
const (
	formerSpecs store.Space = "control.specs"
	formerHeads store.Space = "control.spec_heads"
)

// migrateEvery is the number of environments after which a migration logs its progress.
const migrateEvery = 100

// migrate moves specs from the System tenant to the tenants of their environments. The head moves last, in a commit on
// the condition that it is absent, and the old items are removed after that, so that an environment has all of its
// specs or none, whenever the program ends. What has moved already is not moved again.
func (r *Specs) migrate(ctx context.Context) error {
	heads, err := r.keysOf(ctx, formerHeads, "")
	if err != nil || len(heads) == 0 {
		return err
	}
	uuids := map[string]string{}
	for _, rec := range r.known.instances {
		uuids[rec.UUID] = rec.ID
	}
	r.logger.LogAttrs(ctx, slog.LevelInfo, "the deployed specs are moved to their environments", slog.Int("environments", len(heads)))
	for i, former := range heads {
		uuid, env, _ := strings.Cut(former, "/")
		if id, ok := uuids[uuid]; ok {
			if err := r.migrateSpecs(ctx, former, j17.TenantOf(id, j17.Environment(env))); err != nil {
				return err
			}
		}
		if done := i + 1; done%migrateEvery == 0 || done == len(heads) {
			r.logger.LogAttrs(
				ctx, slog.LevelInfo, "deployed specs were moved", slog.Int("done", done),
				slog.Int("environments", len(heads)),
			)
		}
	}
	return nil
}

// migrateSpecs moves the specs of one environment.
func (r *Specs) migrateSpecs(ctx context.Context, former string, t j17.Tenant) error {
	keys, err := r.keysOf(ctx, formerSpecs, former+"/")
	if err != nil {
		return err
	}

	// Copy the versions, and then the head, which makes them valid.
	_, err = r.store.Get(ctx, t, specHeadSpace, headKey)
	if errors.Is(err, store.ErrNotFound) {
		err = r.copySpecs(ctx, former, keys, t)
	}
	if err != nil {
		return failure(err)
	}

	// Remove what was copied, the head last, since the rest is found by it.
	var gone []store.Side
	for _, key := range keys {
		gone = append(gone, store.Side{Op: store.Delete, Space: formerSpecs, Key: key})
	}
	for part := range parts(append(gone, store.Side{Op: store.Delete, Space: formerHeads, Key: former})) {
		if err := r.store.WriteFreeing(ctx, j17.System, part); err != nil {
			return failure(err)
		}
	}
	return nil
}

func (r *Specs) copySpecs(ctx context.Context, former string, keys []string, t j17.Tenant) error {
	var copied []store.Side
	size := 0
	for i, key := range keys {
		it, err := r.store.Get(ctx, j17.System, formerSpecs, key)
		if err != nil {
			return err
		}
		copied = append(copied, store.Side{
			Op: store.Put, Space: specSpace, Key: strings.TrimPrefix(key, former+"/"), Value: it.Value,
		})
		if size += len(it.Value); size < maxAppliedBytes && i < len(keys)-1 {
			continue
		}
		if err := r.store.WriteFreeing(ctx, t, copied); err != nil {
			return err
		}
		copied, size = nil, 0
	}
	head, err := r.store.Get(ctx, j17.System, formerHeads, former)
	if err != nil {
		return err
	}
	return r.store.WriteFreeing(ctx, t, []store.Side{
		{Op: store.Put, Space: specHeadSpace, Key: headKey, Value: head.Value, Cond: store.IfAbsent},
	})
}

// Audit records used to be side items, for the whole server and under their instance, with keys that made a scan begin
// with the newest record.
const (
	formerRecords         store.Space = "control.audit"
	formerInstanceRecords store.Space = "control.audit_by_instance"
)

// migratedRecords is the number of audit records that move in one commit.
const migratedRecords = 500

// migrate moves audit records into the log, the oldest first. A record is removed from its old place in the same
// commit, so that it exists once, whenever the program ends.
func (r *AuditLog) migrate(ctx context.Context) error {
	keys, err := r.keysOf(ctx, formerRecords, "")
	if err != nil || len(keys) == 0 {
		return err
	}
	r.logger.LogAttrs(ctx, slog.LevelInfo, "the audit log is moved into the registry's log", slog.Int("records", len(keys)))
	slices.Reverse(keys)
	done := 0
	for part := range slices.Chunk(keys, migratedRecords) {
		if err := r.migrateRecords(ctx, part); err != nil {
			return err
		}
		done += len(part)
		r.logger.LogAttrs(
			ctx, slog.LevelInfo, "audit records were moved", slog.Int("done", done), slog.Int("records", len(keys)),
		)
	}
	return nil
}

func (r *AuditLog) migrateRecords(ctx context.Context, keys []string) error {
	unit := store.Append{Freeing: true}
	for _, key := range keys {
		it, err := r.store.Get(ctx, j17.System, formerRecords, key)
		if err != nil {
			return failure(err)
		}
		rec, err := decode[Record](formerRecords, it)
		if err != nil {
			return err
		}
		e := entry{Record: rec}
		events, err := e.events(new(rec.At.Unix()))
		if err != nil {
			return err
		}
		unit.Events = append(unit.Events, events...)
		unit.Side = append(unit.Side, store.Side{
			Op: store.Delete, Space: formerRecords, Key: key, Cond: store.IfRev, Rev: it.Rev,
		})
		if rec.Instance != "" {
			unit.Side = append(unit.Side, store.Side{
				Op: store.Delete, Space: formerInstanceRecords, Key: rec.Instance + "/" + key,
			})
		}
	}
	if _, err := r.append(ctx, unit); err != nil {
		return failure(err)
	}
	return nil
}
