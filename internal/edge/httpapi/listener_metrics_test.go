package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/core/worker"
	"j17/internal/edge/httpapi"
	"j17/internal/follow/feed"
	"j17/internal/follow/listener"
	"j17/internal/follow/outbound"
	"j17/internal/storage/store"
)

// TestDeliveriesAreCounted tells three listeners of an event: one takes it, one refuses it for good, and one is gone.
func TestDeliveriesAreCounted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	var service *listener.Service
	var events *feed.Subscriptions
	f := newFixture(t, func(o *httpapi.Options) {
		st, ok := o.Store.(store.Store)
		if !ok {
			t.Fatal("the fixture's store is not whole")
		}
		kit := worker.New(o.Clock, o.Logger)
		events = feed.New(feed.Options{Store: st, Clock: o.Clock, Logger: o.Logger, Worker: kit})
		service = listener.New(ctx, listener.Options{
			Store: st, Feed: events, Worker: kit, Clock: o.Clock, Logger: o.Logger, Spec: o.Engine.Spec,
			Name:     func(j17.Tenant) (string, j17.Environment) { return "app", j17.Prod },
			Disabled: func(context.Context, j17.Tenant, string, string) error { return nil },
			Send: func(_ context.Context, m outbound.Message) (outbound.Answer, error) {
				switch {
				case strings.HasSuffix(m.URL, "/bad"):
					return outbound.Answer{Status: http.StatusInternalServerError},
						errors.New("the answer has the status 500")
				case strings.HasSuffix(m.URL, "/gone"):
					return outbound.Answer{Status: http.StatusGone}, errors.New("the answer has the status 410")
				}
				return outbound.Answer{Status: http.StatusNoContent}, nil
			},
		})
		o.Listeners, o.Metrics = service, events.Part().Metrics
	})
	tenant := j17.TenantOf(f.instance.ID, j17.Prod)
	var listeners []string
	for _, name := range []string{"good", "bad", "gone"} {
		listeners = append(listeners, fmt.Sprintf(`%q: {"url": "https://example.com/%s", "events": ["note.*"]}`, name, name))
	}
	f.Engine.Deploy(tenant, specOf(
		t, strings.TrimSuffix(strings.TrimSpace(apiSpec), "}")+`, "listeners": {`+strings.Join(listeners, ",")+`}}`,
	), nil)
	if err := service.Adopted(ctx, tenant); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- events.Run(ctx) }()
	go func() { ended <- service.Run(ctx) }()
	defer func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	}()

	f.write(t, "global/was_written", `{}`)
	for range 20 {
		if err := service.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.clock.Advance(10 * time.Second)
	}
	for name, want := range map[string]float64{
		"j17_deliveries_delivered_total": 1, "j17_deliveries_retried_total": 3, "j17_deliveries_failed_total": 2,
		"j17_listeners_disabled_total": 1,
		"j17_deliveries_in_flight":     0, "j17_subscription_handled_total": 3, "j17_subscription_gaps_total": 0,
		"j17_subscription_failed_total": 0,
	} {
		if got := f.metric(t, name); got != want {
			t.Errorf("%s is %v, not %v", name, got, want)
		}
	}
}
