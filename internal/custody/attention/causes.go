package attention

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/base/work"
	"j17/internal/custody/backup"
	"j17/internal/custody/erasure"
	"j17/internal/derived/build"
	"j17/internal/follow/listener"
	"j17/internal/follow/saga"
	"j17/internal/follow/schedule"
)

// The kinds of things that wait for a person.
const (
	kindScheduled   = "scheduled"
	kindSaga        = "saga"
	kindDelivery    = "delivery"
	kindImplication = "implication"
	kindListener    = "listener"
	kindProjection  = "projection"
	kindPlace       = "place"
	kindSpec        = "spec"
	kindBackup      = "backup"
	kindErasure     = "erasure"
)

// titleOf returns the name of a kind for people.
func titleOf(kind string) string {
	return map[string]string{
		kindScheduled: "Scheduled events", kindSaga: "Sagas", kindDelivery: "Deliveries",
		kindImplication: "Implications", kindListener: "Listeners",
		kindProjection: "Projections", kindPlace: "Places", kindSpec: "Spec", kindBackup: "Backups",
		kindErasure: "Erasures",
	}[kind]
}

const (
	// maxSample is how many ids are shown for a cause, maxCauses how many causes for a kind.
	maxSample = 20
	maxCauses = 1000
	// farBehind is how many events a listener may be behind.
	farBehind = 1000
	// maxBackups is how many of the latest backups are read, maxTombstones how many tombstones of a status.
	maxBackups    = 50
	maxTombstones = 1000
	// lookWork bounds the work of reading one thing.
	lookWork = 256
)

// thing is a thing that waits for a person.
type thing struct {
	id, cause string
	at        time.Time
	actions   []string
}

// causes groups things of one kind.
type causes struct {
	kind string
	all  map[string]*wire.Attention
	more bool
}

// add adds a thing, if there is room for its cause.
func (c *causes) add(x thing) {
	g := c.all[x.cause]
	if g == nil {
		if len(c.all) == maxCauses {
			c.more = true
			return
		}
		g = &wire.Attention{
			Kind: c.kind, Cause: x.cause, Title: titleOf(c.kind), Actions: x.actions, Sample: []string{},
		}
		c.all[x.cause] = g
	}
	g.Count++
	if x.id != "" && len(g.Sample) < maxSample {
		g.Sample = append(g.Sample, x.id)
	}
	if at := seconds(x.at); at != nil {
		if g.Since == nil || at.Before(*g.Since) {
			g.Since = at
		}
		if g.Newest == nil || at.After(*g.Newest) {
			g.Newest = at
		}
	}
}

// Causes returns everything that waits for a person, by its cause, the latest first. Of each kind it reads up to
// maxLooked things.
func (s *Service) Causes(ctx context.Context, t j17.Tenant) ([]wire.Attention, error) {
	all := []wire.Attention{}
	for _, kind := range []string{
		kindScheduled, kindSaga, kindDelivery, kindImplication, kindListener, kindProjection, kindPlace, kindSpec,
		kindBackup, kindErasure,
	} {
		found := causes{kind: kind, all: map[string]*wire.Attention{}}
		more, err := s.each(ctx, t, kind, func(x thing) bool { found.add(x); return true })
		if j17.CodeOf(err) == j17.CodeCorruption {
			// Damage must not hide the other kinds: they are returned, with this one as unreadable.
			found.add(thing{cause: causeOf("damage", kind), actions: []string{"open"}})
			more, err = true, nil
		}
		if err != nil {
			return nil, err
		}
		for _, g := range found.all {
			g.More = more || found.more
			all = append(all, *g)
		}
	}
	slices.SortFunc(all, func(a, b wire.Attention) int {
		return cmp.Or(
			timeOf(b.Newest).Compare(timeOf(a.Newest)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Cause, b.Cause),
		)
	})
	return all, nil
}

// timeOf is a time that may be unknown.
func timeOf(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}

// each calls do with the things of a kind, the newest first, until it returns false. more reports that there are others
// that were not read.
func (s *Service) each(ctx context.Context, t j17.Tenant, kind string, do func(thing) bool) (more bool, err error) {
	looked := 0
	pass := func(x thing) bool {
		if looked++; looked > s.looked {
			more = true
			return false
		}
		return do(x)
	}
	b := work.New(ctx, int64(s.looked+1)*lookWork*2)
	switch kind {
	case kindScheduled:
		err = s.o.Schedule.EachGivenUp(ctx, t, b, func(g *schedule.GivenUp) bool { return pass(scheduledThing(g)) })
	case kindSaga:
		err = s.o.Sagas.EachStuck(ctx, t, b, func(g *saga.Saga) bool { return pass(sagaThing(g)) })
	case kindDelivery:
		err = s.o.Listeners.EachFailed(ctx, t, b, func(d *listener.Delivery) bool { return pass(deliveryThing(d)) })
	default:
		var all []thing
		all, err = s.few(ctx, t, kind)
		for _, x := range all {
			if !pass(x) {
				break
			}
		}
	}
	if j17.CodeOf(err) == j17.CodeWorkLimit {
		return true, nil
	}
	return more, err
}

// causeOf joins code, place and type. None of them is event data: all are in the spec, or in the program.
func causeOf(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " ")
}

// unknownCode is the code of work that was given up before codes were stored.
const unknownCode = "unknown"

func retriable() []string { return []string{"retry", "open"} }

func scheduledThing(g *schedule.GivenUp) thing {
	return thing{
		g.ID, causeOf(cmp.Or(string(g.Code), unknownCode), g.AggregateType+"."+g.Event), g.At,
		[]string{"retry", "delete", "open"},
	}
}

func sagaThing(g *saga.Saga) thing {
	x := thing{id: g.ID, actions: retriable()}
	if n := len(g.Timeline); n > 0 {
		x.at = time.Unix(g.Timeline[n-1].At, 0)
	}
	code, step := string(g.Status), g.CurrentStep()
	if e := g.Error; e != nil {
		code, step = cmp.Or(e.Requirement, e.Code, unknownCode), cmp.Or(e.Step, step)
	}
	key, _ := j17.ParseKey(g.Trigger.Key)
	place := g.Type
	if step != "" {
		place += "." + step
	}
	x.cause = causeOf(code, place, key.Type)
	return x
}

func deliveryThing(d *listener.Delivery) thing {
	code := "no_answer"
	if d.LastStatus != 0 {
		code = strconv.Itoa(d.LastStatus)
	}
	key, _ := j17.ParseKey(d.Key)
	return thing{d.ID, causeOf(code, d.Listener, key.Type), d.Created, retriable()}
}

// few returns the things of a kind that has only few.
func (s *Service) few(ctx context.Context, t j17.Tenant, kind string) ([]thing, error) {
	switch kind {
	case kindImplication:
		return s.implications(ctx, t)
	case kindListener:
		return s.standing(ctx, t)
	case kindProjection:
		return s.projectionFaults(ctx, t)
	case kindPlace:
		return s.placeFaults(ctx, t)
	case kindSpec:
		return s.specFaults(ctx, t)
	case kindBackup:
		return s.backupFaults(ctx, t)
	case kindErasure:
		return s.erasureFaults(ctx, t)
	default:
		return nil, nil
	}
}

func (s *Service) implications(ctx context.Context, t j17.Tenant) (all []thing, err error) {
	rejected, _, err := s.o.Engine.ImplicationFailures(ctx, t, 0, s.looked)
	for i := range rejected {
		f := &rejected[i]
		key, _ := j17.ParseKey(f.Trigger.Key)
		at := cmp.Or(f.Implication, f.Pointer)
		all = append(all, thing{
			f.Trigger.Key, causeOf(string(f.Code), string(at), key.Type+"."+f.Trigger.EventType), time.Unix(f.At, 0),
			[]string{"open"},
		})
	}
	return all, err
}

// standing are listeners that are not active, or far behind.
func (s *Service) standing(ctx context.Context, t j17.Tenant) (all []thing, err error) {
	listeners, err := s.o.Listeners.List(ctx, t, 0, maxCauses)
	for i := range listeners {
		l := &listeners[i]
		x := thing{id: l.Name, actions: []string{"open"}}
		switch {
		case l.Status != listener.Active:
			x.cause, x.actions = causeOf(string(l.Status), l.Name), []string{"resume", "open"}
		case l.Lag > farBehind:
			x.cause = causeOf("behind", l.Name)
		default:
			continue
		}
		all = append(all, x)
	}
	return all, err
}

func (s *Service) projectionFaults(ctx context.Context, t j17.Tenant) (all []thing, err error) {
	projections, err := s.o.Projections.DescribeAll(ctx, t)
	for i := range projections {
		p := &projections[i]
		for code, is := range map[string]bool{
			"invalid": p.Status == "invalid", "build_failed": p.Build != nil && p.Build.Status == string(build.Failed),
		} {
			if is {
				all = append(all, thing{id: p.Name, cause: causeOf(code, p.Name), actions: []string{"open"}})
			}
		}
	}
	return append(all, s.damage(t, "projection", "index.")...), err
}

func (s *Service) placeFaults(ctx context.Context, t j17.Tenant) (all []thing, err error) {
	if s.o.Engine.Spec(t) == nil {
		return nil, nil
	}
	described, err := s.o.Places.Describe(ctx, t)
	for _, p := range described.Places {
		if b := p.Build; b != nil && b.Status == string(build.Failed) {
			all = append(all, thing{id: p.Type, cause: causeOf("build_failed", p.Type), actions: []string{"open"}})
		}
	}
	return append(all, s.damage(t, "place")...), err
}

// damage returns the findings of the search for damage among the items of some spaces.
func (s *Service) damage(t j17.Tenant, spaces ...string) (all []thing) {
	for _, f := range s.o.Scrub.Status().Damaged {
		// The text comes from the search, or from the store.
		of, isItem := strings.CutPrefix(strings.TrimPrefix(f.Where, "the "), "side item ")
		name, _, _ := strings.Cut(of, "/")
		if f.Tenant == t && isItem &&
			slices.ContainsFunc(spaces, func(space string) bool { return strings.HasPrefix(name, space) }) {
			all = append(all, thing{cause: causeOf("damage", name), at: f.At, actions: []string{"open"}})
		}
	}
	return all
}

func (s *Service) specFaults(ctx context.Context, t j17.Tenant) ([]thing, error) {
	next, err := s.o.Deploy.Prepared(ctx, t)
	switch {
	case j17.CodeOf(err) == j17.CodeNotFound:
		return nil, nil
	case err != nil || next.Failed == "":
		return nil, err
	}
	return []thing{
		{next.Hash[:12], causeOf("prepare_failed", next.Hash[:12]), next.RequestedAt, []string{"delete", "open"}},
	}, nil
}

func (s *Service) backupFaults(ctx context.Context, t j17.Tenant) (all []thing, err error) {
	backups, err := s.o.Backups.List(ctx, t, 0, maxBackups)
	if err != nil {
		return nil, err
	}
	instance, _ := instanceOf(t)
	set, err := s.o.Backups.Settings(ctx, instance)
	if err != nil {
		return nil, err
	}

	// Backups that have failed since the last completed one.
	var completed, oldest time.Time
	for i := range backups {
		b := &backups[i]
		if oldest = b.CreatedAt; b.Status == backup.Completed {
			completed = b.CompletedAt
			break
		}
		if b.Status == backup.Failed {
			all = append(all, thing{b.ID, causeOf("failed", string(b.Kind)), b.CreatedAt, []string{"delete", "open"}})
		}
	}

	// The last one is too old.
	if completed.IsZero() {
		completed = oldest
	}
	late := completed.Add(2 * time.Duration(set.EveryHours) * time.Hour)
	if set.EveryHours > 0 && !completed.IsZero() && s.o.Clock.Now().After(late) {
		all = append(all, thing{cause: "late", at: late, actions: []string{"open"}})
	}
	return all, nil
}

func (s *Service) erasureFaults(ctx context.Context, t j17.Tenant) (all []thing, err error) {
	now := s.o.Clock.Now()
	for _, status := range []erasure.Status{erasure.Pending, erasure.Executing} {
		page, _, err := s.o.Erasures.List(ctx, t, status, 0, maxTombstones)
		if err != nil {
			return nil, err
		}
		for i := range page {
			of := &page[i]
			key, _ := j17.ParseKey(of.Key)
			switch {
			case status == erasure.Pending && !of.ExecutableAt.After(now):
				all = append(all, thing{of.ID, causeOf("due", key.Type), of.ExecutableAt, []string{"execute", "open"}})
			case status == erasure.Executing && of.Error != nil:
				phase := ""
				if of.Progress != nil {
					phase = of.Progress.Phase
				}
				all = append(all, thing{
					of.ID, causeOf("failed", phase, key.Type), of.ExecutableAt, []string{"execute", "open"},
				})
			}
		}
	}
	return all, nil
}
