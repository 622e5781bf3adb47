package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/edge/client"
	"j17/internal/lang/spec"
)

// Past stores events of "given" as they are: those of older generations and of types that are retired.
type Past struct {
	// Spec tells which events these are, and Import stores lines of events as an import of history does.
	Spec   *spec.Compiled
	Import func(ctx context.Context, lines []byte) error
}

// has reports whether some of the events of a write are stored as they are.
func (p *Past) has(key j17.Key, w *write) bool {
	for _, ev := range w.events {
		et := p.Spec.EventType(key.Type, ev.name)
		if et != nil && (et.Retired || ev.generation > 0 && ev.generation != et.Generation) {
			return true
		}
	}
	return false
}

// pastEvent is a line of an import.
type pastEvent struct {
	Key string `json:"key"`
	wire.NewEvent
	Metadata pastMetadata `json:"metadata"`
}

type pastMetadata struct {
	wire.Agents
	CorrelationID string `json:"correlation_id"`
	Generation    int    `json:"generation,omitempty"`
}

// begin makes a write of "given".
func (r *run) begin(ctx context.Context, w *write) (*client.Error, error) {
	if r.past == nil {
		_, refused, err := r.write(ctx, w, "")
		return refused, err
	}
	writes := w.several
	if writes == nil {
		writes = []write{*w}
	}
	stored := false
	for i := range writes {
		key, _ := j17.ParseKey(r.fill(writes[i].key))
		stored = stored || r.past.has(key, &writes[i])
	}
	if !stored {
		_, refused, err := r.write(ctx, w, "")
		return refused, err
	}

	// The lines. A correlation id of their own tells them from equal ones that were stored before.
	correlation, err := uuid.NewRandom()
	if err != nil {
		return nil, err
	}
	metadata := pastMetadata{CorrelationID: correlation.String()}
	actor, _ := j17.ParseKey(r.fill(w.actor))
	metadata.Actor = wire.Agent(actor)
	if target, ok := j17.ParseKey(r.fill(w.target)); ok {
		metadata.Target = &wire.Target{Type: target.Type, ID: target.ID}
	}
	var lines bytes.Buffer
	out := json.NewEncoder(&lines)
	for i := range writes {
		key, _ := j17.ParseKey(r.fill(writes[i].key))
		for _, ev := range r.events(&writes[i]) {
			line := pastEvent{Key: key.String(), NewEvent: ev, Metadata: metadata}
			line.Metadata.Generation, line.Generation = ev.Generation, 0
			if et := r.past.Spec.EventType(key.Type, ev.Type); ev.Generation == 0 && et != nil {
				line.Metadata.Generation = et.Assumed
			}
			if err := out.Encode(line); err != nil {
				return nil, err
			}
		}
	}

	err = r.past.Import(ctx, lines.Bytes())
	if refused, ok := errors.AsType[*client.Error](err); ok && aboutApplication(refused) {
		return refused, nil
	}
	return nil, err
}
