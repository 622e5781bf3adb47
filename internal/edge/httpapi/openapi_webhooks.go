package httpapi

import (
	"maps"
	"reflect"
	"slices"

	"j17"
	"j17/internal/edge/openapi"
	"j17/internal/lang/spec"
	"j17/internal/lang/typegen"
)

// maxOwnWebhooks is how many listeners a spec may have for each to have a webhook of its own in the document, and
// maxToldEvents how many event types a listener may receive for each to be described.
const (
	maxOwnWebhooks = 200
	maxToldEvents  = 50
)

// webhooks adds the messages to listeners.
func (w *describer) webhooks() {
	if w.spec == nil || len(w.spec.Listeners) > maxOwnWebhooks {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(w.spec.Listeners)) {
		l := w.spec.Listeners[name]
		message, media := w.message(l), typeJSON
		if l.Format == spec.FormatCloudEvents {
			message, media = w.cloudEvent(l), "application/cloudevents+json"
		}
		w.b.Send(&openapi.Webhook{
			Name: name, About: "An event that is delivered to the listener " + name, Tag: "listeners", Body: openapi.Content{media: message},
			Parameters: []openapi.Parameter{
				header("webhook-id", "The id of the delivery, the same in every try.", true),
				header("webhook-timestamp", "The time of the try in Unix seconds.", true),
				header("webhook-signature", "v1, and the signature in base64, as Standard Webhooks has it.", true),
				header("X-J17-Signature", "sha256= and the HMAC-SHA256 of the body in hexadecimal.", true),
				header("X-Correlation-ID", "The correlation id of the event.", false),
			},
		})
		w.b.Tag("listeners", "The messages that listeners receive.")
	}
}

func header(name, about string, required bool) openapi.Parameter {
	return openapi.Parameter{Name: name, In: "header", About: about, Schema: textSchema(), Required: required}
}

// message is the schema of messages to a listener in the server's own format.
func (w *describer) message(l *spec.Listener) any {
	stored := func(typ, data any) any {
		return objectSchema(map[string]any{
			"stream_id": textSchema(), "key": textSchema(), "type": typ, "data": data,
			"metadata": map[string]any{"type": "object"},
		})
	}
	event := w.told(l, func(aggregateType, event string) any {
		return stored(constSchema(event), reference(typegen.DataComponent(aggregateType, event)))
	}, stored(textSchema(), map[string]any{}))
	return objectSchema(map[string]any{
		"id": textSchema(), "listener": constSchema(l.Name),
		"environment": w.b.Schema(reflect.TypeFor[j17.Environment]()), "event": event,
	})
}

// cloudEvent is the schema of messages to a listener in the format of CloudEvents.
func (w *describer) cloudEvent(l *spec.Listener) any {
	of := func(typ, data any) any {
		event := objectSchema(map[string]any{
			"specversion": constSchema("1.0"), "id": textSchema(), "source": textSchema(), "type": typ,
			"subject":         textSchema(),
			"time":            map[string]any{"type": "string", "format": "date-time"},
			"datacontenttype": constSchema(typeJSON), "data": data,
		})
		properties, _ := event["properties"].(map[string]any)
		for _, name := range []string{"actor", "target", "correlationid"} {
			properties[name] = textSchema()
		}
		return event
	}
	return w.told(l, func(aggregateType, event string) any {
		return of(constSchema(aggregateType+"."+event), reference(typegen.DataComponent(aggregateType, event)))
	}, of(textSchema(), map[string]any{}))
}

// told is the schema of the events that are delivered to a listener: one of each type, or of any where these are too
// many.
func (w *describer) told(l *spec.Listener, each func(aggregateType, event string) any, other any) any {
	var all []any
	for _, name := range slices.Sorted(maps.Keys(w.spec.Types)) {
		t := w.spec.Types[name]
		for _, event := range slices.Sorted(maps.Keys(t.Events)) {
			if t.Events[event].System ||
				!slices.ContainsFunc(l.Events, func(p spec.Pattern) bool { return p.Matches(name, event) }) {
				continue
			}
			if all = append(all, each(name, event)); len(all) > maxToldEvents {
				return other
			}
		}
	}
	switch len(all) {
	case 0:
		return other
	case 1:
		return all[0]
	default:
		return map[string]any{"oneOf": all}
	}
}

func textSchema() map[string]any { return map[string]any{"type": "string"} }

func constSchema(v string) map[string]any { return map[string]any{"type": "string", "const": v} }

// objectSchema is the schema of an object with members that are all there.
func objectSchema(members map[string]any) map[string]any {
	return map[string]any{"type": "object", "properties": members, "required": slices.Sorted(maps.Keys(members))}
}
