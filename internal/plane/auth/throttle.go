package auth

import (
	"hash/maphash"
	"sync"
	"time"
)

// How many failed logins there may be in a row, and how often one more is allowed after that: from one network to one
// account, from one network, and to one account from all networks without a previous login to it. The last limit slows
// down a guesser with many addresses; it does not hold up operators who have logged in from their network before.
const (
	pairBurst       = 10
	pairInterval    = 30 * time.Second
	networkBurst    = 50
	networkInterval = 6 * time.Second
	accountBurst    = 50
	accountInterval = 30 * time.Second
)

// throttleCells is the number of budgets in a throttle: 512 KiB.
const throttleCells = 1 << 16

// throttle gives everyone a budget of tries that refills with time. Budgets are in a table of fixed size, indexed by a
// hash with a secret seed: memory does not grow with the number of names tried, no flood of names makes it forget, and
// nobody can choose with whom to share a budget.
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

// take uses up one try. If there is none left, it takes nothing and returns how long until there is one.
func (t *throttle) take(key []byte, now time.Time) (wait time.Duration) {
	i := t.cell(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	// Times that are too late, after a clock was set back, count as if the budget were used up now.
	full := min(max(t.full[i], now.UnixNano()), now.Add(t.slack+t.interval).UnixNano())
	t.full[i] = full
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

// familiar is how long a network is remembered after a login.
const familiar = 30 * 24 * time.Hour

// networks remembers the networks from which there were logins to each account, in a table of fixed size like a
// throttle's.
type networks struct {
	seed maphash.Seed
	mu   sync.Mutex
	// until is how long each cell is remembered, in Unix seconds.
	until []int64
}

func newNetworks() *networks {
	return &networks{seed: maphash.MakeSeed(), until: make([]int64, throttleCells)}
}

func (n *networks) remember(pair []byte, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.until[maphash.Bytes(n.seed, pair)%throttleCells] = now.Add(familiar).Unix()
}

func (n *networks) knows(pair []byte, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return now.Unix() < n.until[maphash.Bytes(n.seed, pair)%throttleCells]
}
