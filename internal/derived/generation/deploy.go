package generation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/core/upcast"
	"j17/internal/core/worker"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// deployed returns the deployed spec of a tenant, nil if there is none.
func (s *Service) deployed(t j17.Tenant) *spec.Compiled { return s.Engine.Spec(t) }

// Fill tries the stored events that a spec reads in another way than the deployed one. If any fails, the deployment is
// refused. By force it is tried when the spec is deployed (Adopt).
func (s *Service) Fill(
	ctx context.Context, t j17.Tenant, after *decider.Decider, asked part.Asked,
) (*part.Filling, error) {
	before := s.deployed(t)
	plan := changes(before, after)
	if asked.Force || plan.empty() {
		return nil, nil //nolint:nilnil // there is nothing to do
	}
	end, err := s.turn(ctx, t)
	if err != nil {
		return nil, err
	}
	p, err := s.begin(ctx, t, plan)
	if err != nil {
		end()
		return nil, store.UserError(err)
	}
	return &part.Filling{
		Hold: true,
		Follow: func(ctx context.Context) error {
			if err := p.follow(ctx); err != nil {
				return err
			}
			return p.refuse(ctx, asked.Failures)
		},
		Finish: func(ctx context.Context) (filled part.Filled, err error) {
			if err := p.finish(ctx); err != nil {
				return filled, err
			}
			if err := p.refuse(ctx, asked.Failures); err != nil {
				return filled, err
			}
			return part.Filled{Sides: p.sides(), Tried: plan.trial()}, nil
		},
		End: func(context.Context, error) { end() },
	}, nil
}

// maxListed is how many failed events an answer lists by default.
const maxListed = 100

// refused has the details of a deployment that is refused because of stored events.
type refused struct {
	Trial *wire.SpecTrial `json:"trial"`
}

// refuse returns the error of a deployment if any event has failed. It lists the first failures, as many as are asked
// for.
func (p *pass) refuse(ctx context.Context, most int) error {
	trial := p.plan.trial()
	if trial.Failed == 0 {
		return nil
	}
	if !p.held {
		if err := p.flush(ctx); err != nil {
			return err
		}
	}
	found, err := p.found(ctx, cmp.Or(most, maxListed))
	if err != nil {
		return err
	}
	_, env, _ := strings.Cut(string(p.t), "/")
	e := j17.Errorf(j17.CodeIncompatibleSpec, "Of %s in %s, %d cannot be read under this spec. Change what 'errors' lists, or deploy with \"force\": true: then these events fail wherever they are read.",
		j17.Count(trial.Events, "stored event"), j17.Environment(env).LongName(), trial.Failed)
	e.Errors, e.Details = found, refused{trial}
	return e
}

// found returns what has failed: kinds of events that the spec no longer reads, and events, at most a number of them,
// in the order of their positions.
func (p *pass) found(ctx context.Context, most int) ([]j17.FieldError, error) {
	all := diag.FieldErrors(p.plan.unread())
	events := []j17.FieldError{}
	for _, of := range p.plan.sorted() {
		for _, r := range of.sorted() {
			failed, err := p.s.failed(ctx, p.t, r, most)
			if err != nil {
				return nil, err
			}
			events = append(events, p.plan.fieldErrors(r, p.withPending(r, failed, most))...)
		}
	}
	slices.SortStableFunc(events, func(a, b j17.FieldError) int {
		return strings.Compare(a.StreamID, b.StreamID)
	})
	all = append(all, events...)
	return all[:min(len(all), most)], nil
}

// withPending adds the failures of a reading that are not stored yet.
func (p *pass) withPending(r *reading, failed []failure, most int) []failure {
	for i := range p.pending {
		var f failure
		if side := &p.pending[i]; len(failed) < most && strings.HasPrefix(side.Key, r.key()+"/") &&
			json.Unmarshal(side.Value, &f) == nil {
			failed = append(failed, f)
		}
	}
	return failed
}

// Try tries the stored events that a spec reads in another way than the deployed one, and shows some of them before and
// after.
func (s *Service) Try(ctx context.Context, t j17.Tenant, after *decider.Decider, asked part.Asked) (trial part.Trial,
	err error,
) {
	plan := changes(s.deployed(t), after)
	if plan.empty() {
		return trial, nil
	}
	end, err := s.turn(ctx, t)
	if err != nil {
		return trial, err
	}
	defer end()
	err = again(func() error {
		p, err := s.begin(ctx, t, changes(s.deployed(t), after))
		if err != nil {
			return err
		}
		if err := p.follow(ctx); err != nil {
			return err
		}
		trial = part.Trial{Tried: p.plan.trial()}
		if trial.Tried.Failed > 0 {
			if trial.Failures, err = p.found(ctx, cmp.Or(asked.Failures, maxListed)); err != nil {
				return err
			}
		}
		trial.Tried.Examples, err = p.examples(ctx)
		return err
	})
	return trial, err
}

// maxExample is how many bytes of data an example shows.
const maxExample = 2 << 10

// examples returns the first events of each kind before and after.
func (p *pass) examples(ctx context.Context) (all []wire.TrialExample, err error) {
	for _, of := range p.plan.sorted() {
		for _, r := range of.sorted() {
			for _, at := range r.first {
				for ev, err := range p.s.Store.ReadFeed(ctx, p.t, at.Previous(), 1) {
					if err != nil {
						return nil, err
					}
					if ev.StreamID != at || ev.Erased() {
						continue
					}
					x := wire.TrialExample{
						StreamID: at.String(), Key: ev.Key.String(), Type: r.Name, Generation: r.Generation,
						Before: shown(ev.Data),
					}
					if after, err := upcast.Of(of.typ, ev, work.New(ctx, work.Command)); err == nil {
						x.After = shown(after.Data)
					} else if upcast.Failure(err) == nil {
						return nil, err
					}
					all = append(all, x)
				}
			}
		}
	}
	return all, nil
}

// shown is data as examples show them.
func shown(data []byte) string {
	if len(data) <= maxExample {
		return string(data)
	}
	return strings.ToValidUTF8(string(data[:maxExample]), "") + "..."
}

// Ready tries stored events for a spec that is prepared, for a limited time, and returns the progress.
func (s *Service) Ready(ctx context.Context, t j17.Tenant, after *decider.Decider) (r part.Readiness, err error) {
	if changes(s.deployed(t), after).empty() {
		return part.Readiness{Done: true}, nil
	}
	end, err := s.turn(ctx, t)
	if err != nil {
		return r, err
	}
	defer end()
	machine := clock.System{}
	until := machine.Now().Add(readyTime)
	err = again(func() error {
		p, err := s.begin(ctx, t, changes(s.deployed(t), after))
		if err != nil {
			return err
		}
		for pages := 0; !r.Done && pages < s.ReadyPages && machine.Now().Before(until); pages++ {
			if r.Done, err = p.page(ctx); err != nil {
				return err
			}
		}
		if r.Built, r.Total = p.passed, max(p.extent.Events, p.passed); !r.Done {
			r.Kind = part.TrialKind
		}
		return p.flush(ctx)
	})
	return r, err
}

// Adopt tells readers of the deployed spec which stored events were tried. It has the others tried in the background,
// as far as they are read otherwise than they are stored: after a deployment by force, and after a restoration.
func (s *Service) Adopt(ctx context.Context, t j17.Tenant) error {
	d, fences, err := s.Engine.Deployed(t)
	if err != nil {
		return err
	}
	plan := whole(d)
	if plan.empty() {
		return nil
	}
	p := &pass{s: s, t: t, plan: plan}
	if p.extent, err = s.Store.Extent(ctx, t); err != nil {
		return store.UserError(err)
	}
	if err := p.load(ctx); err != nil {
		return store.UserError(err)
	}
	plan.tell()
	untried := func(r *record) bool { return r.at.IsZero() }
	if p.extent.Last.IsZero() || !slices.ContainsFunc(plan.records(), untried) {
		return nil
	}
	return store.UserError(s.Store.Write(ctx, t, []store.Side{
		{Op: store.Put, Space: waiting, Key: waitingKey, Value: []byte("{}"), Due: s.Clock.Now()},
	}, fences...))
}

// runPass tries events under the deployed spec for a while.
func (s *Service) runPass(ctx context.Context, c *worker.Claim) error {
	d, _, err := s.Engine.Deployed(c.Tenant)
	if err != nil && j17.CodeOf(err) != j17.CodeNoSpec {
		return err
	}
	end, err := s.turn(ctx, c.Tenant)
	if err != nil {
		return err
	}
	defer end()
	ended := d == nil || whole(d).empty()
	machine := clock.System{}
	until := machine.Now().Add(passTime)
	if !ended {
		p, err := s.begin(ctx, c.Tenant, whole(d))
		if err != nil {
			return err
		}
		for !ended && machine.Now().Before(until) && err == nil {
			began := machine.Now()
			if ended, err = p.page(ctx); err == nil && !ended {
				err = p.rest(ctx, machine.Now().Sub(began))
			}
		}
		if err == nil {
			err = p.flush(ctx)
		}
		if err != nil && !overtaken(err) {
			return err
		}
		if ended = ended && err == nil; ended {
			p.plan.tell()
		}
	}
	side := c.Remove()
	if !ended {
		side = c.Replace(c.Value, s.Clock.Now())
	}
	err = s.Store.Write(ctx, c.Tenant, []store.Side{side})
	if conflict, is := errors.AsType[*store.SideConflict](err); is && conflict.Space == waiting {
		return nil // another deployment has begun it again
	}
	return err
}
