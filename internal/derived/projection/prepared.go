package projection

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// preparedSpace has the definitions that replace the present ones once their indexes are built, under their names. They
// are due for the next check of that. A definition that cannot take effect is no longer due, and has the reason.
const preparedSpace store.Space = "projections.prepared"

const (
	// preparedPause is the pause between checks whether indexes are built.
	preparedPause = time.Second
	preparedLease = time.Minute
	// preparedAtOnce is how many are checked at a time.
	preparedAtOnce = 4
	// maxPrepared is how many prepared definitions an environment may have.
	maxPrepared = 20
)

// prepared is a definition that is prepared.
type prepared struct {
	posting

	// Failed is the reason why it cannot take effect, "" if there is none.
	Failed string `json:"failed,omitempty"`

	rev uint64
	// definition is nil if it is not valid under the present spec.
	definition *definition
}

// preparedAt reads the prepared definitions in a moment, by name.
func preparedAt(sm store.Moment, in *inForce) (map[string]*prepared, error) {
	items, err := sm.Scan(preparedSpace, store.Range{}, maxPrepared)
	if err != nil || len(items) == 0 {
		return nil, err
	}
	all := make(map[string]*prepared, len(items))
	for i := range items {
		p, err := readPrepared(&items[i])
		if err != nil {
			return nil, err
		}
		if made, _ := spec.CompileProjection(p.Definition, in.compiled); made != nil &&
			in.compiled.Projections[p.Name] == nil {
			p.definition = &definition{Projection: made, posted: &p.posting}
		}
		all[p.Name] = p
	}
	return all, nil
}

func readPrepared(it *store.Item) (*prepared, error) {
	p, err := worker.Decode[prepared](preparedSpace, it.Key, it.Value)
	if err != nil {
		return nil, err
	}
	p.Name, p.rev = it.Key, it.Rev
	return &p, nil
}

// preparation returns the write that begins to prepare a definition.
func (s *Service) preparation(ctx context.Context, t j17.Tenant, next *posting) (store.Side, error) {
	items, err := s.store.Scan(ctx, t, preparedSpace, store.Range{}, maxPrepared)
	if err != nil {
		return store.Side{}, err
	}
	if len(items) == maxPrepared &&
		!slices.ContainsFunc(items, func(it store.Item) bool { return it.Key == next.Name }) {
		return store.Side{}, j17.Errorf(j17.CodeConflict, "%d projections of the environment are being prepared, which is the most at a time. Wait for one, or cancel one.", maxPrepared)
	}
	raw, err := json.Marshal(prepared{posting: *next})
	return store.Side{
		Op: store.Put, Space: preparedSpace, Key: next.Name, Value: raw,
		Due: s.clock.Now().Add(settleTime + preparedPause),
	}, err
}

// prepare begins to build the indexes of a prepared definition, waits for a limited time, and puts it into force if
// they are built by then. Otherwise that is left to the background.
func (s *Service) prepare(ctx context.Context, t j17.Tenant, next *posting) error {
	s.Adopted(ctx, t)
	s.Settled(ctx, t)
	it, err := s.store.Get(ctx, t, preparedSpace, next.Name)
	if errors.Is(err, store.ErrNotFound) {
		return nil // the background was faster
	}
	if err != nil {
		return store.UserError(err)
	}
	p, err := readPrepared(&it)
	if err != nil {
		return store.UserError(err)
	}
	ready, err := s.built(ctx, t, p)
	if err != nil || ready.Failed != "" || !ready.Done {
		return err // the background records the failure
	}
	err = s.take(ctx, t, p, store.Side{
		Op: store.Delete, Space: preparedSpace, Key: p.Name, Cond: store.IfRev, Rev: p.rev,
	})
	if noRoom(err) != "" {
		return nil // likewise
	}
	return err
}

// built returns how far the indexes of a prepared definition are built, or why it cannot take effect.
func (s *Service) built(ctx context.Context, t j17.Tenant, p *prepared) (ready part.Readiness, err error) {
	r, err := s.readings.now(ctx, t)
	if err != nil {
		return ready, err
	}
	made, found := spec.CompileProjection(p.Definition, r.in.compiled)
	switch {
	case made == nil:
		ready.Failed = "It is not valid under the spec that has been deployed meanwhile: " + firstError(found)
		return ready, nil
	case r.in.compiled.Projections[p.Name] != nil:
		ready.Failed = "A spec that declares a projection of that name has been deployed meanwhile."
		return ready, nil
	}
	if ready, err = s.ready(ctx, t, s.needs(r, &definition{Projection: made, posted: &p.posting})); err != nil {
		return ready, err
	}

	// A build that began after the preparation was canceled would never be removed.
	if _, err = s.store.Get(ctx, t, preparedSpace, p.Name); errors.Is(err, store.ErrNotFound) {
		s.Adopted(ctx, t)
		return part.Readiness{}, nil
	}
	return ready, store.UserError(err)
}

// ready returns how far indexes are built, or why they cannot be. It begins builds that have not begun.
func (s *Service) ready(
	ctx context.Context, t j17.Tenant, needs []*index.Definition,
) (all part.Readiness, err error) {
	all.Done = true
	for _, x := range needs {
		status, err := s.indexes.Ensure(ctx, t, x)
		if err != nil {
			return part.Readiness{}, store.UserError(err)
		}
		of := part.Readiness{Done: status.Ready}
		if b := status.Build; b != nil && !status.Ready {
			of.Built, of.Total = b.Done, b.Total
			if b.State == build.Failed {
				of.Failed = "The index could not be built: " + b.Error
			}
		}
		all.Add(of)
	}
	return all, nil
}

// take puts a prepared definition into force, with its indexes. finish is the write that ends its preparation.
func (s *Service) take(ctx context.Context, t j17.Tenant, p *prepared, finish store.Side) error {
	err := s.change(ctx, t, func(in *spec.Compiled, _ *postings) (map[string]*posting, []store.Side, error) {
		it, err := s.store.Get(ctx, t, preparedSpace, p.Name)
		if errors.Is(err, store.ErrNotFound) {
			return nil, nil, nil // it is done, or was canceled
		}
		if err != nil || it.Rev != finish.Rev {
			return nil, nil, err // another process continues it
		}
		if _, _, err := s.admit(&Posting{Definition: p.Definition}, in); err != nil {
			return nil, nil, err
		}
		return map[string]*posting{p.Name: &p.posting}, []store.Side{finish}, nil
	})
	if err == nil {
		s.Adopted(ctx, t)
	}
	return err
}

// carryOn checks whether a prepared definition can be put into force.
func (s *Service) carryOn(ctx context.Context, c *worker.Claim) error {
	p, err := readPrepared(&store.Item{Key: c.Key, Value: c.Value})
	if err != nil {
		return err
	}
	finish := c.Remove()
	p.rev = finish.Rev
	ready, err := s.built(ctx, c.Tenant, p)
	p.Failed = ready.Failed
	if err == nil && p.Failed == "" && ready.Done {
		err = s.take(ctx, c.Tenant, p, finish)
		p.Failed = noRoom(err)
	}
	switch {
	case p.Failed != "":
		raw, err := json.Marshal(p)
		if err != nil {
			return err
		}
		return s.store.Write(ctx, c.Tenant, []store.Side{c.Replace(raw, time.Time{})})
	case err == nil && !ready.Done:
		return s.store.Write(ctx, c.Tenant, []store.Side{c.Replace(c.Value, s.clock.Now().Add(preparedPause))})
	default:
		return err
	}
}

// noRoom returns the reason if a definition could not be put into force because too many are posted; otherwise "".
func noRoom(err error) string {
	if refused, ok := errors.AsType[*j17.Error](err); ok && refused.Code == j17.CodePayloadTooLarge {
		return "There was no room for it: " + refused.Message
	}
	return ""
}

// buildOf sums up the builds of indexes; nil if none is known.
func (v *survey) buildOf(needs []*index.Definition) *wire.Build {
	var sum *wire.Build
	for _, x := range needs {
		b := v.statuses[x.ID].Build
		if b == nil {
			continue
		}
		if sum == nil {
			sum = &wire.Build{Status: string(build.Done)}
		}
		sum.Done += b.Done
		sum.Total += b.Total
		switch {
		case b.State == build.Failed:
			sum.Status, sum.Error = string(build.Failed), b.Error
		case b.State == build.Running && sum.Status != string(build.Failed):
			sum.Status, sum.Error = string(build.Running), cmp.Or(sum.Error, b.Error)
		}
	}
	return sum
}

// preparing describes the progress of a prepared definition.
func (v *survey) preparing(p *prepared, s *Service) *wire.Build {
	b := &wire.Build{Status: string(build.Running)}
	if p.definition != nil {
		if of := v.buildOf(s.needs(v.reading, p.definition)); of != nil {
			b.Done, b.Total = of.Done, of.Total
			if of.Status == b.Status {
				b.Error = of.Error
			}
		}
	}
	if p.Failed != "" {
		b.Status, b.Error = string(build.Failed), p.Failed
	}
	b.Prepared = p.Definition
	return b
}

// nextSpecs has the readings under the prepared specs of environments.
type nextSpecs struct{ all sync.Map } // of *reading by j17.Tenant

// needs returns the indexes that the prepared spec of an environment needs.
func (n *nextSpecs) needs(s *Service, t j17.Tenant) []*index.Definition {
	found, _ := n.all.Load(t)
	r, _ := found.(*reading)
	if r == nil {
		return nil
	}
	var all []*index.Definition
	for _, d := range r.in.all {
		all = append(all, s.needs(r, d)...)
	}
	return all
}

// Ready begins to build the indexes that a spec to be deployed needs, waits for a limited time, and returns the
// progress.
func (s *Service) Ready(ctx context.Context, t j17.Tenant, after *decider.Decider) (part.Readiness, error) {
	r, err := s.readings.now(ctx, t)
	if err != nil {
		if j17.CodeOf(err) == j17.CodeNoSpec {
			return part.Readiness{Done: true}, nil // nothing is deployed, so there is nothing to wait for
		}
		return part.Readiness{}, err
	}
	s.specs.all.Store(t, &reading{t: t, m: r.m.Under(after), in: newInForce(after.Compiled, r.in.posted, nil)})
	needs := s.specs.needs(s, t)
	ready, err := s.ready(ctx, t, needs)
	if err == nil && !ready.Done && ready.Failed == "" {
		s.Settled(ctx, t)
		ready, err = s.ready(ctx, t, needs)
	}
	return ready, err
}

// Unready drops a spec that was prepared. Indexes that only it needs are removed.
func (s *Service) Unready(ctx context.Context, t j17.Tenant, _ bool) error {
	s.specs.all.Delete(t)
	s.Adopted(ctx, t)
	return nil
}
