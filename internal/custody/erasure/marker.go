package erasure

import (
	"encoding/hex"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/value"
)

// CheckMarker checks that an event's data and metadata have nothing that markers of an execution lack. It is for
// imports, since anybody can write a file. The error is a *j17.Error with the path of what is wrong.
func CheckMarker(data, metadata value.Value) error {
	for _, m := range data.Members() {
		if markerText(m.Key) == nil {
			return notMarked("data."+j17.Printable(m.Key), "is no member of its data")
		}
	}
	for _, name := range []string{"original_hash", "chain_hash", "original_type", "tombstone_id", "tombstoned_at"} {
		if m := data.Get(name); m.Kind() != value.String || !markerText(name)(m.Str()) {
			return notMarked("data."+name, "is not what an erasure writes there")
		}
	}

	// The actor and the time. The time itself is checked like that of other events.
	for _, m := range metadata.Members() {
		if m.Key != "actor" && m.Key != "timestamp" {
			return notMarked("metadata."+j17.Printable(m.Key), "is no member of its metadata")
		}
	}
	actor := metadata.Get("actor")
	if len(actor.Members()) != 2 || actor.Get("type").Str() != "system" || actor.Get("id").Str() != "system" {
		return notMarked("metadata.actor", `has to be {"type": "system", "id": "system"}`)
	}
	return nil
}

// markerText returns the check for the text of a member of a marker's data, nil if markers have no such member.
func markerText(name string) func(string) bool {
	switch name {
	case "original_hash", "chain_hash":
		return func(s string) bool {
			raw, err := hex.DecodeString(s)
			return err == nil && len(raw) == len(hash{}) && hex.EncodeToString(raw) == s
		}
	case "original_type":
		return func(s string) bool { return s != "" && (s == ident.WasTombstoned || !ident.IsReservedEventType(s)) }
	case "tombstone_id":
		return func(s string) bool {
			prefix, err := ident.ParseHandle(s)
			return err == nil && prefix == tombstonePrefix
		}
	case "tombstoned_at":
		return func(s string) bool {
			at, err := time.Parse(time.RFC3339, s)
			return err == nil && at.UTC().Format(time.RFC3339) == s
		}
	default:
		return nil
	}
}

func notMarked(path, fault string) error {
	return j17.Errorf(j17.CodeInvalidField,
		"No erasure has written this '%s': '%s' %s. Import markers as an export has them, and leave out others", ident.WasTombstoned, path, fault).At(path)
}
