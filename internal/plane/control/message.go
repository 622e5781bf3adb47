package control

import "time"

// PollTime is how long the headnode keeps a worker waiting for changes before it answers that there are none.
const PollTime = 25 * time.Second

// Poll is what a worker sends to the headnode each time it asks for changes; an Update is the answer.
type Poll struct {
	Node     Node `json:"node"`
	Writable bool `json:"writable"`
	// Position is where the worker is; "" if it has nothing.
	Position string `json:"position"`
	// AtOnce asks for an answer even if there is nothing new.
	AtOnce bool `json:"at_once,omitempty"`
	// KeyUses are the last uses of keys that the headnode may not know of, in Unix seconds.
	KeyUses map[string]int64 `json:"key_uses,omitempty"`
}

// SpecPut is a spec that a worker has found valid, on its way to the headnode; a SpecAnswer is the answer.
type SpecPut struct {
	Deployment Deployment `json:"deployment"`
	Actor      Actor      `json:"actor"`
	RequestID  string     `json:"request_id"`
}

// SpecAnswer is a version of a spec on its way to a worker.
type SpecAnswer struct {
	Spec Spec `json:"spec"`
}
