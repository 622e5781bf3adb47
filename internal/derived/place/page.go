package place

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/geo"
	"j17/internal/core/fold"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Ask is what is looked for: one of Near, In and Having.
type Ask struct {
	Type string
	// Near are points around a point, nearest first; its After does not count.
	Near *Near
	// In are points in an area, AreaText is what the area was asked for as.
	In       geo.Area
	AreaText string
	// Having are areas that have a point.
	Having *geo.Point
	// Count is how many rows a page has at most, Start what the page before it said as Next, "" for the first one.
	Count int
	Start string
	// Bare leaves out the states.
	Bare bool
	// Longer is how many times a page goes on where much looking would end it, with as much to look at each time.
	Longer int
}

// Page is some of what was found, as of one position.
type Page struct {
	Position j17.StreamID
	Rows     []Row
	// Next starts the next page; "" on the last one. Early reports that looking ended the page, and not its rows.
	Next  string
	Early bool
}

// Row is an aggregate that was found.
type Row struct {
	Found
	Names j17.Names
	// State is the state as JSON, as of the position of the page; nil where Ask leaves it out or Err tells why there is
	// none.
	State []byte
	Err   error
}

const (
	// maxBytes is how large the states of a page are together, unless the first one alone is larger.
	maxBytes = 8 << 20
	// loaded is how many states are loaded at once.
	loaded = 64
	// A page that has more than fewRows gets memory for manyRows, if it may have so many.
	fewRows, manyRows = 8, 128
)

// Page answers a question with a page: all rows and their states are those of one position, at which everything has
// been that was acknowledged before. A page whose rows have taken much looking has fewer than it may, maybe none, and a
// next one.
func (s *Service) Page(ctx context.Context, t j17.Tenant, a *Ask) (*Page, error) {
	shape := spec.Point
	if a.Having != nil {
		shape = spec.Polygon
	}
	after, err := a.mark()
	for again := true; ; again = false {
		kinds, unknown := s.Kinds(ctx, t, a.Type, shape)
		if err := cmp.Or(unknown, err); err != nil {
			return nil, err
		}
		p, err := s.page(ctx, t, kinds, a, after)
		if again && errors.Is(err, errMoved) {
			continue // what another process has begun again may be done
		}
		return p, err
	}
}

// page is Page for places that are known.
func (s *Service) page(ctx context.Context, t j17.Tenant, kinds *Kinds, a *Ask, after Mark) (*Page, error) {
	rewrites := s.Store.Rewrites()
	m, err := s.Store.Moment(ctx, t)
	if err != nil {
		return nil, store.UserError(err)
	}
	defer m.Close()
	p := &Page{Position: m.Position()}
	if err := s.find(ctx, kinds, a, m, after, p); err != nil {
		return nil, store.UserError(err)
	}
	if err := s.complete(ctx, t, a, p); err != nil {
		return nil, err
	}
	if s.Store.Rewrites() != rewrites {
		return p, store.UserError(s.leaveErased(ctx, t, a, m, p))
	}
	return p, nil
}

// leaveErased removes rows from a page whose events were rewritten since they were found, and whose place is another
// one since: of these the states are those of now.
func (s *Service) leaveErased(ctx context.Context, t j17.Tenant, a *Ask, m store.Moment, p *Page) error {
	keys := make([]j17.Key, len(p.Rows))
	for i := range p.Rows {
		keys[i] = j17.Key{Type: a.Type, ID: p.Rows[i].ID}
	}
	before, err := m.Heads(keys)
	if err != nil {
		return err
	}
	now, err := s.Store.Heads(ctx, t, keys)
	if err != nil {
		return err
	}
	left := p.Rows[:0]
	for i := range p.Rows {
		stays := before[i].Generation == now[i].Generation
		if !stays {
			if stays, err = s.stays(ctx, t, a.Type, &p.Rows[i], m); err != nil {
				return err
			}
		}
		if stays {
			left = append(left, p.Rows[i])
		}
	}
	p.Rows = left
	return nil
}

// stays reports whether an aggregate has the place now at which a moment shows it.
func (s *Service) stays(ctx context.Context, t j17.Tenant, aggregateType string, r *Row, m store.Moment) (bool, error) {
	key := (&slot{ID: r.Mark.Slot, typ: aggregateType}).key(r.ID)
	before, err := m.Get(places, key)
	if err != nil {
		return false, err
	}
	now, err := s.Store.Get(ctx, t, places, key)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return bytes.Equal(before.Value, now.Value), err
}

// find puts the rows of a page into it, as a moment shows them.
func (s *Service) find(ctx context.Context, kinds *Kinds, a *Ask, m store.Moment, after Mark, p *Page) error {
	longer := a.Longer
	for found, err := range a.query(ctx, kinds, m, after) {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case found.ID == "" && longer > 0:
			longer--
			continue
		case found.ID == "":
			p.Next, p.Early = a.cursor(found.Mark), true
			return nil
		case len(p.Rows) == a.Count:
			p.Next = a.cursor(p.Rows[a.Count-1].Mark)
			return nil
		}
		if len(p.Rows) == fewRows {
			p.Rows = slices.Grow(p.Rows, min(a.Count, manyRows)-fewRows)
		}
		p.Rows = append(p.Rows, Row{Found: found})
	}
	return nil
}

// query is what the question asks of a moment.
func (a *Ask) query(ctx context.Context, kinds *Kinds, m store.Moment, after Mark) iter.Seq2[Found, error] {
	switch {
	case a.Near != nil:
		near := *a.Near
		near.After = after
		return kinds.Nearby(ctx, m, near)
	case a.Having != nil:
		return kinds.Containing(ctx, m, *a.Having, after)
	default:
		return kinds.Within(ctx, m, a.In, after)
	}
}

// complete adds names and states to the rows of a page.
func (s *Service) complete(ctx context.Context, t j17.Tenant, a *Ask, p *Page) error {
	m, err := s.Engine.Moment(t, p.Position)
	if err != nil {
		return err
	}
	size := 0
	for from := 0; from < len(p.Rows); from += loaded {
		rows := p.Rows[from:min(len(p.Rows), from+loaded)]
		for i := range rows {
			if rows[i].Names, err = m.Names(ctx, j17.Key{Type: a.Type, ID: rows[i].ID}); err != nil {
				return store.UserError(err)
			}
		}
		if a.Bare {
			continue
		}
		if err := load(ctx, m, a.Type, rows); err != nil {
			return err
		}
		for i := range rows {
			if size += len(rows[i].State); size > maxBytes && from+i > 0 {
				p.Rows = p.Rows[:from+i]
				p.Next = a.cursor(p.Rows[from+i-1].Mark)
				return nil
			}
		}
	}
	return nil
}

// load adds states to rows. Of an aggregate that cannot be folded the row says why.
func load(ctx context.Context, m *fold.Moment, aggregateType string, rows []Row) error {
	var keys []j17.Key
	at := map[string]int{}
	for i := range rows {
		if _, ok := at[rows[i].ID]; !ok {
			at[rows[i].ID] = len(keys)
			keys = append(keys, j17.Key{Type: aggregateType, ID: rows[i].ID})
		}
	}
	states, err := m.Load(ctx, keys, false)
	if err == nil {
		for i := range rows {
			rows[i].State = states[at[rows[i].ID]].JSON
		}
		return nil
	}
	if _, one := errors.AsType[*fold.LoadError](err); !one || ctx.Err() != nil {
		return err
	}
	for i := range rows {
		states, err := m.Load(ctx, []j17.Key{{Type: aggregateType, ID: rows[i].ID}}, false)
		if err != nil {
			rows[i].Err = err
			continue
		}
		rows[i].State = states[0].JSON
	}
	return nil
}

// cursorBytes is the length of a cursor's part in front of the names.
const cursorBytes = 8 + 8

// digest identifies a query: a cursor is valid for its own only.
func (a *Ask) digest() []byte {
	b := append([]byte(a.Type), 0)
	switch {
	case a.Near != nil:
		b = geo.AppendPoint(append(b, 'n'), a.Near.Center)
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(a.Near.Radius))
	case a.Having != nil:
		b = geo.AppendPoint(append(b, 'h'), *a.Having)
	default:
		b = append(append(b, 'i'), a.AreaText...)
	}
	sum := sha256.Sum256(b)
	return sum[:8]
}

// cursor is a mark as a page shows it.
func (a *Ask) cursor(m Mark) string {
	b := binary.BigEndian.AppendUint64(a.digest(), math.Float64bits(m.Distance))
	return base64.RawURLEncoding.EncodeToString(append(b, m.Slot+"/"+m.ID...))
}

// mark is where the page starts.
func (a *Ask) mark() (Mark, error) {
	if a.Start == "" {
		return Mark{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(a.Start)
	if err != nil || len(b) < cursorBytes || string(b[:8]) != string(a.digest()) {
		return Mark{}, j17.Errorf(j17.CodeInvalidParameter, "'start' must be the 'next' of a page of the same question").At("start")
	}
	m := Mark{Distance: math.Float64frombits(binary.BigEndian.Uint64(b[8:]))}
	slot, id, ok := strings.Cut(string(b[cursorBytes:]), "/")
	if m.Slot, m.ID = slot, id; !ok || !(m.Distance >= 0) || len(m.ID) > store.MaxNameBytes {
		return Mark{}, j17.Errorf(j17.CodeInvalidParameter, "'start' must be the 'next' of a page of the same question").At("start")
	}
	return m, nil
}
