package wire

import "time"

// Listener is a listener of an environment.
type Listener struct {
	Name   string   `json:"name"`
	Status string   `json:"status"`
	URL    string   `json:"url"`
	Events []string `json:"events"`
	Format string   `json:"format"`
	Secret string   `json:"secret"`
	// PreviousSecret is valid until PreviousSecretExpiresAt.
	PreviousSecret          string    `json:"previous_secret,omitempty"`
	PreviousSecretExpiresAt time.Time `json:"previous_secret_expires_at,omitzero"`
	// Lag is how many events have not been delivered to the listener yet.
	Lag int `json:"lag"`
}

// ListenerChanged is a listener as it is now.
type ListenerChanged struct {
	Listener Listener `json:"listener"`
}

// ListenerReplay asks for events to be delivered again.
type ListenerReplay struct {
	// After is the position behind which it begins, "0" for the first event.
	After string `json:"after"`
	// Until is the position of the last event, that of the latest without it.
	Until string `json:"until,omitempty"`
	// Only is "failed" for the events that were not delivered to the listener.
	Only   string `json:"only,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
}

// ListenerReplayed has the number of events.
type ListenerReplayed struct {
	DryRun bool `json:"dry_run,omitempty"`
	Count  int  `json:"count"`
}

// Triggered is the outcome of sending a sample.
type Triggered struct {
	// Delivered reports that the endpoint has accepted it.
	Delivered bool `json:"delivered"`
	// Try is what was sent and answered.
	Try DeliveryTry `json:"try"`
}

// Delivery is a message to a listener.
type Delivery struct {
	ID       string `json:"id"`
	Listener string `json:"listener"`
	Status   string `json:"status"`
	Attempts int    `json:"attempts"`
	// LastStatus is that of the last answer, null where there was none.
	LastStatus    *int          `json:"last_status"`
	LastError     *string       `json:"last_error"`
	Event         EventOf       `json:"event"`
	CreatedAt     time.Time     `json:"created_at"`
	NextAttemptAt *time.Time    `json:"next_attempt_at"`
	Log           []DeliveryTry `json:"log,omitzero"` // of a delivery that is shown by itself, [] before its first try
}

// EventOf names an event.
type EventOf struct {
	StreamID string `json:"stream_id"`
	Key      string `json:"key"`
	Type     string `json:"type"`
}

// DeliveryTry is a try of a delivery. Bodies are cut, and never hold a secret.
type DeliveryTry struct {
	At       time.Time `json:"at"`
	Status   *int      `json:"status"`
	Millis   float64   `json:"ms"`
	Error    *string   `json:"error"`
	Request  string    `json:"request"`
	Response string    `json:"response"`
}

// DeliveryShown is a delivery with its log.
type DeliveryShown struct {
	Delivery Delivery `json:"delivery"`
}
