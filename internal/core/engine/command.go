package engine

import (
	"j17"
	"j17/internal/core/command"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Command is a request to write events, all or none of them.
type Command struct {
	command.Command

	Tenant j17.Tenant
	// IdempotencyKey, if not "", makes a retry return the result of the first try.
	IdempotencyKey string
	// Fingerprint distinguishes requests with the same idempotency key: a digest of everything the caller sent except
	// the name of the aggregate, which may have several.
	Fingerprint [32]byte
	// IfMatch lists entity tags of which the aggregate must have one; "*" matches any existing aggregate. Empty means
	// no condition.
	IfMatch []string
	// Side is written in the commit of the events, all or nothing: a claim that is finished, a cursor that moves on. If
	// a condition no longer holds, the command is refused with CodeConflict, whose cause is a *store.SideConflict.
	Side []store.Side
	// Effects, if not nil, returns further writes of that commit, which depend on the decision, like the effects of
	// parts.
	Effects part.EffectsOf

	// Depth is how many sagas and scheduled events have led to the command, each caused by the one before and soon
	// after it; 0 for other commands.
	Depth int
}

// Receipt describes what a command has written.
type Receipt struct {
	// Writes are the results of the command's writes, in order.
	Writes []Written
	// Implied is the number of events that the command's events implied.
	Implied int
	// Replayed is true when an earlier try with the same idempotency key has written the events.
	Replayed bool
}

// Written describes the result of a write.
type Written struct {
	// Key is the key of the aggregate, Names its other names.
	Key j17.Key
	j17.Names
	// IDs are the positions of the write's own events, in order.
	IDs []j17.StreamID
	// Length is the aggregate's number of events after the command.
	Length uint64
}
