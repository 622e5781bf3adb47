package auth

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

// How many failed logins there may be in a row, and how often one more is allowed after that.
const (
	emailBurst     = 10
	emailInterval  = 30 * time.Second
	clientBurst    = 50
	clientInterval = 6 * time.Second
)

// throttleCells is the number of budgets in a throttle: 512 KiB.
const throttleCells = 1 << 16

// throttle gives everyone a budget of tries that fills up again with time. Budgets stand in a table of fixed size that a
// secret hash leads into: memory does not grow with the number of names tried, no flood of names makes it forget, and
// who shares a budget cannot be chosen.
type throttle struct {
	interval time.Duration
	// slack is by how much a budget may be overdrawn: all tries but one.
	slack time.Duration
	seed  maphash.Seed

	mu sync.Mutex
	// full holds for each budget the time at which it is full again, in Unix nanoseconds (the theoretical arrival
	// time of the generic cell rate algorithm).
	full []int64
}

func newThrottle(burst int, interval time.Duration) *throttle {
	return &throttle{
		interval: interval,
		slack:    time.Duration(burst-1) * interval,
		seed:     maphash.MakeSeed(),
		full:     make([]int64, throttleCells),
	}
}

// take uses up one try. When there is none left, it takes nothing and returns how long until there is one.
func (t *throttle) take(key []byte, now time.Time) (wait time.Duration) {
	i := t.cell(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	full := max(t.full[i], now.UnixNano())
	if wait := time.Duration(full-now.UnixNano()) - t.slack; wait > 0 {
		return wait
	}
	t.full[i] = full + int64(t.interval)
	return 0
}

// giveBack undoes a take.
func (t *throttle) giveBack(key []byte) {
	i := t.cell(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.full[i] -= int64(t.interval)
}

func (t *throttle) cell(key []byte) uint64 { return maphash.Bytes(t.seed, key) % throttleCells }

// clientKey names the client that an address belongs to: the address itself, but for IPv6 its /64 network, of which
// one client has all addresses.
func clientKey(addr netip.Addr) []byte {
	addr = addr.Unmap()
	if addr.Is6() {
		if network, err := addr.WithZone("").Prefix(64); err == nil {
			addr = network.Addr()
		}
	}
	return addr.AsSlice()
}
