package scenario

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/edge/client"
	"j17/internal/lang/diag"
)

// Failure is one thing that is not as a scenario says.
type Failure struct {
	// Line is that of the expectation in the scenario's file.
	Line int `json:"line"`
	// Message is a sentence without a full stop. What is compared stands in Expected and Got, as JSON, if anything is.
	Message  string `json:"message"`
	Expected string `json:"expected,omitempty"`
	Got      string `json:"got,omitempty"`
}

// Run runs a scenario with fresh identifiers and returns what is not as it says. The error is that of a server that
// cannot be used, or of the context. past, unless it is nil, stores events of "given" that nobody would write now.
func (s *Scenario) Run(ctx context.Context, c *client.Client, past *Past) ([]Failure, error) {
	r := run{Scenario: s, client: c, past: past, ids: map[string]string{}, pattern: placeholders()}
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	return r.failures, nil
}

// run is one run of a scenario.
type run struct {
	*Scenario
	client   *client.Client
	past     *Past
	ids      map[string]string
	pattern  *regexp.Regexp
	failures []Failure
}

func (r *run) run(ctx context.Context) error {
	for i := range r.given {
		refused, err := r.begin(ctx, &r.given[i])
		if err != nil {
			return err
		}
		if refused != nil {
			r.fail(r.given[i].at, "a write of \"given\" was refused: "+refused.Error())
			return nil // The rest would mean nothing.
		}
	}
	if r.when != nil {
		if done, err := r.act(ctx); err != nil || !done {
			return err
		}
	}
	for _, m := range r.then.states.Members() {
		if err := r.compareState(ctx, m.Key, m.Value); err != nil {
			return err
		}
	}
	for _, m := range r.then.projections.Members() {
		if err := r.compareProjection(ctx, m.Key, m.Value); err != nil {
			return err
		}
	}
	return nil
}

// act makes the write of the scenario and compares its answer. It reports whether the rest of the scenario means
// anything.
func (r *run) act(ctx context.Context) (bool, error) {
	correlation, err := uuid.NewRandom()
	if err != nil {
		return false, err
	}
	receipt, refused, err := r.write(ctx, r.when, correlation.String())
	if err != nil {
		return false, err
	}
	switch then := r.at.Key("then"); {
	case refused == nil && r.then.refused != "":
		r.failures = append(r.failures, Failure{
			Line: r.line(then.Key("refused")), Message: "the write was to be refused, and was not", Expected: diag.Quote(r.then.refused),
		})
	case refused == nil && !r.then.failure.IsMissing():
		r.fail(then.Key("error"), "the write was to be refused, and was not")
	case refused == nil:
	case r.then.refused != "":
		if got := reason(refused); got != r.then.refused {
			r.failures = append(r.failures, Failure{
				Line: r.line(then.Key("refused")), Message: "the write was refused for another reason: " + r.named(refused.Error()),
				Expected: diag.Quote(r.then.refused), Got: diag.Quote(got),
			})
		}
	case !r.then.failure.IsMissing():
		r.compare(then.Key("error"), "the error", r.expand(r.then.failure), failureValue(refused), false)
	default:
		r.fail(r.when.at, "the write was refused: "+refused.Error())
		return false, nil
	}
	if r.then.hasImplied {
		err = r.compareImplied(ctx, receipt, correlation.String())
	}
	return true, err
}

// write makes a write. A refusal by the application is no error here.
func (r *run) write(ctx context.Context, w *write, correlation string) (client.Receipt, *client.Error, error) {
	actor, _ := j17.ParseKey(r.fill(w.actor))
	if w.several != nil {
		return r.transaction(ctx, w, j17.Agent(actor), correlation)
	}
	o := client.WriteOptions{
		Actor: j17.Agent(actor), PreviousLength: w.previous, SkipOCC: w.skipOCC,
		IdempotencyKey: "scenario-" + rand.Text(), CorrelationID: correlation,
	}
	if target, ok := j17.ParseKey(r.fill(w.target)); ok {
		o.Target = (*j17.Agent)(&target)
	}
	if !w.conditions.IsMissing() {
		o.Conditions = r.expand(w.conditions).AppendJSON(nil)
	}
	key, _ := j17.ParseKey(r.fill(w.key))
	events := r.events(w)
	var receipt client.Receipt
	var err error
	if len(events) == 1 {
		receipt, err = r.client.PostEvent(ctx, key, events[0], o)
	} else {
		receipt, err = r.client.PostBatch(ctx, key, events, o)
	}
	if refused, ok := errors.AsType[*client.Error](err); ok && aboutApplication(refused) {
		return receipt, refused, nil
	}
	return receipt, nil, err
}

// transaction makes a write to several aggregates.
func (r *run) transaction(
	ctx context.Context, w *write, actor j17.Agent, correlation string,
) (receipt client.Receipt, refused *client.Error, err error) {
	body := wire.WriteTransaction{Metadata: wire.Agents{Actor: wire.Agent(actor)}}
	if target, ok := j17.ParseKey(r.fill(w.target)); ok {
		body.Metadata.Target = &wire.Target{Type: target.Type, ID: target.ID}
	}
	for i := range w.several {
		one := &w.several[i]
		body.Writes = append(body.Writes, wire.NewWrite{
			Key: r.fill(one.key), As: one.as, Events: r.events(one), PreviousLength: one.previous,
		})
	}
	conditions := json.RawMessage(nil)
	if !w.conditions.IsMissing() {
		conditions = r.expand(w.conditions).AppendJSON(nil)
	}
	raw, err := json.Marshal(struct {
		wire.WriteTransaction

		Conditions json.RawMessage `json:"conditions,omitempty"`
	}{body, conditions})
	if err != nil {
		return receipt, nil, err
	}
	got, err := r.client.Transaction(ctx, raw, client.TransactionOptions{
		IdempotencyKey: "scenario-" + rand.Text(), CorrelationID: correlation,
	})
	if refused, ok := errors.AsType[*client.Error](err); ok && aboutApplication(refused) {
		return receipt, refused, nil
	}
	if err != nil {
		return receipt, nil, err
	}
	receipt.ImpliedCount, receipt.StreamIDs = got.ImpliedCount, got.Writes[0].StreamIDs
	return receipt, nil, nil
}

// events returns the events of a write with placeholders filled in.
func (r *run) events(w *write) []client.NewEvent {
	events := make([]client.NewEvent, len(w.events))
	for i, ev := range w.events {
		events[i] = client.NewEvent{
			Type: ev.name, Data: r.expand(ev.data).AppendJSON(nil), Generation: ev.generation,
		}
	}
	return events
}

// aboutApplication distinguishes refusals that a scenario may expect from those that make running it pointless.
func aboutApplication(e *client.Error) bool {
	const firstServerError = 500
	//nolint:exhaustive // all others are about the request
	switch e.Problem.Code {
	case j17.CodeUnauthorized, j17.CodeForbidden, j17.CodeWrongEnvironment, j17.CodeWrongInstance,
		j17.CodeInsufficientScope, j17.CodeRateLimited,
		j17.CodeNotFound, j17.CodeMisdirected, j17.CodeInternal:
		return false
	case j17.CodeCustomCodeFailed:
		return true
	}
	return e.Status < firstServerError
}

// reason is the name of a refusal: the guard's code, else the code of the error.
func reason(e *client.Error) string {
	var declared struct {
		Requirement string `json:"requirement"`
	}
	if raw, ok := e.Problem.Details.(json.RawMessage); ok && json.Unmarshal(raw, &declared) == nil &&
		declared.Requirement != "" {
		return declared.Requirement
	}
	return string(e.Problem.Code)
}

// failureValue is a refusal as scenarios describe it.
func failureValue(e *client.Error) value.Value {
	p := e.Problem
	members := []value.Member{
		{Key: "code", Value: value.StringValue(string(p.Code))},
		{Key: "status", Value: value.Int(int64(e.Status))},
		{Key: "message", Value: value.StringValue(p.Message)},
	}
	if p.Path != "" {
		members = append(members, value.Member{Key: "path", Value: value.StringValue(p.Path)})
	}
	for name, v := range map[string]any{"errors": p.Errors, "details": p.Details} {
		raw, err := json.Marshal(v)
		if err != nil || string(raw) == "null" {
			continue
		}
		if parsed, err := value.Parse(raw); err == nil {
			members = append(members, value.Member{Key: name, Value: parsed})
		}
	}
	return value.ObjectValue(members...)
}

func (r *run) compareState(ctx context.Context, name string, expected value.Value) error {
	key, _ := j17.ParseKey(r.fill(name))
	got := value.Value{}
	state, err := r.client.State(ctx, key, client.StateOptions{})
	switch {
	case err == nil:
		if got, err = value.Parse(state.Data); err != nil {
			return fmt.Errorf("the state of %s cannot be read: %w", key, err)
		}
	case j17.CodeOf(err) == j17.CodeAggregateNotFound:
	case j17.CodeOf(err) == j17.CodeUnknownType:
		r.fail(r.at.Key("then").Key("state").Key(name), err.Error())
		return nil
	default:
		return err
	}
	expected = r.expand(expected)
	if state.Length == 0 && expected.Get(matchAbsent).Truth() {
		got = value.Value{} // Singletons answer with a state before their first event.
	}
	if r.then.exact && expected.Kind() == value.Object {
		got = withoutTimestamps(expected, got)
	}
	r.compare(r.at.Key("then").Key("state").Key(name), "the state of "+name, expected, got, r.then.exact)
	return nil
}

// compareProjection compares what a projection yields.
func (r *run) compareProjection(ctx context.Context, name string, expected value.Value) error {
	at := r.at.Key("then").Key("projection").Key(name)
	v, _ := parseView(r.fill(name))
	got := value.Value{}
	projected, err := r.client.Projection(ctx, v.name, v.id, client.ProjectionOptions{Params: v.params})
	switch refused, ok := errors.AsType[*client.Error](err); {
	case err == nil:
		if got, err = value.Parse(projected.Data); err != nil {
			return fmt.Errorf("what the projection %s yields cannot be read: %w", name, err)
		}
	case j17.CodeOf(err) == j17.CodeAggregateNotFound:
	case ok && (aboutApplication(refused) || refused.Problem.Code == j17.CodeUnknownProjection):
		r.fail(at, err.Error())
		return nil
	default:
		return err
	}
	r.compare(at, "what the projection "+name+" yields", r.expand(expected), got, r.then.exact)
	return nil
}

// withoutTimestamps leaves out what the server adds to every state, unless it is expected.
func withoutTimestamps(expected, got value.Value) value.Value {
	ed := value.NewEditor()
	for _, name := range []string{"created_at", "updated_at"} {
		if expected.Get(name).IsMissing() && got.Kind() == value.Object {
			got = ed.RemoveMember(got, name)
		}
	}
	return got
}

// compareImplied compares the events that followed from the write with the expected ones, in any order.
func (r *run) compareImplied(ctx context.Context, receipt client.Receipt, correlation string) error {
	p := r.at.Key("then").Key("implied")

	// What each of the aggregates got from this write.
	got := map[string][]value.Value{} // by key
	for _, e := range r.then.implied {
		key := r.fill(e.key)
		if _, ok := got[key]; ok || len(receipt.StreamIDs) == 0 {
			continue
		}
		events, err := r.impliedOf(ctx, key, receipt.StreamIDs[0], correlation)
		if err != nil {
			return err
		}
		got[key] = events
	}
	for _, e := range r.then.implied {
		key := r.fill(e.key)

		// An event counts for one expectation: the one that it fits, or else the last of its type.
		best, found := -1, false
		for i, ev := range got[key] {
			if ev.Get("type").Str() != e.name {
				continue
			}
			if best = i; len(differences(r.expand(e.data), ev.Get("data"), "", r.then.exact)) == 0 {
				found = true
				break
			}
		}
		switch {
		case best < 0:
			r.fail(e.at, fmt.Sprintf("the write implied no event %s of %s", e.name, e.key))
			continue
		case !found:
			r.compare(e.at.Key("data"), fmt.Sprintf("the data of the implied event %s of %s", e.name, e.key), r.expand(e.data), got[key][best].Get("data"), r.then.exact)
		}
		got[key] = append(got[key][:best:best], got[key][best+1:]...)
	}

	if n := len(r.then.implied); receipt.ImpliedCount != n {
		r.failures = append(r.failures, Failure{
			Line: r.line(p), Message: "the number of implied events is another", Expected: strconv.Itoa(n), Got: strconv.Itoa(receipt.ImpliedCount),
		})
	}
	return nil
}

// impliedOf returns the events of an aggregate that a write has brought about.
func (r *run) impliedOf(ctx context.Context, name, after, correlation string) ([]value.Value, error) {
	key, _ := j17.ParseKey(name)
	var implied []value.Value
	for raw, err := range r.client.Events(ctx, key, client.EventsOptions{Start: after}) {
		if err != nil && (j17.CodeOf(err) == j17.CodeAggregateNotFound || j17.CodeOf(err) == j17.CodeUnknownType) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		ev, err := value.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("an event of %s cannot be read: %w", name, err)
		}
		if m := ev.Get("metadata"); m.Get("correlation_id").Str() == correlation && !m.Get("implied_by").IsMissing() {
			implied = append(implied, ev)
		}
	}
	return implied, nil
}

// fill replaces the placeholders of a text: each name stands for one identifier throughout a run.
func (r *run) fill(s string) string {
	return r.pattern.ReplaceAllStringFunc(s, func(placeholder string) string {
		name := r.pattern.FindStringSubmatch(placeholder)[1]
		if _, ok := r.ids[name]; !ok {
			r.ids[name] = fresh(name)
		}
		return r.ids[name]
	})
}

// fresh returns an unused identifier: a UUID of version 4, or of 7 for names that begin with "uuid7:", or a humane code
// for "code:".
func fresh(name string) string {
	switch kind, _, _ := strings.Cut(name, ":"); kind {
	case "uuid7":
		return uuid.Must(uuid.NewV7()).String()
	case "code":
		const alphabet, length = "0123456789ABCDEFGHJKMNPQRSTVWXYZ", 9
		b := make([]byte, length)
		_, _ = rand.Read(b) // never fails
		for i := range b {
			b[i] = alphabet[int(b[i])%len(alphabet)]
		}
		return string(b)
	default:
		return uuid.New().String()
	}
}

// expand replaces the placeholders in all texts and member names of a value.
func (r *run) expand(v value.Value) value.Value {
	switch v.Kind() {
	case value.String:
		return value.StringValue(r.fill(v.Str()))
	case value.Array:
		elems := make([]value.Value, v.Len())
		for i, e := range v.Elems() {
			elems[i] = r.expand(e)
		}
		return value.ArrayValue(elems...)
	case value.Object:
		members := make([]value.Member, v.Len())
		for i, m := range v.Members() {
			members[i] = value.Member{Key: r.fill(m.Key), Value: r.expand(m.Value)}
		}
		return value.ObjectValue(members...)
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	return v
}

// named turns the identifiers of a run in a text back into their placeholders.
func (r *run) named(s string) string {
	for name, id := range r.ids {
		s = strings.ReplaceAll(s, id, "{{"+name+"}}")
	}
	return s
}

func (r *run) fail(p diag.Pointer, message string) {
	r.failures = append(r.failures, Failure{Line: r.line(p), Message: r.named(message)})
}

// compare adds what differs between an expectation at p and what there is.
func (r *run) compare(p diag.Pointer, what string, expected, got value.Value, exact bool) {
	for _, d := range differences(expected, got, "", exact) {
		message := what
		if d.at != "" {
			message += ", " + strings.TrimPrefix(strings.ReplaceAll(string(d.at), "/", "."), ".") + ","
		}
		r.failures = append(r.failures, Failure{
			Line: r.line(diag.Pointer(r.named(string(p + d.at)))), Message: r.named(message) + " is not as expected",
			Expected: r.named(d.expected), Got: r.named(cmp.Or(d.got, "nothing")),
		})
	}
}
