package feed_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/follow/feed"
)

// TestAFilterLooksAtAsMuchAsItLikes has a filter that answers for a few events at a time, fails, panics, does not
// return, or answers for none: each event that it wants is handed out once, in order, and all are passed.
func TestAFilterLooksAtAsMuchAsItLikes(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.append(shop, 3000)
		var g heard
		calls := 0
		s := h.set(feed.Kind{
			Do: g.take,
			Filter: func(ctx context.Context, _ j17.Tenant, _ string, events []*j17.Event) (wanted []bool, err error) {
				calls++
				switch calls {
				case 2:
					return nil, errors.New("not now")
				case 3:
					panic("poison")
				case 4:
					<-ctx.Done() // It takes longer than the lease.
					return nil, context.Cause(ctx)
				case 5:
					return nil, nil
				case 6:
					return nil, feed.Later{For: time.Hour}
				}
				for _, ev := range events[:min(len(events), 100*calls)] {
					wanted = append(wanted, strings.HasSuffix(string(ev.Data), "7"))
				}
				return wanted, nil
			},
		})
		stop := h.run(s)
		h.subscribe(s, shop, "x", feed.Beginning())
		pass(t, 10*time.Minute)
		if n := len(g.of(shop, "x")); calls != 6 || n != 10 {
			t.Errorf("%d events after %d calls", n, calls)
		}
		if status := h.status(s, "x"); status.Count != 100 || status.Failures != 4 ||
			!strings.Contains(status.Error, "answers for 0 events of") {
			t.Errorf("%+v", status)
		}
		pass(t, 2*time.Hour)
		stop()
		var want []string
		for _, data := range h.all(shop) {
			if strings.HasSuffix(data, "7") {
				want = append(want, data)
			}
		}
		same(t, "what was wanted", want, g.of(shop, "x"))
		if status := h.status(s, "x"); status.Lag != 0 || status.Count != 3000 || status.Failures != 0 {
			t.Errorf("%+v", status)
		}
	})
}

// nothing is a filter that lets no event through.
func nothing(_ context.Context, _ j17.Tenant, _ string, events []*j17.Event) ([]bool, error) {
	return make([]bool, len(events)), nil
}
