package engine

import (
	"maps"
	"strconv"
	"sync"

	"j17/internal/core/part"
)

// maxOlder bounds how many types and generations are counted apart: each is a row of the metrics until the program
// ends.
const maxOlder = 1000

// sentIn is the event type, by its name, and the generation in which a client has sent an event.
type sentIn struct {
	eventType  string
	generation int
}

// older counts the events that clients have sent in an older generation than the newest one, in all environments. Those
// of types and generations beyond maxOlder are counted together in rest.
type older struct {
	mu   sync.Mutex
	in   map[sentIn]uint64
	rest uint64
}

func (o *older) add(in sentIn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.in[in]; !known && len(o.in) == maxOlder {
		o.rest++
		return
	}
	if o.in == nil {
		o.in = map[sentIn]uint64{}
	}
	o.in[in]++
}

// read returns the counts, with the type and the generation as labels.
func (o *older) read() (all []part.Labeled) {
	o.mu.Lock()
	counts, rest := maps.Clone(o.in), o.rest
	o.mu.Unlock()
	for in, n := range counts {
		all = append(all, part.Labeled{
			Labels: []string{in.eventType, strconv.Itoa(in.generation)}, Value: float64(n),
		})
	}
	if rest > 0 {
		all = append(all, part.Labeled{Labels: []string{"other", "other"}, Value: float64(rest)})
	}
	return all
}
