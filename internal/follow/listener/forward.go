package listener

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/follow/outbound"
	"j17/internal/lang/spec"
)

// Forward turns events read over HTTP into messages, as a listener would be sent.
type Forward struct {
	URL         string
	Environment j17.Environment
	// Secret signs the messages: see NewSecret.
	Secret string
	// Patterns select events as those of a listener do; none selects all.
	Patterns []spec.Pattern
	Mint     *ident.Minter
}

// forwarded is the listener name in forwarded messages.
const forwarded = "listen"

// Message returns the message of an event, given by its canonical bytes, and the event's position, key and type; nil if
// the patterns do not select it.
func (f *Forward) Message(raw []byte) (*outbound.Message, *j17.Event, error) {
	var members struct {
		StreamID string          `json:"stream_id"`
		Key      string          `json:"key"`
		Type     string          `json:"type"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, nil, err
	}
	id, err := j17.ParseStreamID(members.StreamID)
	if err != nil {
		return nil, nil, err
	}
	key, ok := j17.ParseKey(members.Key)
	if !ok {
		return nil, nil, errors.New("an event has no key")
	}
	ev := &j17.Event{
		StreamID: id, Key: key, Type: members.Type, Raw: bytes.TrimSpace(slices.Clone(raw)), Metadata: members.Metadata,
	}
	if len(f.Patterns) > 0 && !selects(f.Patterns, ev) {
		return nil, ev, nil
	}
	d := &delivery{ID: f.Mint.Handle(ident.DeliveryPrefix), Listener: forwarded}
	m := d.message(f.Environment, ev)
	m.URL, m.Keys = f.URL, [][]byte{signingKey(f.Secret)}
	return &m, ev, nil
}
