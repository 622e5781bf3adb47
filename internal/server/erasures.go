package server

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"j17"
	"j17/internal/custody/checkpoint"
	"j17/internal/custody/erasure"
	"j17/internal/plane/control"
)

// openErasures creates the service that erases personal data.
func (s *Server) openErasures() {
	o := &s.options
	s.erasures = erasure.New(erasure.Options{
		Store: s.store, Clock: o.Clock, Worker: s.worker, Logger: o.Logger,
		Resolve: s.engine.Resolve, Spec: s.engine.Spec,
		Restoring: s.restoring,
		Root:      s.rootBeforeErasure, Sign: s.logs.Sign, By: actorOf, Record: s.recordErasure,
	})
	s.registry.Faults.Names = s.namesOf
}

// namesOf returns the names of an aggregate beside its key. An aggregate whose type is no longer in the spec has none.
func (s *Server) namesOf(ctx context.Context, t j17.Tenant, key j17.Key) (names j17.Names, err error) {
	d, err := s.engine.Decider(t)
	if err != nil || d.Types[key.Type] == nil {
		return names, err
	}
	return s.engine.Names(ctx, t, d, key)
}

// rootBeforeErasure keeps the root and the size of an environment's log before an erasure.
func (s *Server) rootBeforeErasure(ctx context.Context, t j17.Tenant) (root [32]byte, size uint64, err error) {
	kept, err := s.checkpoints.Root(ctx, t, checkpoint.Tombstone)
	if err != nil {
		return root, 0, err
	}
	if n, err := hex.Decode(root[:], []byte(kept.Root)); err != nil || n != len(root) {
		return root, 0, fmt.Errorf("server: the root %q of a checkpoint is no hash", kept.Root)
	}
	return root, kept.Size, nil
}

// acted records the actor and the request of an act until it is in the audit log.
type acted struct {
	Actor     control.Actor `json:"actor"`
	RequestID string        `json:"request_id"`
}

// actorOf returns the actor of a context, encoded as acted.
func actorOf(ctx context.Context) string {
	var by acted
	by.Actor, by.RequestID = control.ActorOf(ctx)
	raw, _ := json.Marshal(by) // texts: it cannot fail
	return string(raw)
}

// recordErasure adds an act on a tombstone to the audit log.
func (s *Server) recordErasure(ctx context.Context, t j17.Tenant, a *erasure.Act) error {
	instance, env := instanceOf(t)
	rec := control.Record{
		Action: a.Action, Instance: instance, Environment: env, Target: a.Tombstone,
		Details: map[string]string{"key": a.Key},
	}
	if a.Action == erasure.ActionExecute {
		rec.Details["forced"] = strconv.FormatBool(a.Forced)
	}
	if a.By != "" {
		var by acted
		if err := json.Unmarshal([]byte(a.By), &by); err != nil {
			return fmt.Errorf("server: who has acted cannot be read: %w", err)
		}
		rec.Actor, rec.RequestID = by.Actor, by.RequestID
	}
	return s.registry.Audit.Add(ctx, rec)
}
