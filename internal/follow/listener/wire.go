package listener

import (
	"time"

	"j17/internal/base/wire"
)

// Wire returns the listener in the form of the API.
func (l *Listener) Wire() wire.Listener {
	out := wire.Listener{
		Name: l.Name, Status: string(l.Status), URL: l.URL, Events: []string{}, Format: l.Format, Secret: l.Secret,
		PreviousSecret: l.Previous, PreviousSecretExpiresAt: l.PreviousUntil, Lag: l.Lag,
	}
	for _, p := range l.Events {
		out.Events = append(out.Events, p.String())
	}
	return out
}

// Wire returns the delivery in the form of the API, without its log.
func (d *Delivery) Wire() wire.Delivery {
	out := wire.Delivery{
		ID: d.ID, Listener: d.Listener, Status: string(d.Status), Attempts: d.Attempts,
		LastStatus: wire.OrNull(d.LastStatus), LastError: wire.OrNull(d.LastError),
		Event:     wire.EventOf{StreamID: d.StreamID.String(), Key: d.Key, Type: d.Type},
		CreatedAt: d.Created.Truncate(time.Second),
	}
	if !d.Next.IsZero() {
		out.NextAttemptAt = new(d.Next.Truncate(time.Second))
	}
	return out
}

// Wire returns the try in the form of the API.
func (t *Try) Wire() wire.DeliveryTry {
	return wire.DeliveryTry{
		At: t.At.Truncate(time.Second), Status: wire.OrNull(t.Status), Millis: t.Millis, Error: wire.OrNull(t.Error),
		Request: t.Request, Response: t.Response,
	}
}
