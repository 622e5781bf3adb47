package listener

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
	"j17/internal/lang/spec"
)

// Trigger sends a listener a made-up event of the first of its patterns, once, and stores nothing. It is a *j17.Error
// of CodeNotFound if there is no such listener. The listener need not be active.
func (s *Service) Trigger(ctx context.Context, t j17.Tenant, name string) (Delivery, Try, error) {
	l, err := s.known(ctx, t, name)
	if err != nil {
		return Delivery{}, Try{}, err
	}
	ev, err := s.sample(s.o.Spec(t), l.definition.Events)
	if err != nil {
		return Delivery{}, Try{}, err
	}
	now := s.o.Clock.Now()
	d := s.newDelivery(l, "", ev, now)
	m := d.message(l.env, ev)
	m.URL, m.Keys = l.definition.URLs[l.env], l.state.keys(now)
	maps.Copy(m.Headers, l.definition.Headers)
	stopwatch := clock.System{}
	began := stopwatch.Now()
	answer, err := s.o.Send(ctx, m)
	secrets := secretsOf(&l.state, l.definition)
	o := judge(answer, err, stopwatch.Now().Sub(began), ctx.Err() != nil, secrets)
	d.Attempts, d.LastStatus, d.LastError, d.Status = 1, o.try.Status, o.try.Error, Failed
	if o.delivered {
		d.Status = Delivered
	}
	return d.shown(), Try{
		At: now, Status: o.try.Status, Millis: o.try.Millis, Error: o.try.Error, Request: excerpt(m.Body, secrets...),
		Response: o.try.Response,
	}, nil
}

// sample makes up an event that patterns select.
func (s *Service) sample(c *spec.Compiled, patterns []spec.Pattern) (*j17.Event, error) {
	ex, ok := c.ExampleFor(patterns)
	if !ok {
		return nil, j17.Errorf(j17.CodeNotFound, "No event type that the listener selects has a schema for which a sample could be made up.")
	}
	if ex.ID != ident.Global {
		ex.ID = s.mint.UUIDv4() // an ID that no aggregate has
	}
	meta, err := json.Marshal(map[string]any{
		"actor": map[string]string{"type": ex.ActorType, "id": ex.ActorID}, "correlation_id": s.mint.UUIDv7(),
	})
	if err != nil {
		return nil, err
	}
	now := s.o.Clock.Now().Truncate(time.Second)
	ev := &j17.Event{
		StreamID: j17.StreamID{Ms: now.UnixMilli()}, Key: j17.Key{Type: ex.AggregateType, ID: ex.ID}, Version: 1,
		Type: ex.EventType, Timestamp: now.Unix(),
	}
	raw, layout := j17.AppendEvent(nil, ev.StreamID, ev.Key, ev.Type, []byte(ex.Data.String()), meta, ev.Timestamp)
	ev.Raw, ev.Data, ev.Metadata = raw, layout.DataOf(raw), layout.MetadataOf(raw)
	return ev, nil
}
