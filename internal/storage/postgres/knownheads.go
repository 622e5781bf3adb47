package postgres

import (
	"sync"

	"j17"
	"j17/internal/storage/store"
)

// knownHeads are heads that look-ups have found. They count only for a caller that has read the tenant's row since and
// found it unchanged: reading one row takes less than reading the heads of many streams.
type knownHeads struct {
	mu      sync.Mutex
	tenants map[j17.Tenant]*knownTenant
	cache   cache
}

// knownTenant is what a tenant was like when its heads were found.
type knownTenant struct {
	// server is the server that was asked. Another one may have given the same version to other changes.
	server *server
	row    tenantRow
	// change is the number of the tenant's latest change that this process knew of.
	change uint64
	// epoch is part of the cache keys of the tenant. It changes with the row.
	epoch uint32
}

// same reports whether two rows are those of the same state of a tenant. Nil is the row of a tenant without one.
func (r *tenantRow) same(as *tenantRow) bool {
	return r != nil && as != nil && r.t == as.t && r.ver == as.ver && r.term == as.term
}

// heads returns what is known of streams, and as of which state of the tenant; nil unless all of them are known and
// this process knows of no later change.
func (k *knownHeads) heads(t j17.Tenant, change uint64, keys []j17.Key) (heads []store.Head, as knownTenant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.tenants[t]
	if at == nil || at.change != change {
		return nil, as
	}
	heads = make([]store.Head, len(keys))
	for i, key := range keys {
		if !canExist(key) {
			continue
		}
		var known bool
		if heads[i], known = k.cache.head(at.headKey(key)); !known {
			return nil, as
		}
	}
	return heads, *at
}

func (t *knownTenant) headKey(key j17.Key) headKey { return headKey{uint32(t.row.t), t.epoch, key} }

// remember adds heads that were found as of a state of a tenant. change is the number of its latest change that this
// process knew of before.
func (k *knownHeads) remember(
	t j17.Tenant, of *server, row *tenantRow, change uint64, keys []j17.Key, heads []store.Head,
) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.tenants[t]
	switch {
	case at == nil:
		at = &knownTenant{server: of, row: *row, change: change}
		if k.tenants == nil {
			k.tenants = map[j17.Tenant]*knownTenant{}
		}
		k.tenants[t] = at
	case at.server != of || !at.row.same(row):
		at.server, at.row, at.change, at.epoch = of, *row, change, at.epoch+1
	default:
		at.change = max(at.change, change)
	}
	for i, key := range keys {
		if canExist(key) {
			k.cache.putHead(at.headKey(key), heads[i])
		}
	}
}
