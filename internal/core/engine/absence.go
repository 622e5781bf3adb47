package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"sync"

	"j17"
	"j17/internal/core/decider"
)

// absences records, while one spec is deployed, between which positions conditions have found no event. Events do not
// get further tags that conditions are compared with, so none appears there later. Only absences that took much work to
// find are kept, so that the next search covers only newer events.
type absences struct {
	mu    sync.Mutex
	known map[[32]byte]absence
	// uses counts how often an absence was kept or used.
	uses uint64
}

// absence says that no event matches a condition after from, up to and including to. used is the number of its last
// use.
type absence struct {
	from, to j17.StreamID
	used     uint64
}

const (
	// mostAbsences bounds the absences that are kept: those used last.
	mostAbsences = 1024
	// muchToLook is the least work of a search, in units of package work, whose absence is kept.
	muchToLook = 1000 * workOfMatch
)

// absenceOf returns the key of a condition in absences.known, which does not depend on its After.
func absenceOf(c *decider.Condition) [32]byte {
	var b []byte
	add := func(text string) { b = append(binary.AppendUvarint(b, uint64(len(text))), text...) }
	for _, tag := range c.Tags {
		add(tag)
	}
	add("")
	for _, p := range c.Types {
		add(p.AggregateType)
		add(p.EventType)
	}
	return sha256.Sum256(b)
}

// since returns the position after which a search for a condition begins: its After, or a later one if nothing lies in
// between.
func (a *absences) since(c *decider.Condition) j17.StreamID {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) == 0 {
		return c.After
	}
	k := absenceOf(c)
	found, ok := a.known[k]
	if !ok || found.from.Compare(c.After) > 0 || found.to.Compare(c.After) <= 0 {
		return c.After
	}
	a.use(k, found)
	return found.to
}

// use stores an absence as the last one used. The caller holds mu.
func (a *absences) use(k [32]byte, found absence) {
	a.uses++
	found.used = a.uses
	a.known[k] = found
}

// keep records that no event matches a condition after from, up to and including to.
func (a *absences) keep(c *decider.Condition, from, to j17.StreamID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := absenceOf(c)
	found, ok := a.known[k]
	switch {
	case ok && found.from.Compare(from) <= 0 && found.to.Compare(from) >= 0: // the two overlap or touch
		from = found.from
		if found.to.Compare(to) > 0 {
			to = found.to
		}
	case a.known == nil:
		a.known = map[[32]byte]absence{}
	case !ok && len(a.known) >= mostAbsences:
		delete(a.known, a.leastUsed())
	}
	a.use(k, absence{from: from, to: to})
}

// leastUsed returns the key of the absence whose last use is the longest ago. Comparing all of them is little work
// beside one search. The caller holds mu.
func (a *absences) leastUsed() (least [32]byte) {
	first := uint64(math.MaxUint64)
	for k, found := range a.known {
		if found.used < first {
			least, first = k, found.used
		}
	}
	return least
}
