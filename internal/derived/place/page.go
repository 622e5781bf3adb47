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

// Ask is a query by one of Near, In and Having.
type Ask struct {
	Type string
	// Near selects points around a point, nearest first; its After does not count.
	Near *Near
	// In selects points in an area, AreaText is the text of the request for the area.
	In       geo.Area
	AreaText string
	// Having selects areas that have a point.
	Having *geo.Point
	// Count is the maximum number of rows of a page, Start the Next of the previous page, "" for the first one.
	Count int
	Start string
	// Bare leaves out the states.
	Bare bool
	// Longer is how many times a page continues when it reaches its limit of work, with the same limit each time.
	Longer int
}

// Page is a part of the result, as of one position.
type Page struct {
	Position j17.StreamID
	Rows     []Row
	// Next starts the next page; "" on the last one. Early reports that the page was ended by work, and not by its
	// rows.
	Next  string
	Early bool
}

// Row is an aggregate that was found.
type Row struct {
	Found
	Names j17.Names
	// State is the state as JSON, as of the position of the page; nil if Ask leaves it out or Err is why there is none.
	State []byte
	Err   error
}

const (
	// maxBytes is the maximum size of the states of a page, unless the first one alone is larger.
	maxBytes = 8 << 20
	// loaded is how many states are loaded at once.
	loaded = 64
	// A page with more than fewRows rows gets memory for manyRows, if it may have so many.
	fewRows, manyRows = 8, 128
)

// Page answers a query with a page: all rows and their states are those of one position, which includes everything
// acknowledged before the call. A page whose rows took much work has fewer rows than it may, maybe none, and a next
// page.
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
			continue // places begun again by another process may be complete
		}
		return p, err
	}
}

// page is Page for given kinds.
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

// leaveErased removes rows from a page whose events were rewritten since they were found, and whose place has changed
// since then: their states would be the present ones.
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

// stays reports whether an aggregate still has the place that a moment shows.
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

// find fills a page with rows, as a moment shows them.
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

// query runs the query in a moment.
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

// load adds states to rows. If an aggregate cannot be folded, its row has the error.
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

// cursorBytes is the length of a cursor before the names.
const cursorBytes = 8 + 8

// digest identifies a query: its cursors are not valid for others.
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

// cursor encodes a mark for clients.
func (a *Ask) cursor(m Mark) string {
	b := binary.BigEndian.AppendUint64(a.digest(), math.Float64bits(m.Distance))
	return base64.RawURLEncoding.EncodeToString(append(b, m.Slot+"/"+m.ID...))
}

// mark returns the mark at which the page starts.
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
