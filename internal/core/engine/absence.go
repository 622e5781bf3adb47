package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"sync"

	"j17"
	"j17/internal/core/decider"
)

// absences are what conditions have not found, as long as one spec is deployed: events do not get tags later on that
// conditions are compared with, so what is not there will not come. Only those are kept that were much to look at, so
// that the next one looks at what is new.
type absences struct {
	mu    sync.Mutex
	known map[[32]byte]absence
	// uses counts how often one was kept or helped.
	uses uint64
}

// absence says that there is no event behind a position, up to another one. used is the number of its last use.
type absence struct {
	from, to j17.StreamID
	used     uint64
}

const (
	// mostAbsences bounds how many are kept: those used last.
	mostAbsences = 1024
	// muchToLook is how much work a condition is whose absence is kept.
	muchToLook = 1000 * workOfMatch
)

// absenceOf names a condition, wherever it begins.
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

// since returns from where on to look for what comes behind a position.
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

// use notes one as the last that was used.
func (a *absences) use(k [32]byte, found absence) {
	a.uses++
	found.used = a.uses
	a.known[k] = found
}

// keep notes that there was nothing behind a position, up to another one.
func (a *absences) keep(c *decider.Condition, from, to j17.StreamID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := absenceOf(c)
	found, ok := a.known[k]
	switch {
	case ok && found.from.Compare(from) <= 0 && found.to.Compare(from) >= 0: // they join
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

// leastUsed returns the one whose last use is the longest ago. To look at all of them is little beside what each was to
// look for.
func (a *absences) leastUsed() (least [32]byte) {
	first := uint64(math.MaxUint64)
	for k, found := range a.known {
		if found.used < first {
			least, first = k, found.used
		}
	}
	return least
}
