package backup

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/custody/backup/repository"
	"j17/internal/storage/store"
)

// erasedSpace holds erasures that have to be noted beside backups that still have the erased events. Keys are the
// positions, the tombstones and the first streams.
const erasedSpace store.Space = "backup.erased"

// erased is an item of erasedSpace.
type erased struct {
	Keys []string  `json:"keys"`
	At   time.Time `json:"at"`
	// Done are the names of places where it is noted already, while another one does not answer.
	Done []string `json:"done,omitempty"`
	// Begun is the progress at other places, by their names.
	Begun map[string]begun `json:"begun,omitempty"`
}

// begun is the progress of noting an erasure at a place.
type begun struct {
	// Files is how many files are stored; the next one begins with this version of a stream. The boundaries are those
	// of the program that has stored them: another version may have others.
	Files   int    `json:"files"`
	Key     string `json:"key,omitempty"`
	Version uint64 `json:"version,omitempty"`
	// Seal names the recipients of the files: if these change, all are stored again.
	Seal string `json:"seal"`
}

// The limits of noting.
const (
	noteLease = 10 * time.Minute
	// noteTurn is how long one turn may take. The rest is left for the next one.
	noteTurn    = noteLease / 2
	longestNote = 10 * time.Minute
	// noteEvents is how many events are noted in one file, noteBytes the limit of their bytes.
	noteEvents = 1000
	noteBytes  = 4 << 20
)

// Erase stores that streams were erased, to be noted beside the backups so that a restore erases them again. When it
// returns, that is certain to happen, but it may take until an object store answers.
func (s *Service) Erase(ctx context.Context, t j17.Tenant, e part.Erased) error {
	item := erased{At: e.At.UTC()}
	for _, key := range e.Keys {
		item.Keys = append(item.Keys, key.String())
	}
	raw, err := json.Marshal(item)
	if err != nil {
		return err
	}
	name := e.Note.String() + "/" + e.TombstoneID + "/" + item.Keys[0]
	side := store.Side{Op: store.Put, Space: erasedSpace, Key: name, Value: raw, Due: s.Clock.Now()}
	return s.Store.WriteFreeing(ctx, t, []store.Side{side})
}

// notes is the work of noting erasures. It is never given up.
func (s *Service) notes() worker.Work {
	return worker.Work{
		Name: "backup_erasures", Store: s.Store, Space: erasedSpace, Lease: noteLease, AtOnce: looksAtOnce, Do: s.note,
		Freeing: true,
		Retry:   worker.Backoff{Longest: longestNote},
	}
}

// note notes an erasure wherever a backup has the erased events.
func (s *Service) note(ctx context.Context, c *worker.Claim) error {
	var item erased
	if err := json.Unmarshal(c.Value, &item); err != nil {
		return &store.CorruptionError{Where: string(erasedSpace) + "/" + c.Key, Err: err}
	}
	name, _, _ := strings.Cut(c.Key, "/")
	at, err := j17.ParseStreamID(name)
	if err != nil {
		return &store.CorruptionError{Where: string(erasedSpace) + "/" + c.Key, Err: err}
	}
	places, err := s.placesOf(ctx, c.Tenant)
	if err != nil {
		return err
	}

	// A place that does not answer holds up no other one. One that takes up the whole turn comes last at the next
	// attempt.
	turn, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	until := s.Clock.Now().Add(noteTurn)
	go func() {
		if s.Clock.Wait(turn, until) == nil {
			cut(errNoteTurn)
		}
	}()
	var errs []error
	before := item.stored()
	for i := range places {
		p := places[(i+c.Attempt-1)%len(places)]
		if slices.Contains(item.Done, p.name()) {
			continue
		}
		if err := s.noteAt(turn, p, c.Tenant, at, &item); err != nil {
			errs = append(errs, err)
			continue
		}
		item.Done = append(item.Done, p.name())
		delete(item.Begun, p.name())
	}
	if len(errs) == 0 {
		s.counts.noted.Add(1)
		return s.Store.WriteFreeing(ctx, c.Tenant, []store.Side{c.Remove()})
	}

	// Store the progress; go on at once if the turn was too short but made progress.
	if c.Value, err = json.Marshal(item); err != nil {
		return err
	}
	if errors.Is(context.Cause(turn), errNoteTurn) && item.stored() > before && ctx.Err() == nil {
		return s.Store.WriteFreeing(ctx, c.Tenant, []store.Side{c.Replace(c.Value, s.Clock.Now())})
	}
	return errors.Join(errs...)
}

// errNoteTurn is why a turn of noting ends.
var errNoteTurn = errors.New("there is more to note than one turn has time for; it goes on later")

// stored counts the files that have been stored for an erasure, at all places.
func (e *erased) stored() (files int) {
	for _, b := range e.Begun {
		files += b.Files
	}
	return files
}

// placesOf lists the places that may have backups with a tenant: those of its own backups and of the server's, finished
// or in progress, and those of the settings.
func (s *Service) placesOf(ctx context.Context, t j17.Tenant) ([]loosePlace, error) {
	var all []loosePlace
	add := func(p loosePlace) {
		if !slices.ContainsFunc(all, func(q loosePlace) bool { return p.same(q.place) }) {
			all = append(all, p)
		}
	}
	for _, scope := range []j17.Tenant{t, j17.System} {
		if to := s.underWay(scope); to != nil { // first: one that ends meanwhile is listed below
			add(loosePlace{place: to.place, instance: instanceOf(scope)})
		}
		set, _, err := s.settings.load(ctx, instanceOf(scope))
		if err != nil {
			return nil, err
		}
		add(loosePlace{place: s.places.of(&set), instance: instanceOf(scope)})
		err = s.rows.each(ctx, scope, func(b *Backup) bool {
			if b.Status == Completed || b.Left {
				add(loosePlace{place: b.Place, instance: instanceOf(scope)})
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// underWay returns the destination of a scope's backup in progress, nil if there is none.
func (s *Service) underWay(scope j17.Tenant) *destination {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.active[scope]; j != nil {
		return j.to
	}
	return nil
}

// noteAt notes an erasure at a place, if there are backups with the erased events, or one is in progress.
func (s *Service) noteAt(ctx context.Context, p loosePlace, t j17.Tenant, at j17.StreamID, item *erased) error {
	set, _, err := s.settings.load(ctx, p.instance)
	if err != nil {
		return err
	}
	repo, err := s.places.open(p.place, &set)
	if err != nil {
		return err
	}

	// The backups that have the events, and the recipients that can read them. What a backup in clear shows anyway
	// needs no encryption. A backup in progress may have them too; it is checked first, since its manifest exists once
	// it is no longer in progress.
	var recipients []string
	older, inClear := false, false
	for _, scope := range []j17.Tenant{t, j17.System} {
		if to := s.underWay(scope); to != nil && to.place.same(p.place) {
			older, inClear = true, inClear || !to.seal.Encrypted()
			recipients = append(recipients, to.seal.Recipients()...)
		}
	}
	manifests, damaged, err := repo.Manifests(ctx)
	if err != nil {
		return err
	}
	if len(damaged) > 0 { // their contents are unknown here, but may be known to a newer version
		scope := t
		if p.instance == "" {
			scope = j17.System
		}
		seal, err := s.sealOf(ctx, scope, &set)
		if err != nil {
			return err
		}
		older, inClear = true, inClear || !seal.Encrypted()
		recipients = append(recipients, seal.Recipients()...)
	}
	for _, m := range manifests {
		for _, of := range m.Tenants {
			if of.Tenant == t && of.Moment.Compare(at) < 0 {
				older, inClear = true, inClear || len(m.Recipients) == 0
				recipients = append(recipients, m.Recipients...)
			}
		}
	}
	if !older {
		return nil
	}
	var seal repository.Seal
	if !inClear {
		slices.Sort(recipients)
		key, err := s.Key.Derived(forNames)
		if err != nil {
			return err
		}
		if seal, err = repository.NewSeal(slices.Compact(recipients), key); err != nil {
			return err
		}
	}

	// Continue, unless the recipients have changed: all must be able to read all files.
	of := item.Begun[p.name()]
	if by := strings.Join(seal.Recipients(), " "); of.Seal != by || !slices.Contains(item.Keys, of.Key) {
		of = begun{Seal: by}
	}
	if item.Begun == nil {
		item.Begun = map[string]begun{}
	}
	return s.putErasure(ctx, repo, t, at, item, seal, of, func(next begun) { item.Begun[p.name()] = next })
}

// putErasure writes the replacements of erased events, from where it stopped, and reports its progress to tell.
func (s *Service) putErasure(
	ctx context.Context, repo *repository.Repository, t j17.Tenant, at j17.StreamID, item *erased, seal repository.Seal,
	of begun, tell func(begun),
) error {
	e := repository.Erasure{Tenant: t, Note: store.Note{Position: at}, At: item.At, Number: of.Files}
	size := 0
	put := func() error {
		if len(e.Events) == 0 && len(e.Note.Streams) == 0 {
			return nil
		}
		err := repo.PutErasure(ctx, e, seal)
		e.Number++
		e.Events, e.Note.Streams, size = nil, nil, 0
		return err
	}

	// Each stream, with the events that were erased in it. A stream that continues in the next file is named there
	// again. A stream without events is gone, with its environment.
	for _, name := range item.Keys[max(slices.Index(item.Keys, of.Key), 0):] {
		key, ok := j17.ParseKey(name)
		if !ok {
			return &store.CorruptionError{Where: string(erasedSpace) + "/" + at.String(), Err: errKey}
		}
		from := uint64(1)
		if name == of.Key {
			from = max(of.Version, 1)
		}
		heads, err := s.Store.Heads(ctx, t, []j17.Key{key})
		if err != nil {
			return err
		}
		stream := store.Generation{Key: key, Number: heads[0].Generation}
		named := false
		for ev, err := range s.Store.ReadStream(ctx, t, key, from, 0) {
			if err != nil {
				return err
			}
			if !ev.Erased() {
				continue
			}
			if len(e.Events) == noteEvents || size+len(ev.Raw) > noteBytes {
				if err := put(); err != nil {
					return err
				}
				named = false
				tell(begun{Files: e.Number, Seal: of.Seal, Key: name, Version: ev.Version})
			}
			if !named {
				e.Note.Streams, named = append(e.Note.Streams, stream), true
			}
			e.Events = append(e.Events, ev.Clone())
			size += len(ev.Raw)
		}
	}
	return put()
}

// errKey is the error of an invalid key.
var errKey = errors.New("a key is damaged")
