package decider

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"iter"
	"maps"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// Holders returns the holders of unique values, each of which only one aggregate may have.
type Holders interface {
	// Holder returns the aggregate that holds a value of a set, the zero Key for none.
	Holder(ctx context.Context, set *spec.UniqueSet, value [32]byte) (j17.Key, error)
	// Held returns the value that an aggregate holds in a set; ok is false for none.
	Held(ctx context.Context, set *spec.UniqueSet, key j17.Key) (value [32]byte, ok bool, err error)
}

// Exchange is what an event does to one set of unique values.
type Exchange struct {
	Set *spec.UniqueSet
	// Of is the declaration of the value that the event takes for its aggregate, and Value its digest. Of is nil if the
	// event gives back the value that the aggregate holds.
	Of    *spec.UniqueValue
	Value [32]byte
}

// MaxUnique bounds the bytes of a unique value, and those of its scope.
const MaxUnique = 1 << 10

// uniqueLimit bounds the JSON text of either before it is decoded: escapes make a text longer.
const uniqueLimit = 8 * MaxUnique

// Exchanges returns what an event gives back and what it takes, in this order. e is the environment of the event.
// Errors are those of e's budget, CodeInvalidOperand for values that cannot be unique, and CodeSchemaViolation for
// values that are too long; at is the declaration of the value with the error.
func Exchanges(
	typ *spec.AggregateType, et *spec.EventType, e *tick.Env,
) (all []Exchange, at *spec.UniqueValue, err error) {
	all = releases(typ, et)
	for _, u := range et.Unique {
		digest, ok, err := takes(u, e)
		if err != nil {
			return nil, u, err
		}
		if ok {
			all = append(all, Exchange{Set: typ.Unique[u.Name], Of: u, Value: digest})
		}
	}
	return all, nil, nil
}

// PastExchanges is Exchanges for a stored event: it ignores values that cannot be unique.
func PastExchanges(typ *spec.AggregateType, et *spec.EventType, e *tick.Env) []Exchange {
	all := releases(typ, et)
	for _, u := range et.Unique {
		if digest, ok, err := takes(u, e); ok && err == nil {
			all = append(all, Exchange{Set: typ.Unique[u.Name], Of: u, Value: digest})
		}
	}
	return all
}

// releases returns what an event gives back.
func releases(typ *spec.AggregateType, et *spec.EventType) (all []Exchange) {
	for _, name := range et.Releases {
		all = append(all, Exchange{Set: typ.Unique[name]})
	}
	return all
}

// exchanges reports whether events of a type take unique values or give them back.
func exchanges(et *spec.EventType) bool { return et.Unique != nil || et.Releases != nil }

// exchange lets event number i give back unique values, and take others if they are free.
func (x *Decision) exchange(ctx context.Context, i int) error {
	o := &x.Events[i]
	if !exchanges(o.Spec) {
		return nil
	}
	if x.Unique == nil {
		x.Unique = NewValues(x.Holders)
	}
	e := tick.NewEnv(x.Work)
	e.Renew(o.seen(x.Timestamp))
	typ := x.d.Types[o.Key.Type]
	all, at, err := Exchanges(typ, o.Spec, e)
	switch j17.CodeOf(err) { //nolint:exhaustive // all others are not refusals
	case j17.CodeInvalidOperand, j17.CodeSchemaViolation:
		return x.forbid(i, err, RefusalDetails{Pointer: at.Pointer, Unique: at.Name})
	case j17.CodeWorkLimit:
		return x.tooMuch(err, i, "its unique values", at.Pointer)
	}
	if err != nil {
		return err
	}
	if !x.Work.Start(work.Unique, len(all), 0) {
		return x.Work.Err()
	}
	taken, holder, err := x.Unique.Apply(ctx, o.Key, all)
	if taken == nil || err != nil {
		return err
	}
	return x.forbid(i, notUnique(taken), RefusalDetails{
		Pointer: taken.Of.Pointer, Unique: taken.Set.Name, Holder: holder.String(),
	})
}

// Exchange sets o.Exchanges for an event that happened at a Unix second. The errors are those of Exchanges. For an
// event of an unknown type it does nothing.
func (d *Decider) Exchange(ctx context.Context, o *Event, at int64) error {
	if o.Spec == nil || !exchanges(o.Spec) {
		return nil
	}
	e := tick.NewEnv(work.New(ctx, work.Command))
	e.Renew(o.seen(at))
	var err error
	o.Exchanges, _, err = Exchanges(d.Types[o.Key.Type], o.Spec, e)
	return err
}

// NotUnique returns the error for an event that happened before and would take a value that another aggregate holds. It
// adds the set to the details.
func NotUnique(taken *Exchange, details RefusalDetails) error {
	details.Pointer, details.Unique = taken.Of.Pointer, taken.Set.Name
	return detailed(notUnique(taken), details)
}

func notUnique(taken *Exchange) error {
	return uniqueAt(taken.Of, j17.Errorf(j17.CodeNotUnique, "Another aggregate holds the value of the unique set '%s' that the event would take. Take another value, or let that one give it back first.", taken.Set.Name))
}

// takes returns the digest of the value that an event takes. ok is false if a part of the value is null: the event then
// takes none.
func takes(u *spec.UniqueValue, e *tick.Env) (digest [32]byte, ok bool, err error) {
	// Add the scope. Null is a scope as well.
	c := canonical{name: u.Name}
	scope := value.NullValue()
	if u.Scope != nil {
		if scope, ok, err = u.Scope.Eval(e, uniqueLimit); err != nil {
			return digest, false, c.fault(err)
		}
		if !ok {
			scope = value.NullValue()
		}
	}
	if err := c.add(scope); err != nil {
		return digest, false, err
	}

	// Add the parts of the value.
	c.bytes = 0
	if !u.One {
		c.list(len(u.Values))
	}
	for _, t := range u.Values {
		part, ok, err := t.Eval(e, uniqueLimit)
		switch {
		case err != nil:
			return digest, false, uniqueAt(u, c.fault(err))
		case !ok, part.IsMissing(), part.Kind() == value.Null:
			return digest, false, nil
		}
		if err := c.add(part); err != nil {
			return digest, false, uniqueAt(u, err)
		}
	}
	return sha256.Sum256(c.text), true, nil
}

// uniqueAt adds to an error the path of the value in the event, if the value is one plain path.
func uniqueAt(u *spec.UniqueValue, err error) error {
	if u.Path == "" {
		return err
	}
	return j17.At(err, u.Path)
}

// canonical builds the canonical text of a value, which is the same for all equal values.
type canonical struct {
	// name is the name of the set.
	name string
	text []byte
	// bytes is the total of the bytes of texts, the digits of numbers, and one for every other value.
	bytes int
}

// add adds a value: texts by their code points, numbers by their numeric value.
func (c *canonical) add(v value.Value) error {
	switch v.Kind() {
	case value.String:
		c.text = binary.AppendUvarint(append(c.text, 's'), uint64(len(v.Str())))
		c.text = append(c.text, v.Str()...)
		c.bytes += max(len(v.Str()), 1)
	case value.Number:
		if v.NumberEffort() > uniqueLimit {
			return c.fault(tick.ErrTooLarge)
		}
		digits, sign, magnitude := v.AppendDigits(nil)
		c.text = binary.AppendVarint(append(c.text, 'd', byte(sign+1)), int64(magnitude))
		c.text = append(binary.AppendUvarint(c.text, uint64(len(digits))), digits...)
		c.bytes += max(len(digits), 1)
	case value.Bool:
		tag := byte('f')
		if v.Truth() {
			tag = 't'
		}
		c.text, c.bytes = append(c.text, tag), c.bytes+1
	case value.Array:
		c.list(v.Len())
		c.bytes++
		for _, element := range v.Elems() {
			if err := c.add(element); err != nil {
				return err
			}
		}
	case value.Null, value.Missing:
		c.text, c.bytes = append(c.text, 'n'), c.bytes+1
	case value.Object:
		return j17.Errorf(j17.CodeInvalidOperand, "An object cannot be a value of the unique set '%s'. Name its members one by one, as in \"value\": [\"$.data.a\", \"$.data.b\"].", c.name)
	}
	if c.bytes > MaxUnique {
		return c.fault(tick.ErrTooLarge)
	}
	return nil
}

// list begins a list of values.
func (c *canonical) list(n int) { c.text = binary.AppendUvarint(append(c.text, 'a'), uint64(n)) }

// fault returns the error for a value that could not be evaluated.
func (c *canonical) fault(err error) error {
	if errors.Is(err, tick.ErrTooLarge) {
		return j17.Errorf(j17.CodeSchemaViolation, "The value of the unique set '%s' is longer than %d bytes.", c.name, MaxUnique)
	}
	if misfit, ok := errors.AsType[*tick.OperandError](err); ok {
		return invalidOperand(misfit, "the value of the unique set '"+c.name+"'")
	}
	return err
}

// Values tracks the holders of values while events take them and give them back, one after the other. It is for one
// goroutine.
type Values struct {
	from Holders
	// holders and held cache what was read, with the exchanges so far applied; the zero Key and nil stand for none.
	holders map[ownedValue]j17.Key
	held    map[ownerIn]*[32]byte
}

type ownedValue struct {
	set   *spec.UniqueSet
	value [32]byte
}

type ownerIn struct {
	set *spec.UniqueSet
	key j17.Key
}

// NewValues returns Values that begin with the holders of from; nil means that nothing is held.
func NewValues(from Holders) *Values {
	return &Values{from: from, holders: map[ownedValue]j17.Key{}, held: map[ownerIn]*[32]byte{}}
}

// Apply lets an aggregate exchange values, in order. If another aggregate holds a value, Apply stops and returns the
// exchange as taken, and the holder.
func (v *Values) Apply(
	ctx context.Context, key j17.Key, exchanges []Exchange,
) (taken *Exchange, holder j17.Key, err error) {
	for i := range exchanges {
		c := &exchanges[i]
		own, err := v.heldBy(ctx, c.Set, key)
		if err != nil {
			return nil, holder, err
		}
		if c.Of == nil {
			v.give(c.Set, key, own)
			continue
		}
		if own != nil && *own == c.Value {
			continue
		}
		if holder, err = v.holder(ctx, c.Set, c.Value); err != nil {
			return nil, holder, err
		}
		if holder != (j17.Key{}) {
			return c, holder, nil
		}
		v.give(c.Set, key, own)
		v.holders[ownedValue{c.Set, c.Value}] = key
		v.held[ownerIn{c.Set, key}] = &c.Value
	}
	return nil, holder, nil
}

// give frees the value that an aggregate holds.
func (v *Values) give(set *spec.UniqueSet, key j17.Key, own *[32]byte) {
	if own != nil {
		v.holders[ownedValue{set, *own}] = j17.Key{}
		v.held[ownerIn{set, key}] = nil
	}
}

func (v *Values) heldBy(ctx context.Context, set *spec.UniqueSet, key j17.Key) (*[32]byte, error) {
	at := ownerIn{set, key}
	if own, ok := v.held[at]; ok {
		return own, nil
	}
	var own *[32]byte
	if v.from == nil {
		return nil, nil
	}
	found, ok, err := v.from.Held(ctx, set, key)
	if err != nil {
		return nil, err
	}
	if ok {
		own = &found
	}
	v.held[at] = own
	return own, nil
}

func (v *Values) holder(ctx context.Context, set *spec.UniqueSet, taken [32]byte) (j17.Key, error) {
	at := ownedValue{set, taken}
	if key, ok := v.holders[at]; ok || v.from == nil {
		return key, nil
	}
	key, err := v.from.Holder(ctx, set, taken)
	if err == nil {
		v.holders[at] = key
	}
	return key, err
}

// After returns the holders after the exchanges so far.
func (v *Values) After() Holders { return holdersAfter{v} }

// Keep takes over the results of other Values, which began with After.
func (v *Values) Keep(next *Values) {
	maps.Copy(v.holders, next.holders)
	maps.Copy(v.held, next.held)
}

// holdersAfter are the holders after some exchanges.
type holdersAfter struct{ v *Values }

// Holder returns the aggregate that holds a value.
func (h holdersAfter) Holder(ctx context.Context, set *spec.UniqueSet, value [32]byte) (j17.Key, error) {
	return h.v.holder(ctx, set, value)
}

// Held returns what an aggregate holds.
func (h holdersAfter) Held(ctx context.Context, set *spec.UniqueSet, key j17.Key) (value [32]byte, ok bool, err error) {
	own, err := h.v.heldBy(ctx, set, key)
	if own == nil || err != nil {
		return value, false, err
	}
	return *own, true, nil
}

// Values yields the values whose holders were read or have changed.
func (v *Values) Values() iter.Seq2[*spec.UniqueSet, [32]byte] {
	return func(yield func(*spec.UniqueSet, [32]byte) bool) {
		for at := range v.holders {
			if !yield(at.set, at.value) {
				return
			}
		}
	}
}

// Keepers yields the aggregates whose values were read or have changed.
func (v *Values) Keepers() iter.Seq2[*spec.UniqueSet, j17.Key] {
	return func(yield func(*spec.UniqueSet, j17.Key) bool) {
		for at := range v.held {
			if !yield(at.set, at.key) {
				return
			}
		}
	}
}

// Holder returns the present holder of a value, if it was read.
func (v *Values) Holder(set *spec.UniqueSet, taken [32]byte) (key j17.Key, looked bool) {
	key, looked = v.holders[ownedValue{set, taken}]
	return key, looked
}

// Held returns the value that an aggregate holds now, nil for none, if it was read.
func (v *Values) Held(set *spec.UniqueSet, key j17.Key) (own *[32]byte, looked bool) {
	own, looked = v.held[ownerIn{set, key}]
	return own, looked
}
