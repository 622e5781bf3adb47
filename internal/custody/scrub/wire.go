package scrub

import "j17/internal/base/wire"

// Wire returns the status as clients see it.
func (st *Status) Wire() wire.Scrub {
	shape := wire.Scrub{
		Phase: st.Phase, Environment: string(st.Tenant), Pass: st.Pass.wire(), NextAt: wire.OrNull(st.Next),
		Damaged: []wire.Damage{},
	}
	if st.Last != nil {
		last := st.Last.wire()
		shape.Last = &last
	}
	for i := range st.Damaged {
		f := &st.Damaged[i]
		shape.Damaged = append(shape.Damaged, wire.Damage{
			What: f.What, Where: f.Where, Error: f.Error, Environment: string(f.Tenant), FoundAt: f.At,
		})
	}
	return shape
}

func (p *Pass) wire() wire.ScrubPass {
	return wire.ScrubPass{
		Number: p.Number, BeganAt: wire.OrNull(p.BeganAt), EndedAt: wire.OrNull(p.EndedAt),
		Tables: p.Tables, Events: p.Events, Streams: p.Streams, Items: p.Items, Bytes: p.Bytes,
	}
}
