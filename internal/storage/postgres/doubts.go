package postgres

import (
	"context"
	"sync"
)

// doubts are the tenants of batches whose outcome could not be looked up in time.
type doubts struct {
	mu      sync.Mutex
	tenants map[int32]bool
}

func (d *doubts) add(tenants []*tenant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tenants == nil {
		d.tenants = map[int32]bool{}
	}
	for _, t := range tenants {
		d.tenants[int32(t.next.Number)] = true
	}
}

// settle waits until nothing of what is in doubt is under way: the new terms of the tenants wait for it.
func (d *doubts) settle(ctx context.Context, c *core) error {
	d.mu.Lock()
	var list []int32
	for t := range d.tenants {
		list = append(list, t)
	}
	d.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	err := c.read(ctx, "the outcome of writes", func(conn reading) error {
		rows, err := conn.Query(ctx, settleTerms, list)
		if err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range list {
		delete(d.tenants, t)
	}
	return nil
}
