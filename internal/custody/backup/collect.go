package backup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"j17"
	"j17/internal/custody/backup/repository"
)

// collector removes the parts at places that no backup needs. Backups hold the gate of their place meanwhile.
type collector struct {
	places *places

	mu sync.Mutex
	// loose are the places that may have parts which no backup needs, by their names; wake is signalled when there are
	// some.
	loose map[string]loosePlace
	wake  chan struct{}
	// gates, by the names of places, exclude the removal of parts at a place while backups are made there.
	gates map[string]*sync.RWMutex
}

func newCollector(p *places) *collector {
	return &collector{
		places: p, loose: map[string]loosePlace{}, wake: make(chan struct{}, 1), gates: map[string]*sync.RWMutex{},
	}
}

// resume signals that parts may be removed, if any place may have some that no backup needs.
func (c *collector) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signal()
}

// gate returns the lock between backups at a place and the removal of parts there.
func (c *collector) gate(p place) *sync.RWMutex {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.gates[p.name()]
	if g == nil {
		g = new(sync.RWMutex)
		c.gates[p.name()] = g
	}
	return g
}

// loosen notes that the place of a backup may have parts which no backup needs.
func (c *collector) loosen(b *Backup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.loose[b.Place.name()]
	if !ok {
		p = loosePlace{b.Place, instanceOf(b.Scope), map[j17.Tenant]bool{}}
		c.loose[b.Place.name()] = p
	}
	if b.Left {
		p.tenants[b.Scope] = true // erasures may have been noted there meanwhile
	}
	for _, m := range b.Moments {
		p.tenants[m.Tenant] = true
	}
	c.signal()
}

// signal wakes the removal of parts, if any place may have some that no backup needs. The caller holds mu.
func (c *collector) signal() {
	if len(c.loose) == 0 {
		return
	}
	select {
	case c.wake <- struct{}{}:
	default: // signalled already
	}
}

// collectAll removes parts that no backup needs. If a backup is in progress, its end starts this again.
func (c *collector) collectAll(ctx context.Context) error {
	c.mu.Lock()
	places := c.loose
	c.loose = map[string]loosePlace{}
	c.mu.Unlock()
	var errs []error
	for name, p := range places {
		gate := c.gate(p.place)
		free := gate.TryLock()
		if free {
			err := c.collectAt(ctx, p)
			gate.Unlock()
			if err == nil {
				continue
			}
			errs = append(errs, err)
		}
		c.mu.Lock()
		if more, ok := c.loose[name]; ok {
			maps.Copy(p.tenants, more.tenants)
		}
		c.loose[name] = p
		c.mu.Unlock()
	}
	return errors.Join(errs...)
}

// errCollectTime is why the removal of parts at a place is interrupted.
var errCollectTime = errors.New("the removal of parts that no backup needs took too long at one place; it goes on later")

func (c *collector) collectAt(ctx context.Context, p loosePlace) error {
	set, _, err := c.places.settings.load(ctx, p.instance)
	if err != nil {
		return err
	}
	repo, err := c.places.open(p.place, &set)
	if err != nil {
		return err
	}
	limited, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	go func() {
		if c.places.clock.Wait(limited, c.places.clock.Now().Add(collectTime)) == nil {
			cut(errCollectTime)
		}
	}()
	_, _, err = repo.Collect(limited)
	if err != nil && errors.Is(context.Cause(limited), errCollectTime) {
		return errCollectTime
	}
	if errors.Is(err, repository.ErrBusy) {
		return fmt.Errorf("parts that no backup needs stay in %s for now: another server makes a backup there", p.place)
	}
	if err != nil {
		return err
	}
	return dropErasures(ctx, repo, slices.Collect(maps.Keys(p.tenants)))
}

// dropErasures removes the notes about erasures that no backup at a place needs any longer.
func dropErasures(ctx context.Context, repo *repository.Repository, tenants []j17.Tenant) error {
	manifests, damaged, err := repo.Manifests(ctx)
	if err != nil || len(damaged) > 0 {
		return err // the contents of damaged ones are unknown
	}
	for _, t := range tenants {
		upTo := j17.StreamID{Ms: math.MaxInt64}
		for _, m := range manifests {
			for _, of := range m.Tenants {
				if of.Tenant == t && of.Moment.Compare(upTo) < 0 {
					upTo = of.Moment
				}
			}
		}
		if err := repo.DropErasures(ctx, t, upTo); err != nil {
			return err
		}
	}
	return nil
}
