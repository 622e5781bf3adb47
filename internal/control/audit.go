package control

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"iter"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/ident"
	"j17/internal/store"
)

// AuditLog is the list of who did what.
type AuditLog struct{ *items }

// Audit records are kept twice, for the whole server and under their instance, so that either list is one scan. Keys
// are made of the complement of the time in the record's UUIDv7: a scan meets the newest record first.
const (
	auditSpace         store.Space = "control.audit"
	auditInstanceSpace store.Space = "control.audit_by_instance"
)

// ActorKind tells what sort of actor did something.
type ActorKind string

// The kinds of actors.
const (
	ActorServer   ActorKind = "server" // the program itself: its start, its configuration, its workers
	ActorOperator ActorKind = "operator"
	ActorNode     ActorKind = "node"
	ActorNobody   ActorKind = "anonymous" // someone who has not logged in
)

// Actor is who does something, and from where.
type Actor struct {
	Kind ActorKind `json:"kind"`
	// ID and Email are set for operators.
	ID    string `json:"id,omitempty"`
	Email string `json:"email,omitempty"`
	// Address is the client's network address.
	Address string `json:"address,omitempty"`
}

// Outcome tells what became of an action.
type Outcome string

// The outcomes.
const (
	Done    Outcome = "done"
	Refused Outcome = "refused"
	Failed  Outcome = "failed"
)

// Record is one line of the audit log: who did what to what, when and from where. It never holds a secret.
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
	// Code is that of the error when the outcome is not Done.
	Code      j17.Code `json:"code,omitempty"`
	RequestID string   `json:"request_id,omitempty"`
	// Details are what else there is to know, in a few short words each.
	Details map[string]string `json:"details,omitempty"`
}

type auditRecord struct {
	UUID string `json:"uuid"`
	Record
}

type originKey struct{}

type origin struct {
	actor     Actor
	requestID string
}

// WithActor returns a context in which every change to a registry is recorded as the actor's. Without one it is
// the server's own.
func WithActor(ctx context.Context, a Actor, requestID string) context.Context {
	return context.WithValue(ctx, originKey{}, origin{actor: a, requestID: requestID})
}

func originOf(ctx context.Context) origin {
	if o, ok := ctx.Value(originKey{}).(origin); ok {
		return o
	}
	return origin{actor: Actor{Kind: ActorServer}}
}

// Limits of what a record's details may hold.
const (
	maxDetails = 16
	maxDetail  = 300 // bytes
)

// Add adds a record to the log. ID, At, and Actor and RequestID where they are empty, are filled in; the actor is that of
// the context. An empty outcome means Done. It returns when the record is durable. Changes that are made through the
// registry's other methods record themselves.
func (r *AuditLog) Add(ctx context.Context, rec Record) error {
	if r.upstream != nil {
		return r.addUpstream(ctx, rec)
	}
	sides, err := r.auditSides(ctx, rec)
	if err != nil {
		return err
	}
	if err := r.store.Write(ctx, j17.System, sides); err != nil {
		return failure(err)
	}
	return nil
}

// failedLoginSpace has one item, which is written over each time someone fails to log in to an account that does not exist.
const failedLoginSpace store.Space = "control.failed_logins"

// AddFailedLogin records that someone could not log in as the operator with that e-mail address. Where there is none, it
// keeps the last attempt only, since anyone can make any number of them, and takes as long, so that the time does not tell
// whether there is one.
func (r *AuditLog) AddFailedLogin(ctx context.Context, email string, code j17.Code) error {
	rec := Record{Action: "operator.login", Outcome: Refused, Code: code}
	if op := r.operatorByEmail(CanonicalEmail(email)); op != nil {
		rec.Target = op.ID
		return r.Add(ctx, rec)
	}
	sides, err := r.auditSides(ctx, rec)
	if err != nil {
		return err
	}
	sides[0].Space, sides[0].Key, sides[0].Cond = failedLoginSpace, "last", store.Always
	if err := r.store.Write(ctx, j17.System, sides); err != nil {
		return failure(err)
	}
	return nil
}

// auditSides returns the writes that add a record to the log.
func (r *items) auditSides(ctx context.Context, rec Record) ([]store.Side, error) {
	return recordSides(r.complete(ctx, rec))
}

// complete fills in what a record's maker need not say.
func (r *items) complete(ctx context.Context, rec Record) *auditRecord {
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
	return &auditRecord{UUID: r.mint.UUIDv7(), Record: rec}
}

// recordSides returns the writes that add a complete record to the log.
func recordSides(rec *auditRecord) ([]store.Side, error) {
	key := auditKey(rec.UUID, rec.ID)
	side, err := putNew(auditSpace, key, rec)
	if err != nil {
		return nil, err
	}
	sides := []store.Side{side}
	if rec.Instance != "" {
		side.Space, side.Key = auditInstanceSpace, rec.Instance+"/"+key
		sides = append(sides, side)
	}
	return sides, nil
}

// auditKey returns the key of a record: the complement of the first half of its UUIDv7, which is time and sequence, and
// the random part of its handle, since another node may have had the same moment.
func auditKey(id, handle string) string {
	half := strings.ReplaceAll(id, "-", "")[:16]
	bits, _ := strconv.ParseUint(half, 16, 64) // Ids from the minter are valid.
	_, random, _ := strings.Cut(handle, "_")
	return invertedTime(bits) + "-" + random
}

func invertedTime(bits uint64) string {
	return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, ^bits))
}

// momentKey returns a key that stands between the records of before the time t and those from t on.
func momentKey(t time.Time) string {
	ms := min(max(t.UnixMilli(), 0), 1<<48-1)
	// The smallest UUIDv7 of the millisecond; its complement is the greatest key, but for what follows it.
	return invertedTime(uint64(ms)<<16|0x7000) + "~"
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
	// Start is the Next of the page before.
	Start string
	// Visible, if not nil, tells whether the reader may see what happened in the instance of that handle ("" for none).
	Visible func(instance string) bool
}

// maxAuditScan is the number of records that one page looks at.
const maxAuditScan = 20_000

// List returns up to limit records, the newest first, and where to start the next page; "" when there is none. A page
// that had to look at very many records may be short of its limit, or empty, and still have a next one.
func (r *AuditLog) List(ctx context.Context, q AuditQuery, limit int) (records []Record, next string, err error) {
	seen, last := 0, ""
	for page, err := range r.pages(ctx, q) {
		if err != nil {
			return nil, "", err
		}
		if page.matches && len(records) == limit || seen == maxAuditScan {
			return records, last, nil
		}
		if page.matches {
			records = append(records, page.record)
		}
		seen++
		last = page.key
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
	key     string
	record  Record
	matches bool
}

// pages yields the records within the query's time and says which of them it selects.
func (r *AuditLog) pages(ctx context.Context, q AuditQuery) iter.Seq2[auditPage, error] {
	return func(yield func(auditPage, error) bool) {
		space, prefix := auditSpace, ""
		if q.Instance != "" {
			if _, err := ident.ParseHandle(q.Instance); err != nil {
				yield(auditPage{}, j17.Errorf(j17.CodeInvalidParameter, "'instance' must be the id of an instance; it starts with 'ins_'.").At("instance"))
				return
			}
			space, prefix = auditInstanceSpace, q.Instance+"/"
		}
		after := ""
		switch {
		case q.Start != "" && !isAuditKey(q.Start):
			yield(auditPage{}, j17.Errorf(j17.CodeInvalidParameter, "'start' must be the 'next' of the page before.").At("start"))
			return
		case q.Start != "":
			after = prefix + q.Start
		case !q.To.IsZero():
			after = prefix + momentKey(q.To)
		}
		for {
			items, err := r.store.Scan(ctx, j17.System, space, store.Prefix(prefix).After(after), scanLimit)
			if err != nil {
				yield(auditPage{}, failure(err))
				return
			}
			for _, it := range items {
				var rec auditRecord
				if err := json.Unmarshal(it.Value, &rec); err != nil {
					yield(auditPage{}, failure(&store.CorruptionError{Where: string(space) + "/" + it.Key, Err: err}))
					return
				}
				if !q.From.IsZero() && rec.At.Before(q.From.Truncate(time.Millisecond)) {
					return
				}
				if !yield(auditPage{key: strings.TrimPrefix(it.Key, prefix), record: rec.Record, matches: q.selects(&rec.Record)}, nil) {
					return
				}
				after = it.Key
			}
			if len(items) < scanLimit {
				return
			}
		}
	}
}

func isAuditKey(s string) bool {
	at, random, _ := strings.Cut(s, "-")
	_, err := hex.DecodeString(at)
	_, handle := ident.ParseHandle(string(ident.AuditPrefix) + "_" + random)
	return err == nil && handle == nil && len(at) == 16
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
	case !q.To.IsZero() && !rec.At.Before(q.To):
		return false
	}
	return q.Visible == nil || q.Visible(rec.Instance)
}

// record commits a change together with its audit record. The caller holds r.change.
func (r *items) record(ctx context.Context, rec Record, apply func(*known), side ...store.Side) error {
	audit, err := r.auditSides(ctx, rec)
	if err != nil {
		return err
	}
	return r.commit(ctx, apply, append(side, audit...)...)
}

// recordFreeing is record for changes that take something away, and so may make room: they are possible on a full disk too.
func (r *items) recordFreeing(ctx context.Context, rec Record, apply func(*known), side ...store.Side) error {
	if r.upstream != nil {
		return readOnly()
	}
	audit, err := r.auditSides(ctx, rec)
	if err != nil {
		return err
	}
	side = append(side, audit...)
	return r.committed(ctx, r.store.WriteFreeing(ctx, j17.System, side), apply, side)
}

// ActorOf returns who acts in a context, and in which request (WithActor).
func ActorOf(ctx context.Context) (a Actor, requestID string) {
	o := originOf(ctx)
	return o.actor, o.requestID
}
