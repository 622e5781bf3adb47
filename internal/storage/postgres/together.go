package postgres

import (
	"context"

	"j17"
	"j17/internal/storage/store"
)

// combined is what a call of ReadTogether has asked, and where the answers are.
type combined struct {
	*core

	tenant j17.Tenant
	what   *store.Wanted
	// numbers are those of the items' spaces, pages the questions for those pages that can have items.
	numbers []int16
	pages   []pageQuestion
	// unknown are spaces without a number.
	unknown []store.Space
	// items and heads are the indexes of the answers, -1 for what cannot exist; pageAt those in pages.
	items, heads, pageAt []int
}

// ReadTogether is part of store.Moments.
func (l *lookups) ReadTogether(ctx context.Context, t j17.Tenant, what store.Wanted) (store.Found, error) {
	if err := l.admits(t); err != nil {
		return store.Found{}, err
	}
	for {
		k := &combined{core: l.core, tenant: t, what: &what}
		if err := k.prepare(ctx); err != nil {
			return store.Found{}, err
		}
		found, err := l.readCombined(ctx, k)
		if err != nil {
			return store.Found{}, err
		}
		if outdated, err := k.outdated(ctx); err != nil || !outdated {
			return found, err
		}
	}
}

// readCombined makes the round trip.
func (l *lookups) readCombined(ctx context.Context, k *combined) (store.Found, error) {
	if len(k.pages) == 0 {
		g, err := l.ask(ctx, "several things as of one moment", k.add)
		if err != nil {
			return store.Found{}, err
		}
		return k.found(&g.questions)
	}

	// Others do not wait for pages.
	q := &questions{}
	k.add(q)
	err := l.read(ctx, "several things as of one moment", func(conn reading) error { return q.ask(ctx, conn) })
	if err != nil {
		return store.Found{}, err
	}
	return k.found(q)
}

// outdated reports whether something was written to a space meanwhile that had no number before: the other answers may
// show the same write.
func (k *combined) outdated(ctx context.Context) (bool, error) {
	for _, space := range k.unknown {
		if number, err := k.spaces.number(ctx, space); err != nil || number != noSpace {
			return err == nil, err
		}
	}
	return false, nil
}

// prepare finds the numbers of spaces.
func (k *combined) prepare(ctx context.Context) (err error) {
	k.numbers = make([]int16, len(k.what.Items))
	for i, name := range k.what.Items {
		if k.numbers[i], err = k.spaces.number(ctx, name.Space); err != nil {
			return err
		}
		if k.numbers[i] == noSpace {
			k.unknown = append(k.unknown, name.Space)
		}
	}
	k.pageAt = make([]int, len(k.what.Pages))
	for i, p := range k.what.Pages {
		if _, known := k.spaces.known(p.Space); !known {
			k.unknown = append(k.unknown, p.Space)
		}
		q, ok, err := k.itemQuery(ctx, k.tenant, p.Space, p.Keys)
		if err != nil {
			return err
		}
		if k.pageAt[i] = -1; ok && p.Limit > 0 {
			k.pageAt[i] = len(k.pages)
			k.pages = append(k.pages, pageQuestion{itemQuery: q, space: p.Space, limit: p.Limit})
		}
	}
	return nil
}

// add asks the questions.
func (k *combined) add(q *questions) {
	q.asOfOne = true
	q.states.add(k.tenant)
	k.items = make([]int, len(k.numbers))
	for i, number := range k.numbers {
		if k.items[i] = -1; number != noSpace {
			k.items[i] = q.items.add(k.tenant, number, k.what.Items[i].Key, true)
		}
	}
	k.heads = q.heads.addAll(k.tenant, k.what.Heads)
	q.pages = append(q.pages, k.pages...)
}

// found returns the answers.
func (k *combined) found(q *questions) (found store.Found, err error) {
	found = store.Found{
		Heads: q.heads.at(k.heads), Items: make([]store.Item, len(k.items)),
		Pages: make([]store.FoundPage, len(k.pageAt)),
	}
	if row := q.states.rows[k.tenant]; row != nil {
		found.Position = row.last
	}
	now := k.clock.Now().UnixNano()
	for i, at := range k.items {
		if at < 0 || !q.items.items[at].Live(now) {
			continue
		}
		name := k.what.Items[i]
		if found.Items[i], err = k.itemOf(name.Space, name.Key, &q.items.items[at]); err != nil {
			return store.Found{}, err
		}
	}
	for i, at := range k.pageAt {
		if at < 0 {
			continue
		}
		p := &q.pages[at]
		found.Pages[i].More = p.more
		if found.Pages[i].Items, err = k.itemsOf(p.space, p.items); err != nil {
			return store.Found{}, err
		}
	}
	return found, nil
}
