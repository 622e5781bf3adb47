package httpapi

import (
	"context"
	"errors"
	"runtime"
	"strings"

	"j17"
	"j17/internal/base/work"
)

// resources are what all requests at work share: memory and processors. Each part is shared out fairly among
// environments, and one that finds too little left waits for work.Wait and is then refused with j17.CodeBusy.
type resources struct {
	// bodies is the text of requests that arrives or is worked on.
	bodies *work.Pool
	// trees is what this text becomes when it is parsed.
	trees *work.Pool
	// replies is what is written to clients.
	replies *work.Pool
	// streams is for events of streams that are too large for a piece.
	streams *work.Pool
	// looks are for streams that read the store.
	looks *work.Pool
	// turns are for requests that keep a processor busy.
	turns *work.Pool
}

const (
	// unaccounted is how large a body or a reply is that is not accounted for: most are smaller, and connections are
	// bounded.
	unaccounted = 8 << 10
	// heavyBody is how large a body is that is parsed only when it is the request's turn.
	heavyBody = 256 << 10
	// treeFactor is what one value of a JSON text takes in memory while it is parsed and worked on, in bytes, measured
	// with arrays of digits and of small objects: 24 to 56 for what is kept, the rest for the parser's stack, which
	// grows.
	treeFactor = 96
	// maxValues is how many values a body may have. A body of 10 MiB has some 1.5 million where it is made of short
	// numbers.
	maxValues = 2 << 20
)

// The parts of the memory for requests at work.
const (
	maxBodies  = 64 << 20
	maxTrees   = 192 << 20
	maxReplies = 64 << 20
	maxStreams = 64 << 20
	// maxLooks is how many streams read the store at a time; each takes some 256 KiB for as long.
	maxLooks = 64
)

func newResources() *resources {
	turns := int64(max(runtime.NumCPU(), 2))
	return &resources{
		bodies: work.NewPool(maxBodies, maxBodies/2), trees: work.NewPool(maxTrees, maxTrees*3/4),
		replies: work.NewPool(maxReplies, maxReplies/2), turns: work.NewPool(turns, turns/2),
		streams: work.NewPool(maxStreams, maxStreams/2), looks: work.NewPool(maxLooks, maxLooks/2),
	}
}

// holding is what a request has of a part of the room.
type holding struct {
	pool *work.Pool
	n    int64
}

// callContext is the context of a request, with its call and its turn on a processor.
type callContext struct {
	context.Context
	call *call
}

// Value returns what the context has under a key.
func (c *callContext) Value(key any) any {
	switch key {
	case callKey{}:
		return c.call
	case work.SlotKey():
		return &c.call.slot
	default:
		return c.Context.Value(key)
	}
}

// take takes memory of a pool, for what is called what, until the end of the request or until release.
func (c *call) take(pool *work.Pool, n int64, what string) error {
	if n <= unaccounted {
		return nil
	}
	if c.tryTake(pool, n) {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.request.Context(), work.Wait)
	defer cancel()
	got, err := pool.Take(ctx, string(c.tenant), n)
	switch {
	case err == nil:
		c.held = append(c.held, holding{pool, got})
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return work.Busy("memory for " + what)
	default:
		return err
	}
}

// tryTake is take without waiting.
func (c *call) tryTake(pool *work.Pool, n int64) bool {
	got, ok := pool.TryTake(string(c.tenant), n)
	if ok {
		c.held = append(c.held, holding{pool, got})
	}
	return ok
}

// fitting reads a reply and takes the room for it. Where there is none at once, it drops the reply, which would take
// memory meanwhile, waits for the room, and reads the reply again.
func fitting[T any](c *call, read func() (T, error), size func(T) int) (none T, err error) {
	for waited := false; ; waited = true {
		v, err := read()
		c.slot.Give() // what follows takes as long as the client likes
		if err != nil {
			return none, err
		}
		n := int64(size(v))
		if waited || n <= unaccounted || c.tryTake(c.api.resources.replies, n) {
			return v, nil
		}
		v = none
		if err := c.take(c.api.resources.replies, n, "such a reply"); err != nil {
			return v, err
		}
	}
}

// release gives back all that the request has of the room.
func (c *call) release() {
	c.slot.Give()
	for _, h := range c.held {
		h.pool.Give(string(c.tenant), h.n)
	}
	c.held = c.held[:0]
}

// parsing waits until there is room for the tree of a JSON text, and a turn on a processor if it is large.
func (c *call) parsing(text string) error {
	if len(text) <= unaccounted {
		return nil
	}
	// Each value but the first follows a comma or is the first one in its container. Some of these characters may be
	// inside strings.
	values := 1 + strings.Count(text, ",") + strings.Count(text, "[") + strings.Count(text, "{")
	if values > maxValues {
		if values = countValues(text); values > maxValues {
			return j17.Errorf(j17.CodePayloadTooLarge, "The request body has more than %d values. Send it in parts.", maxValues)
		}
	}
	if err := c.take(c.api.resources.trees, int64(values)*treeFactor, "the parts of such a body"); err != nil {
		return err
	}
	if len(text) <= heavyBody {
		return nil
	}
	return c.slot.Take(c.request.Context())
}

// countValues returns how many values a JSON text has at most; exactly as many where it is valid and has no empty
// containers.
func countValues(text string) int {
	n := 1
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ',', '[', '{':
			n++
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		}
	}
	return n
}
