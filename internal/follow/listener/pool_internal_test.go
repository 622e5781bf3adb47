package listener

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"j17"
)

// crowd submits jobs that go on until they are told to end.
type crowd struct {
	p *pool

	mu    sync.Mutex
	under map[j17.Tenant][]chan struct{}
	begun []j17.Tenant
}

// submit submits a job of a listener of a tenant.
func (c *crowd) submit(t j17.Tenant, name string) {
	l := c.p.use(at{t, name})
	defer c.p.leave(l)
	c.p.submit(l, func() {
		stop := make(chan struct{})
		c.mu.Lock()
		c.under[t] = append(c.under[t], stop)
		c.begun = append(c.begun, t)
		c.mu.Unlock()
		<-stop
	})
}

// running returns how many jobs of a tenant are under way.
func (c *crowd) running(t j17.Tenant) int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.under[t])
}

// end ends up to n jobs of a tenant, one after the other, and returns how many there were.
func (c *crowd) end(t j17.Tenant, n int) (ended int) {
	for c.running(t) > 0 && ended < n {
		c.mu.Lock()
		close(c.under[t][0])
		c.under[t] = c.under[t][1:]
		c.mu.Unlock()
		ended++
	}
	synctest.Wait()
	return ended
}

// TestNoTenantTakesAllTries lets tenants with many slow listeners take what they can: there is room for others, who
// take turns, and all that waits has its turn in the end.
func TestNoTenantTakesAllTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{p: newPool(), under: map[j17.Tenant][]chan struct{}{}}
		total := 0
		greedy := func(tenant j17.Tenant) {
			for n := range 300 {
				c.submit(tenant, fmt.Sprint("hook", n))
				c.submit(tenant, fmt.Sprint("hook", n))
				total += 2
			}
		}

		// One alone, a second one, and those that come when half of the room is taken.
		var tenants []j17.Tenant
		for n, want := range []int{
			maxRunningTenant, maxRunningTenant, maxRunningCrowded, maxRunningCrowded, maxRunningCrowded,
		} {
			tenant := j17.Tenant(fmt.Sprintf("greedy%d/prod", n))
			tenants = append(tenants, tenant)
			if greedy(tenant); c.running(tenant) != want {
				t.Errorf("%s has %d tries under way, not %d", tenant, c.running(tenant), want)
			}
		}
		c.submit("modest/prod", "hook")
		if total++; c.running("modest/prod") != 1 {
			t.Error("there is no room for a tenant that has none")
		}

		// When all is taken, those who come last are served before those who have much.
		for n := 5; c.p.inFlight() < maxRunning; n++ {
			tenants = append(tenants, j17.Tenant(fmt.Sprintf("greedy%d/prod", n)))
			greedy(tenants[n])
		}
		synctest.Wait()
		before := len(c.begun)
		late := []j17.Tenant{"late1/prod", "late2/prod", "late3/prod"}
		for _, tenant := range late {
			c.submit(tenant, "hook")
			c.submit(tenant, "hook")
			total += 2
		}
		if c.end(tenants[0], 3); !slices.Equal(c.begun[before:], late) {
			t.Errorf("the next ones were those of %v", c.begun[before:])
		}

		// Nothing is forgotten.
		ended := 3
		for tenants = append(tenants, append(late, "modest/prod")...); ; {
			some := 0
			for _, tenant := range tenants {
				some += c.end(tenant, 50)
			}
			if ended += some; some == 0 {
				break
			}
		}
		if ended != total || c.p.inFlight() != 0 || len(c.p.lines) != 0 || len(c.p.tenants) != 0 {
			t.Errorf("%d of %d jobs have ended, %d are under way, %d listeners of %d tenants are known", ended, total, c.p.inFlight(), len(c.p.lines), len(c.p.tenants))
		}
	})
}
