package store

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"j17"
)

// Limits of every store. Names (tenants, aggregate types and ids, event types, spaces, side keys) are valid UTF-8
// without NUL.
const (
	// MaxTenantBytes is the length of a tenant's name.
	MaxTenantBytes = 64
	// MaxNameBytes is the length of every other name.
	MaxNameBytes = 1024
	// MaxUnitEvents is the number of events one unit may append.
	MaxUnitEvents = 20_000
	// MaxUnitAssignments is the number of assignments of one unit: two for each event.
	MaxUnitAssignments = 2 * MaxUnitEvents
	// MaxEventTags is the number of tags of one event.
	MaxEventTags = 1024
	// MaxAdded bounds the number that an Add adds, and the bound of the item.
	MaxAdded = 1 << 40
	// MaxEntries is the number of entries of one side item.
	MaxEntries = 64
	// MaxUnitBytes bounds the events with their tags, the side values and the memo of one unit.
	MaxUnitBytes = 64 << 20
)

// ValidAppend checks the arguments of Append. Errors are ErrInvalid or ErrLimit.
func ValidAppend(t j17.Tenant, units []Append) error {
	if err := ValidTenant(t); err != nil {
		return err
	}
	for i := range units {
		if err := units[i].Validate(); err != nil {
			return fmt.Errorf("unit %d: %w", i, err)
		}
		for _, n := range units[i].After {
			if n < 0 || n >= i {
				return fmt.Errorf("%w: unit %d is decided on the events of unit %d, which does not come before it", ErrInvalid, i, n)
			}
		}
	}
	return nil
}

// Validate checks the form and the limits of the unit. Errors are ErrInvalid or ErrLimit.
func (a *Append) Validate() error {
	// Check counts before anything whose cost is proportional to them.
	if len(a.Events) > MaxUnitEvents {
		return fmt.Errorf("%w: %d events in one unit, %d are allowed", ErrLimit, len(a.Events), MaxUnitEvents)
	}
	if len(a.Assign) > MaxUnitAssignments {
		return fmt.Errorf("%w: %d assignments in one unit, %d are allowed", ErrLimit, len(a.Assign), MaxUnitAssignments)
	}

	// The record of the command.
	size := 0
	if a.Command != nil {
		size += len(a.Command.Memo)
		if err := validTime("expiry of the command", a.Command.Expires); err != nil {
			return err
		}
	}

	// The conditions.
	for i := range a.Pre {
		if err := ValidKey(a.Pre[i].Key); err != nil {
			return err
		}
	}
	for i := range a.Fences {
		if err := a.Fences[i].validate(); err != nil {
			return fmt.Errorf("fence %d: %w", i, err)
		}
	}
	if len(a.Unless) > MaxUnless {
		return fmt.Errorf("%w: %d conditions on the feed, %d are allowed", ErrLimit, len(a.Unless), MaxUnless)
	}
	for i := range a.Unless {
		if err := a.Unless[i].validate(); err != nil {
			return fmt.Errorf("condition %d on the feed: %w", i, err)
		}
	}

	// The writes.
	for i := range a.Events {
		e := &a.Events[i]
		if err := e.Validate(); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		size += len(e.Type) + len(e.Data) + len(e.Metadata)
		for _, tag := range e.Tags {
			size += len(tag) + tagEntryBytes
		}
	}
	for i := range a.Side {
		s := &a.Side[i]
		if err := s.validate(len(a.Events)); err != nil {
			return fmt.Errorf("side write %d: %w", i, err)
		}
		size += len(s.Key) + len(s.Value)
	}

	// The assignments. A unit must not propose a value twice.
	var proposed map[proposal]int
	for i := range a.Assign {
		one := &a.Assign[i]
		if err := one.validate(); err != nil {
			return fmt.Errorf("assignment %d: %w", i, err)
		}
		size += len(one.Owner) + len(one.Value)
		if one.Value == "" || len(a.Assign) == 1 {
			continue
		}
		if proposed == nil {
			proposed = make(map[proposal]int, len(a.Assign))
		}
		p := proposal{one.Index, one.Value}
		if j, ok := proposed[p]; ok {
			return fmt.Errorf("%w: assignment %d proposes the same value as assignment %d", ErrInvalid, i, j)
		}
		proposed[p] = i
	}

	if size > MaxUnitBytes {
		return fmt.Errorf("%w: %d bytes in one unit, %d are allowed", ErrLimit, size, MaxUnitBytes)
	}
	return nil
}

// proposal is a value that an assignment proposes.
type proposal struct {
	index Space
	value string
}

// ValidTenant checks the form and the length of a tenant's name. Errors are ErrInvalid or ErrLimit.
func ValidTenant(t j17.Tenant) error {
	if len(t) > MaxTenantBytes {
		return fmt.Errorf("%w: a tenant's name of %d bytes, %d are allowed", ErrLimit, len(t), MaxTenantBytes)
	}
	return validName("tenant", string(t))
}

// ValidKey checks the form and the length of a stream's key. Errors are ErrInvalid or ErrLimit.
func ValidKey(k j17.Key) error {
	if err := validPlain("aggregate type", k.Type); err != nil {
		return err
	}
	if strings.IndexByte(k.Type, ':') >= 0 {
		return fmt.Errorf("%w: the aggregate type %q has a colon", ErrInvalid, k.Type)
	}
	return validPlain("aggregate id", k.ID)
}

// Validate checks the form and the limits of an event, but not whether its data are JSON. Errors are ErrInvalid or
// ErrLimit.
func (e *NewEvent) Validate() error {
	if err := ValidKey(e.Key); err != nil {
		return err
	}
	if err := validTags(e.Tags); err != nil {
		return err
	}
	return validContent(e.Type, e.Data, e.Metadata)
}

// Validate checks the form and the limits of a rewrite; the limits are those of a unit. Errors are ErrInvalid or
// ErrLimit.
func (r *Rewrite) Validate() error {
	n, size := 0, 0
	seen := map[j17.Key]bool{}
	for i := range r.Streams {
		stream := &r.Streams[i]
		if err := ValidKey(stream.Key); err != nil {
			return err
		}
		if seen[stream.Key] {
			return fmt.Errorf("%w: %s stands twice among the streams", ErrInvalid, stream.Key)
		}
		seen[stream.Key] = true
		if n += len(stream.Events); n > MaxUnitEvents {
			return fmt.Errorf("%w: %d events to rewrite, %d are allowed at a time", ErrLimit, n, MaxUnitEvents)
		}
		for j := range stream.Events {
			e := &stream.Events[j]
			if err := validContent(e.Type, e.Data, e.Metadata); err != nil {
				return fmt.Errorf("version %d: %w", e.Version, err)
			}
			size += len(e.Type) + len(e.Data) + len(e.Metadata)
		}
	}
	if size > MaxUnitBytes {
		return fmt.Errorf("%w: %d bytes to rewrite, %d are allowed at a time", ErrLimit, size, MaxUnitBytes)
	}
	return (&Append{Pre: r.Pre, Fences: r.Fences, Side: r.Side}).Validate()
}

func validContent(typ string, data, metadata []byte) error {
	if err := validPlain("event type", typ); err != nil {
		return err
	}
	if len(data) == 0 || bytes.IndexByte(data, '\n') >= 0 {
		return fmt.Errorf("%w: the data of an event is no compact JSON value", ErrInvalid)
	}
	n := len(metadata)
	if n < len("{}") || metadata[0] != '{' || metadata[n-1] != '}' || bytes.IndexByte(metadata, '\n') >= 0 {
		return fmt.Errorf("%w: the metadata of an event is no compact JSON object", ErrInvalid)
	}
	return nil
}

func (s *Side) validate(events int) error {
	// The operation.
	if s.Op < Put || s.Op > Add {
		return fmt.Errorf("%w: unknown side operation %d", ErrInvalid, s.Op)
	}
	if s.Op == Add {
		if n, err := strconv.ParseInt(string(s.Value), 10, 64); err != nil || n < -MaxAdded || n > MaxAdded ||
			s.Most < 0 || s.Most > MaxAdded {
			return fmt.Errorf("%w: a number to add, %q, up to %d", ErrInvalid, s.Value, s.Most)
		}
	} else if s.Most != 0 {
		return fmt.Errorf("%w: a bound without an addition", ErrInvalid)
	}

	// Its positions and entries.
	if s.StampKey && (len(s.Stamps) == 0 || s.Cond != Always || len(s.Key) > MaxNameBytes-stampedKeyBytes) {
		return fmt.Errorf("%w: a key with a position, a condition or more than %d bytes, or without an event", ErrInvalid, MaxNameBytes-stampedKeyBytes)
	}
	for _, n := range s.Stamps {
		if s.Op != Put || n < 0 || n >= events {
			return fmt.Errorf("%w: the position of event %d of %d in a side item", ErrInvalid, n, events)
		}
	}
	if s.Stream < 0 || s.Stream > events || s.Stream > 0 && s.Cond != Always {
		return fmt.Errorf("%w: an item of the stream of event %d of %d, or one with a condition", ErrInvalid, s.Stream, events)
	}
	if s.Entries != "" {
		if err := s.validateEntries(); err != nil {
			return err
		}
	}

	// The restrictions of Raise and of plain writes.
	if s.Op == Raise {
		if _, err := strconv.ParseUint(string(s.Value), 10, 63); err != nil {
			return fmt.Errorf("%w: a number to raise to: %q", ErrInvalid, s.Value)
		}
	}
	if s.Plain && (s.Op > Delete || s.Cond != Always || len(s.Stamps) > 0 || s.Entries != "" || !s.Due.IsZero() ||
		!s.Expires.IsZero()) {
		return fmt.Errorf("%w: a plain write with a condition, a time, a position, or of another kind than Put and Delete", ErrInvalid)
	}

	// Its condition, place and times.
	if s.Cond > IfValue {
		return fmt.Errorf("%w: unknown condition %d", ErrInvalid, s.Cond)
	}
	if err := validCompared(s.Cond == IfValue, s.Was); err != nil {
		return err
	}
	if err := ValidItem(s.Space, s.Key); err != nil {
		return err
	}
	if err := validTime("expiry of the item", s.Expires); err != nil {
		return err
	}
	if err := validTime("due time of the item", s.Due); err != nil {
		return err
	}
	if !s.Claimed.IsZero() && (s.Op != Put || s.Due.Before(s.Claimed) || s.Due.Sub(s.Claimed) > MaxLease) {
		return fmt.Errorf("%w: a claimed item without a lease of up to %s", ErrInvalid, MaxLease)
	}
	return validTime("time of the claim", s.Claimed)
}

// validateEntries checks a write of an item with entries.
func (s *Side) validateEntries() error {
	if s.Op != Put && s.Op != Delete || len(s.Stamps) > 0 || !s.Expires.IsZero() {
		return fmt.Errorf("%w: entries of an item that is neither put nor deleted, has positions or expires", ErrInvalid)
	}
	if s.Op == Delete {
		return validName("space", string(s.Entries))
	}
	keys, _, err := ReadEntries(s.Value)
	if err != nil {
		return fmt.Errorf("%w: the value of an item with entries does not begin with them", ErrInvalid)
	}
	for _, key := range keys {
		if err := ValidItem(s.Entries, string(key)); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fence) validate() error {
	if f.ByValue && f.Rev != 0 {
		return fmt.Errorf("%w: a fence on a value and on a revision", ErrInvalid)
	}
	if err := validCompared(f.ByValue, f.Value); err != nil {
		return err
	}
	return ValidItem(f.Space, f.Key)
}

// validCompared checks a value that an item is compared with.
func validCompared(compared bool, value string) error {
	switch {
	case !compared && value != "":
		return fmt.Errorf("%w: a value to compare with, where the condition is another one", ErrInvalid)
	case len(value) > MaxNameBytes:
		return fmt.Errorf("%w: a value to compare with has %d bytes, %d are allowed", ErrLimit, len(value), MaxNameBytes)
	}
	return nil
}

// ValidItem checks the space and the key of a side item.
func ValidItem(space Space, key string) error {
	if err := validName("space", string(space)); err != nil {
		return err
	}
	return validName("side key", key)
}

func (a *Assignment) validate() error {
	if (a.Value == "") == (a.Counter == "") {
		return fmt.Errorf("%w: an assignment needs either a value or a counter", ErrInvalid)
	}
	if err := validName("space", string(a.Space)); err != nil {
		return err
	}
	if err := validName("index", string(a.Index)); err != nil {
		return err
	}
	if err := validName("owner", a.Owner); err != nil {
		return err
	}
	return validName("value or counter", a.Value+a.Counter)
}

// validTime checks that Unix nanoseconds can hold t.
func validTime(what string, t time.Time) error {
	if !t.IsZero() && (t.Unix() < 1 || t.Year() > 2261) {
		return fmt.Errorf("%w: the %s, %s, is not between the years 1970 and 2262", ErrInvalid, what, t)
	}
	return nil
}

func validName(what, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: the %s is empty", ErrInvalid, what)
	case len(s) > MaxNameBytes:
		return fmt.Errorf("%w: the %s has %d bytes, %d are allowed", ErrLimit, what, len(s), MaxNameBytes)
	case strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s):
		return fmt.Errorf("%w: the %s %q is no UTF-8 text without NUL", ErrInvalid, what, s)
	default:
		return nil
	}
}

// validPlain checks a name that is written to canonical bytes without escapes.
func validPlain(what, s string) error {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			return fmt.Errorf("%w: the %s %q has a character that JSON escapes", ErrInvalid, what, s)
		}
	}
	return validName(what, s)
}
