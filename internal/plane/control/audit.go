package control

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/storage/store"
)

// AuditLog is the audit log: the records among the entries of the registry's log.
type AuditLog struct{ *items }

// ActorKind is the kind of an actor.
type ActorKind string

// The kinds of actors.
const (
	ActorServer   ActorKind = "server" // the program itself: its start, its configuration, its workers
	ActorOperator ActorKind = "operator"
	ActorNode     ActorKind = "node"
	ActorNobody   ActorKind = "anonymous" // someone who has not logged in
)

// Actor is the author of an action, and where the action came from.
type Actor struct {
	Kind ActorKind `json:"kind"`
	// ID and Email are set for operators.
	ID    string `json:"id,omitempty"`
	Email string `json:"email,omitempty"`
	// Address is the client's network address.
	Address string `json:"address,omitempty"`
}

// Outcome is the result of an action.
type Outcome string

// The outcomes.
const (
	Done    Outcome = "done"
	Refused Outcome = "refused"
	Failed  Outcome = "failed"
)

// Record is one line of the audit log: the actor, the action, its target, the time and the place. It never holds a
// secret.
type Record struct {
	// ID is the record's handle.
	ID string    `json:"id"`
	At time.Time `json:"at"`
	// Action is what was done, as "noun.verb": key.create, operator.grant, spec.deploy.
	Action string `json:"action"`
	Actor  Actor  `json:"actor"`
	// Instance and Environment say where; "" where that does not apply.
	Instance    string          `json:"instance,omitempty"`
	Environment j17.Environment `json:"environment,omitempty"`
	// Target is the handle or name of what was acted upon.
	Target  string  `json:"target,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Code is that of the error if the outcome is not Done.
	Code      j17.Code `json:"code,omitempty"`
	RequestID string   `json:"request_id,omitempty"`
	// Details hold further information, each in a few words.
	Details map[string]string `json:"details,omitempty"`
}

type originKey struct{}

type origin struct {
	actor     Actor
	requestID string
}

// WithActor returns a context in which every change to a registry is recorded as the actor's. Without an actor in the
// context, the server itself is recorded.
func WithActor(ctx context.Context, a Actor, requestID string) context.Context {
	return context.WithValue(ctx, originKey{}, origin{actor: a, requestID: requestID})
}

func originOf(ctx context.Context) origin {
	if o, ok := ctx.Value(originKey{}).(origin); ok {
		return o
	}
	return origin{actor: Actor{Kind: ActorServer}}
}

// Limits of a record's details.
const (
	maxDetails = 16
	maxDetail  = 300 // bytes
)

// Add adds a record to the log. It sets ID and At, and takes Actor and RequestID from the context if they are empty. An
// empty outcome means Done. It returns when the record is durable. Changes that are made through the registry's other
// methods record themselves.
func (r *AuditLog) Add(ctx context.Context, rec Record) error {
	if r.upstream != nil {
		return r.addUpstream(ctx, rec)
	}
	unit, err := r.logUnit(r.complete(ctx, rec), nil)
	if err != nil {
		return err
	}
	if _, err := r.append(ctx, unit); err != nil {
		return failure(err)
	}
	return nil
}

// failedLoginSpace has one item, which is overwritten by each failed login to an account that does not exist.
const failedLoginSpace store.Space = "control.failed_logins"

// AddFailedLogin records a failed login as the operator with that e-mail address. If there is no such operator, it
// keeps the last attempt only, since anyone can make any number of them. It writes in either case, so that its duration
// does not disclose whether the operator exists.
func (r *AuditLog) AddFailedLogin(ctx context.Context, email string, code j17.Code) error {
	rec := Record{Action: "operator.login", Outcome: Refused, Code: code}
	if op := r.operatorByEmail(CanonicalEmail(email)); op != nil {
		rec.Target = op.ID
		return r.Add(ctx, rec)
	}
	last, err := putNew(failedLoginSpace, "last", r.complete(ctx, rec))
	if err != nil {
		return err
	}
	last.Cond = store.Always
	if err := r.store.Write(ctx, j17.System, []store.Side{last}); err != nil {
		return failure(err)
	}
	return nil
}

// complete fills in the fields that the maker of a record may leave out.
func (r *items) complete(ctx context.Context, rec Record) *Record {
	from := originOf(ctx)
	if rec.Actor == (Actor{}) {
		rec.Actor = from.actor
	}
	if rec.RequestID == "" {
		rec.RequestID = from.requestID
	}
	if rec.Outcome == "" {
		rec.Outcome = Done
	}
	rec.Target, rec.Details = shortened(rec.Target), shortDetails(rec.Details)
	rec.ID, rec.At = r.mint.Handle(ident.AuditPrefix), r.clock.Now().UTC().Truncate(time.Millisecond)
	return &rec
}

func shortened(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "") + "..."
	}
	return s
}

func shortDetails(details map[string]string) map[string]string {
	if len(details) == 0 {
		return nil
	}
	short := make(map[string]string, len(details))
	for name, v := range details {
		if len(short) < maxDetails {
			short[name] = shortened(v)
		}
	}
	return short
}

// AuditQuery selects records. Empty fields select everything.
type AuditQuery struct {
	Instance string
	// Actor is the handle or the e-mail address of an operator, or a kind of actor.
	Actor string
	// Action is an action, or the noun of several: "key" selects key.create and key.revoke.
	Action  string
	Target  string
	Outcome Outcome
	// From and To bound the time: From <= At < To.
	From, To time.Time
	// Start is the next of the previous page.
	Start string
	// Visible, if not nil, reports whether the reader may see records of the instance of that handle ("" for none).
	Visible func(instance string) bool
}

const (
	// maxAuditScan is the number of records that one page reads at most.
	maxAuditScan = 20_000
	// mostLate is how late a record may be stored, as on a disk that hangs, and still be found by its time. No request
	// waits that long.
	mostLate = time.Hour
)

// List returns up to limit records, the newest first, and where the next page starts; "" if there is none. A page that
// had to read very many records may be short of its limit, or empty, and still have a next one.
func (r *AuditLog) List(ctx context.Context, q AuditQuery, limit int) (records []Record, next string, err error) {
	seen, last := 0, uint64(0)
	for page, err := range r.pages(ctx, q) {
		if err != nil {
			return nil, "", err
		}
		if page.matches && len(records) == limit || seen == maxAuditScan {
			return records, strconv.FormatUint(last, 10), nil
		}
		if page.matches {
			records = append(records, page.record)
		}
		seen++
		last = page.version
	}
	return records, "", nil
}

// Export yields every record that the query selects, the newest first.
func (r *AuditLog) Export(ctx context.Context, q AuditQuery) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for page, err := range r.pages(ctx, q) {
			if err != nil {
				yield(Record{}, err)
				return
			}
			if page.matches && !yield(page.record, nil) {
				return
			}
		}
	}
}

type auditPage struct {
	version uint64
	record  Record
	matches bool
}

// pages yields the records within the query's time, the newest first, and whether the query selects them.
func (r *AuditLog) pages(ctx context.Context, q AuditQuery) iter.Seq2[auditPage, error] {
	return func(yield func(auditPage, error) bool) {
		key, last, err := r.begin(ctx, q)
		if err != nil {
			yield(auditPage{}, err)
			return
		}
		for last > 0 {
			first := last - min(last, maxLogPage) + 1
			entries, err := r.readLog(ctx, key, first, last)
			if err != nil {
				yield(auditPage{}, err)
				return
			}
			for _, e := range slices.Backward(entries) {
				if !q.From.IsZero() && e.timestamp < q.From.Unix() {
					return
				}
				if e.Record == nil || !q.From.IsZero() && e.Record.At.Before(q.From.Truncate(time.Millisecond)) {
					continue
				}
				if !yield(auditPage{version: e.version, record: *e.Record, matches: q.selects(e.Record)}, nil) {
					return
				}
			}
			last = first - 1
		}
	}
}

// begin returns the stream of the log that answers a query, and the last version that may match.
func (r *AuditLog) begin(ctx context.Context, q AuditQuery) (key j17.Key, last uint64, err error) {
	key = logKey()
	if q.Instance != "" {
		if _, err := ident.ParseHandle(q.Instance); err != nil {
			return key, 0, j17.Errorf(j17.CodeInvalidParameter, "'instance' must be the id of an instance; it starts with 'ins_'.").At("instance")
		}
		key = instanceLogKey(q.Instance)
	}
	heads, err := r.store.Heads(ctx, j17.System, []j17.Key{key})
	if err != nil {
		return key, 0, failure(err)
	}
	last = heads[0].Length

	// Go on after the previous page.
	if q.Start != "" {
		start, err := strconv.ParseUint(q.Start, 10, 64)
		if err != nil || start < 1 {
			return key, 0, j17.Errorf(j17.CodeInvalidParameter, "'start' must be the 'next' of the page before.").At("start")
		}
		return key, min(last, start-1), nil
	}

	// Skip later records. A record has the time at which it was made, its entry the time at which it was stored.
	if q.To.IsZero() {
		return key, last, nil
	}
	stored := q.To.Add(mostLate).Unix()
	for first := uint64(0); first < last; {
		middle := first + (last-first+1)/2
		for ev, err := range r.store.ReadStream(ctx, j17.System, key, middle, middle) {
			if err != nil {
				return key, 0, failure(err)
			}
			if ev.Timestamp > stored {
				last = middle - 1
			} else {
				first = middle
			}
		}
	}
	return key, last, nil
}

func (q *AuditQuery) selects(rec *Record) bool {
	noun, _, _ := strings.Cut(rec.Action, ".")
	switch {
	case q.Actor != "" && q.Actor != rec.Actor.ID && q.Actor != rec.Actor.Email && q.Actor != string(rec.Actor.Kind):
		return false
	case q.Action != "" && q.Action != rec.Action && q.Action != noun:
		return false
	case q.Target != "" && q.Target != rec.Target:
		return false
	case q.Outcome != "" && q.Outcome != rec.Outcome:
		return false
	case !q.To.IsZero() && !rec.At.Before(q.To.Truncate(time.Millisecond)):
		return false
	}
	return q.Visible == nil || q.Visible(rec.Instance)
}

// record commits a change together with its audit record. The caller holds r.change.
func (r *items) record(ctx context.Context, rec Record, apply func(*known), side ...store.Side) error {
	return r.commit(ctx, r.complete(ctx, rec), false, apply, side...)
}

// recordFreeing is record for changes that remove something and so may free space: they are possible on a full disk
// too.
func (r *items) recordFreeing(ctx context.Context, rec Record, apply func(*known), side ...store.Side) error {
	return r.commit(ctx, r.complete(ctx, rec), true, apply, side...)
}

// ActorOf returns the actor of a context and the id of its request (WithActor).
func ActorOf(ctx context.Context) (a Actor, requestID string) {
	o := originOf(ctx)
	return o.actor, o.requestID
}
