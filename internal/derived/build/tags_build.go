package build

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/work"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

const (
	// tagLease is how long a pass of a build may take, tagPassTime after how long it gives way to others.
	tagLease    = 20 * time.Second
	tagPassTime = 2 * time.Second
	// tagPageEvents, tagPageBytes and maxPageTags bound the events tagged in one commit, for which other writes wait.
	tagPageEvents = 256
	tagPageBytes  = 1 << 20
	maxPageTags   = 4000
	// tagPassEvents is the maximum number of events that a pass looks at.
	tagPassEvents = 50_000
	// tagMaxRest is the longest pause after a page.
	tagMaxRest = 20 * time.Millisecond
)

// errTagsBehind makes a build wait until the engine has the spec whose tags it writes.
var errTagsBehind = errors.New("the spec whose tags events are to have is not known here yet")

// runPass works on a build for a while. After a crash the uncommitted progress is repeated, which changes nothing.
func (s *Tagger) runPass(ctx context.Context, c *worker.Claim) error {
	st, err := readTagState(c.Value)
	if err != nil {
		return err
	}
	b := &tagBuild{s: s, claim: c, state: st}
	if err := b.open(); err != nil {
		return err
	}
	ended, err := b.run(ctx)
	if conflict, is := errors.AsType[*store.SideConflict](err); is && conflict.Space == tagSpace {
		return nil // another deployment has begun the build again, or another process has taken it over
	}
	if err != nil {
		return err
	}

	// The progress, or the end of the build.
	due := s.Builds.o.Clock.Now()
	if st.Reached = b.reached.String(); ended {
		*st, due = tagState{Names: st.Names}, time.Time{}
	}
	err = s.Store.Write(ctx, c.Tenant, []store.Side{c.Replace(st.encode(), due)})
	if _, is := errors.AsType[*store.SideConflict](err); is {
		return nil
	}
	if err == nil && ended {
		s.ended.Add(1)
		s.Builds.o.Logger.InfoContext(ctx, "all older events have the tags that the spec declares", slog.String("tenant", string(c.Tenant)), slog.Uint64("events", b.done))
	}
	return err
}

// tagBuild is one pass of a build.
type tagBuild struct {
	s       *Tagger
	claim   *worker.Claim
	state   *tagState
	reached j17.StreamID
	end     j17.StreamID
	done    uint64
}

// open decodes the progress of the build.
func (b *tagBuild) open() (err error) {
	if b.end, err = j17.ParseStreamID(b.state.End); err == nil && b.state.Reached != "" {
		b.reached, err = j17.ParseStreamID(b.state.Reached)
	}
	return err
}

// run tags events until all are done, or the pass ends.
func (b *tagBuild) run(ctx context.Context) (ended bool, err error) {
	d, fences, err := b.s.Engine.Deployed(b.claim.Tenant)
	if err != nil {
		return false, err
	}
	if !b.state.of(tagDefinitions(d)) {
		return false, errTagsBehind
	}
	fences = append(slices.Clone(fences), b.claim.Fence())

	until := b.s.Builds.o.Clock.Now().Add(tagPassTime)
	for looked := 0; looked < tagPassEvents && b.s.Builds.o.Clock.Now().Before(until); {
		// The tags that the next events should have.
		begin := clock.System{}.Now()
		var list []store.Retagged
		seen, bytes, many := 0, 0, 0
		budget := work.New(ctx, math.MaxInt64)
		for ev, err := range b.s.Store.ReadFeed(ctx, b.claim.Tenant, b.reached, tagPageEvents) {
			if err != nil {
				return false, err
			}
			if ev.StreamID.Compare(b.end) > 0 || bytes > tagPageBytes || many > maxPageTags {
				break
			}
			seen, bytes, b.reached = seen+1, bytes+len(ev.Raw), ev.StreamID
			if ev.Erased() || !slices.Contains(b.state.Types, ev.Key.Type) {
				continue
			}
			tags, err := d.DeclaredTags(ev, budget)
			if err != nil {
				return false, err
			}
			many += len(tags)
			list = append(list, store.Retagged{Key: ev.Key, Version: ev.Version, Tags: tags})
		}
		if seen == 0 {
			return true, nil
		}

		// They are written, and writers then get as much time as that took, at most tagMaxRest.
		if err := b.s.Store.Retag(ctx, b.claim.Tenant, list, fences...); err != nil {
			return false, err
		}
		b.state.Done += uint64(seen)
		looked, b.done = looked+seen, b.state.Done
		b.s.events.Add(uint64(seen))
		machine := clock.System{}
		if err := machine.Wait(ctx, machine.Now().Add(min(machine.Now().Sub(begin), tagMaxRest))); err != nil {
			return false, err
		}
	}
	return false, nil
}
