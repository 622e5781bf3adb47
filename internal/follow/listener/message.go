package listener

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/upcast"
	"j17/internal/follow/outbound"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

const (
	secretPrefix = "whsec_"
	secretBytes  = 32
	// secretOverlap is how long a replaced secret stays valid.
	secretOverlap = 24 * time.Hour
)

// NewSecret creates a secret.
func NewSecret() string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // never fails: the program ends if the machine has no randomness
	return secretPrefix + base64.StdEncoding.EncodeToString(b[:])
}

// keys returns the signing keys valid at a time, the present one first.
func (s *state) keys(now time.Time) [][]byte {
	keys := [][]byte{signingKey(s.Secret)}
	if s.Previous != "" && now.Before(s.PreviousUntil) {
		keys = append(keys, signingKey(s.Previous))
	}
	return keys
}

func signingKey(secret string) []byte {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix)) // NewSecret has made it
	return key
}

// metadata has the members of an event's metadata that messages use.
type metadata struct {
	Actor         *j17.Agent `json:"actor"`
	Target        *j17.Agent `json:"target"`
	CorrelationID string     `json:"correlation_id"`
}

// message returns the message of an event: the same bytes in every try.
func (d *delivery) message(env j17.Environment, ev *j17.Event) outbound.Message {
	var meta metadata
	_ = json.Unmarshal(ev.Metadata, &meta) // history may have members of other types, which are left out
	m := outbound.Message{ID: d.ID, ContentType: "application/json", Headers: map[string]string{}}
	if isPlain(meta.CorrelationID) {
		m.Headers["X-Correlation-ID"] = meta.CorrelationID
	}
	if d.Format == spec.FormatCloudEvents {
		m.ContentType = "application/cloudevents+json"
		m.Body = CloudEvent(d.Source, ev)
		return m
	}
	m.Body = append(m.Body, `{"id":"`+d.ID+`","listener":"`+d.Listener+`","environment":"`+string(env)+`","event":`...)
	m.Body = append(append(m.Body, ev.Raw...), '}')
	return m
}

// isPlain reports whether text can be the value of a header. Values from history can be anything.
func isPlain(s string) bool {
	const longest = 200
	return s != "" && len(s) <= longest && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Source returns the name of an environment as the source of CloudEvents.
func Source(instance string, env j17.Environment) string { return "/" + instance + "/" + string(env) }

// CloudEvent returns an event as a CloudEvent of version 1.0 in the structured JSON format.
func CloudEvent(source string, ev *j17.Event) []byte {
	var meta metadata
	_ = json.Unmarshal(ev.Metadata, &meta) // history may have members of other types, which are left out
	shape := struct {
		SpecVersion     string          `json:"specversion"`
		ID              string          `json:"id"`
		Source          string          `json:"source"`
		Type            string          `json:"type"`
		Subject         string          `json:"subject"`
		Time            time.Time       `json:"time"`
		DataContentType string          `json:"datacontenttype"`
		Actor           string          `json:"actor,omitempty"`
		Target          string          `json:"target,omitempty"`
		CorrelationID   string          `json:"correlationid,omitempty"`
		Data            json.RawMessage `json:"data"`
	}{
		SpecVersion: "1.0", ID: ev.StreamID.String(), Source: source, Type: ev.Key.Type + "." + ev.Type,
		Subject: ev.Key.String(),
		Time:    time.Unix(ev.Timestamp, 0).UTC(), DataContentType: "application/json",
		Actor: agentText(meta.Actor), Target: agentText(meta.Target), CorrelationID: meta.CorrelationID, Data: ev.Data,
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(shape); err != nil {
		return nil // stored data are valid JSON
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

func agentText(a *j17.Agent) string {
	if a == nil || a.Type == "" {
		return ""
	}
	return a.Type + ":" + a.ID
}

// maxExcerpt is how many bytes of a request and of an answer the log shows.
const maxExcerpt = outbound.MaxAnswer

// excerpt returns the beginning of a body as text, without the secrets that it contains, even one that is cut off at
// the end.
func excerpt(body []byte, secrets ...string) string {
	whole := len(body) < maxExcerpt
	text := string(body[:min(len(body), maxExcerpt)])
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, removed)
		}
	}
	if !whole {
		part := 0
		for _, s := range secrets {
			for n := min(len(s)-1, len(text)); n > part; n-- {
				if strings.HasSuffix(text, s[:n]) {
					part = n
				}
			}
		}
		if part > 0 {
			text = text[:len(text)-part] + removed
		}
	}
	return cut(strings.ToValidUTF8(text, "\uFFFD"), maxExcerpt)
}

// removed replaces secrets in texts.
const removed = "[removed]"

// cut shortens text to a number of bytes, without splitting a character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// secretsOf returns the texts that must not appear in logs: signing secrets, and header values from the spec.
func secretsOf(st *state, l *spec.Listener) []string {
	var all []string
	for _, s := range []string{st.Secret, st.Previous} {
		all = append(all, s, strings.TrimPrefix(s, secretPrefix))
	}
	for _, v := range l.Headers {
		const telling = 8 // shorter values occur in answers by chance, and removing them would protect nothing
		if len(v) >= telling {
			all = append(all, v)
		}
	}
	return all
}

const (
	// conditionWork bounds the work of a listener's condition for one event.
	conditionWork = work.Command / 64
	// pageWork bounds the work of looking at a page of events, of which the first one is always looked at.
	pageWork = work.Command
)

// unitsPerEvent is the work of looking at an event, without its bytes and the listener's condition.
const unitsPerEvent = 40

// matcher returns a function that reports whether a listener selects an event, at the cost of a budget. Its error is
// the budget's. It is for one goroutine.
func matcher(l *spec.Listener, b *work.Budget) func(*j17.Event) (selected bool, err error) {
	var (
		env *tick.Env
		own *work.Budget
	)
	return func(ev *j17.Event) (bool, error) {
		if !b.Spend(unitsPerEvent + len(l.Events) + len(ev.Raw)/work.BytesPerUnit) {
			return false, b.Err()
		}
		if !selects(l.Events, ev) {
			return false, nil
		}
		if l.Condition == nil || ev.Raw == nil {
			return true, nil
		}
		if env == nil {
			own = work.Counted(conditionWork)
			env = tick.NewEnv(own)
		}
		own.Renew(conditionWork)
		env.Renew(&tick.Event{
			Key: ev.Key.String(), Type: ev.Type, Timestamp: ev.Timestamp, Data: tick.Raw(ev.Data),
			Metadata: tick.Raw(ev.Metadata),
		})
		selected := holds(l.Condition, env)
		if !b.Spend(int(own.Spent())) {
			return false, b.Err()
		}
		return selected, nil
	}
}

// shown returns an event as it is delivered. One that cannot be read has no bytes: it is delivered to listeners of its
// type, whatever their conditions, and the delivery fails.
func (o *Options) shown(ctx context.Context, t j17.Tenant, ev *j17.Event) (*j17.Event, error) {
	shown, err := o.Shown.Show(ctx, t, ev)
	if upcast.Failure(err) != nil {
		return shown, nil
	}
	return shown, err
}

// holds tests a condition. If that takes too much work, it returns true, so that the event is delivered rather than
// lost.
func holds(condition *tick.Predicate, env *tick.Env) bool {
	is, ok, err := condition.Test(env)
	return err != nil || ok && is
}

func selects(patterns []spec.Pattern, ev *j17.Event) bool {
	for _, p := range patterns {
		if p.Matches(ev.Key.Type, ev.Type) || p.Matches(ev.Key.Type, ev.AsStored().Type) {
			return true
		}
	}
	return false
}
