package loading

import (
	"context"
	"iter"
	"strings"
	"testing"
	"testing/synctest"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
)

// endless is a store that has as many events of one aggregate as somebody reads.
type endless struct {
	Storage
	event j17.Event
}

// ReadFeed yields events.
func (e endless) ReadFeed(_ context.Context, _ j17.Tenant, _ j17.StreamID, limit int) iter.Seq2[*j17.Event, error] {
	return func(yield func(*j17.Event, error) bool) {
		for range limit {
			if !yield(&e.event, nil) {
				return
			}
		}
	}
}

// Rewrites counts none.
func (endless) Rewrites() uint64 { return 0 }

// TestExportsAreAccountedFor: what is read and made ahead while somebody takes his time with a piece is no more than
// the export says.
func TestExportsAreAccountedFor(t *testing.T) {
	for _, size := range []int{150, 300, 3000} {
		synctest.Test(t, func(t *testing.T) {
			at, key := j17.StreamID{Ms: 1_700_000_000_000}, noteKey(1)
			raw, layout := j17.AppendEvent(
				nil, at, key, "was_written", []byte(`"`+strings.Repeat("x", size)+`"`), []byte("{}"), 1_700_000_000,
			)
			e := j17.Event{
				StreamID: at, Key: key, Type: "was_written", Version: 1, Raw: raw, Data: layout.DataOf(raw),
				Metadata: layout.MetadataOf(raw),
			}
			x := &Export{
				Events: 1 << 20, UpTo: at, l: &Loader{Store: endless{event: e}},
				d:     &decider.Decider{Compiled: &spec.Compiled{}},
				write: func(dst []byte, e *Exported) []byte { return append(e.AppendLine(dst), '\n') },
			}
			before := heap()
			for _, err := range x.Pieces(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if took := heap() - before; took > x.Memory() {
					t.Errorf("of events of %d bytes %d bytes are held, and %d are accounted for", len(raw), took, x.Memory())
				}
				break
			}
		})
	}
}
