package engine

import (
	"j17"
	"j17/internal/core/command"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Command asks for events, all or none.
type Command struct {
	command.Command

	Tenant j17.Tenant
	// IdempotencyKey, if not "", makes a retry answer what the first try answered.
	IdempotencyKey string
	// Fingerprint tells requests with the same idempotency key apart: a digest of everything the
	// caller sent but the aggregate's name, of which it may have several.
	Fingerprint [32]byte
	// IfMatch lists entity tags of which the aggregate must have one; "*" is any that exists. Empty: no condition.
	IfMatch []string
	// Side is written in the commit of the events, all or nothing: a claim that is finished, a cursor that moves on. A
	// condition that does not hold any more refuses the command with CodeConflict; the *store.SideConflict is its
	// cause.
	Side []store.Side
	// Effects, if not nil, says what else is to be written in that commit, as the effects of parts do: for what depends
	// on what the command comes to.
	Effects part.EffectsOf

	// Depth is how many sagas and scheduled events have led to the command, each brought about by the one before and
	// soon after it; 0 for what comes from elsewhere.
	Depth int
}

// Receipt tells what a command has written.
type Receipt struct {
	// Writes are what became of the command's writes, in order.
	Writes []Written
	// Implied is the number of events that the command's events implied.
	Implied int
	// Replayed is true when an earlier try with the same idempotency key has written the events.
	Replayed bool
}

// Written tells what a write has written.
type Written struct {
	// Key is the aggregate's, Names what else it is called.
	Key j17.Key
	j17.Names
	// IDs are the positions of the write's own events, in order.
	IDs []j17.StreamID
	// Length is the aggregate's number of events after the command.
	Length uint64
}
