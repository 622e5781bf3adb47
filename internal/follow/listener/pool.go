package listener

import (
	"context"
	"sync"
	"time"

	"j17"
)

// Limits on concurrent tries. A listener with a slow endpoint fills only its own room, and so does a tenant with many
// of them: when more than half of the total is taken, a listener with a try under way gets no further one, nor does a
// tenant with maxRunningCrowded of them.
const (
	// maxRunning is the number of tries under way; of one tenant maxRunningTenant, of one listener maxRunningEach.
	maxRunning        = 1024
	maxRunningTenant  = maxRunning / 4
	maxRunningCrowded = maxRunning / 16
	maxRunningEach    = 16
	// maxWindow is the number of deliveries of a listener that are ready or under way; wideWindow applies if its
	// endpoint answers within quickPace on average, so that many deliveries share a commit.
	maxWindow  = 48
	wideWindow = 256
	quickPace  = 50 * time.Millisecond
	// maxLanes is the number of aggregates of which a listener may have unended deliveries, including those that wait
	// for their next try. Beyond it no further events are read for the listener.
	maxLanes = 1000
)

// at identifies a listener of an environment.
type at struct {
	tenant j17.Tenant
	name   string
}

// pool has the tries of this process.
type pool struct {
	mu      sync.Mutex
	changed sync.Cond
	running int
	lines   map[at]*line
	tenants map[j17.Tenant]*share
	// waiting has the tenants with jobs that found no room, in the order of their turns.
	waiting []*share
	// begun counts the tries begun.
	begun uint64
	// closed reports that no further job begins.
	closed bool
}

// share is the part of one tenant.
type share struct {
	// lines counts its listeners: the share is removed when there are none.
	lines   int
	running int
	// held has the lines with jobs that found no room, in the order of their turns; queued reports that the tenant
	// waits for its own turn.
	held   []*line
	queued bool
}

// line is the part of one listener.
type line struct {
	at at
	of *share
	// users counts the users of the line: it is removed when there are none.
	users   int
	running int
	ready   []func()
	// refused counts the tries that found no room since the last one that did.
	refused int
	held    bool
	// starved reports that a reader was refused for lack of room, and is to be woken when there is some.
	starved bool
	// lanes is the number of the listener's lanes, as far as this process knows; -1 until they were counted.
	lanes int
	// pace is the average duration of tries; 0 while it is unknown.
	pace time.Duration
	// decide is locked for writing by code that creates lanes and looks at the present ones, and for reading by code
	// that ends them. Without it each would keep invalidating the other's decisions.
	decide sync.RWMutex
}

func newPool() *pool {
	p := &pool{lines: map[at]*line{}, tenants: map[j17.Tenant]*share{}}
	p.changed.L = &p.mu
	return p
}

// use returns the line of a listener. The caller returns it with leave.
func (p *pool) use(where at) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.useLocked(where)
}

func (p *pool) useLocked(where at) *line {
	l := p.lines[where]
	if l == nil {
		of := p.tenants[where.tenant]
		if of == nil {
			of = &share{}
			p.tenants[where.tenant] = of
		}
		of.lines++
		l = &line{at: where, of: of, lanes: -1}
		p.lines[where] = l
	}
	l.users++
	return l
}

func (p *pool) leave(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveLocked(l)
}

func (p *pool) leaveLocked(l *line) {
	if l.users--; l.users > 0 {
		return
	}
	delete(p.lines, l.at)
	if l.of.lines--; l.of.lines == 0 {
		delete(p.tenants, l.at.tenant)
	}
}

// room returns how many more deliveries of a listener may be made ready.
func (p *pool) room(l *line) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0
	}
	return max(min(l.window()-l.running-len(l.ready), maxLanes-max(l.lanes, 0)), 0)
}

// window returns how many deliveries may be ready or under way.
func (l *line) window() int {
	if l.quick() {
		return wideWindow
	}
	return maxWindow
}

// quick reports whether tries take little time.
func (l *line) quick() bool { return l.pace > 0 && l.pace <= quickPace }

// roomy reports whether so few deliveries are ready or under way that making more ready is worthwhile.
func (l *line) roomy() bool { return l.running+len(l.ready) <= max(l.window()/4, maxRunningEach) }

// took records the duration of a try.
func (p *pool) took(l *line, d time.Duration) {
	const weight = 8 // weight of the present average
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.pace == 0 {
		l.pace = d
	}
	l.pace = max((weight*l.pace+d)/(weight+1), 1)
}

// starve records that a reader is to be woken when a listener has more room.
func (p *pool) starve(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.starved = true
}

// count adds to the number of a listener's lanes.
func (p *pool) count(l *line, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.lanes >= 0 {
		l.lanes = max(l.lanes+n, 0)
	}
}

// submit begins a job of a listener as soon as there is room for it. Jobs of a listener begin in order. It reports
// false if no further job begins.
func (p *pool) submit(l *line, job func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	l.users++
	l.ready = append(l.ready, job)
	p.begin(l)
	return true
}

// begin begins the ready jobs of a listener that find room. The caller holds mu.
func (p *pool) begin(l *line) {
	for len(l.ready) > 0 && l.running < maxRunningEach {
		if !p.admits(l) {
			p.hold(l)
			return
		}
		p.beginOne(l)
	}
}

// admits reports whether there is room for another try of a listener. The caller holds mu.
func (p *pool) admits(l *line) bool {
	if p.closed || l.running >= maxRunningEach || l.of.running >= maxRunningTenant || p.running >= maxRunning {
		return false
	}
	return p.running < maxRunning/2 || l.running == 0 && l.of.running < maxRunningCrowded
}

// beginOne begins the first ready job. The caller holds mu.
func (p *pool) beginOne(l *line) {
	job := l.ready[0]
	if l.ready = l.ready[1:]; len(l.ready) == 0 {
		l.ready = nil
	}
	p.add(l)
	go func() {
		job()
		p.end(l)
	}()
}

// add counts a try that begins. The caller holds mu.
func (p *pool) add(l *line) {
	l.running++
	l.of.running++
	p.running++
	p.begun++
}

// hold makes a line wait for room, behind those of its tenant that have waited longer. The caller holds mu.
func (p *pool) hold(l *line) {
	if !l.held && len(l.ready) > 0 {
		l.held = true
		l.of.held = append(l.of.held, l)
	}
	p.queue(l.of)
}

// queue makes a tenant wait for its turn, if it has jobs to begin and is below its limit. The caller holds mu.
func (p *pool) queue(of *share) {
	if !of.queued && len(of.held) > 0 && of.running < maxRunningTenant {
		of.queued = true
		p.waiting = append(p.waiting, of)
	}
}

// end releases the room of a try and begins the jobs that then find room.
func (p *pool) end(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.running--
	l.of.running--
	p.running--
	if len(p.waiting) == 0 {
		p.begin(l)
	}
	p.hold(l)
	p.serve()
	p.leaveLocked(l)
	p.changed.Broadcast()
}

// looksAtOnce bounds the tenants that are looked at when a try ends. A tenant that finds no room has tries under way
// itself, and when they end the next tenants are looked at.
const looksAtOnce = 64

// serve begins the jobs that have waited longest: tenants take turns, and so do the listeners of each. The caller holds
// mu.
func (p *pool) serve() {
	for n := min(len(p.waiting), looksAtOnce); n > 0 && p.running < maxRunning; n-- {
		of := p.waiting[0]
		p.waiting = p.waiting[1:]
		of.queued = false
		l := of.held[0]
		of.held = of.held[1:]
		l.held = false
		if len(l.ready) > 0 && p.admits(l) {
			p.beginOne(l)
		}
		if l.running < maxRunningEach {
			p.hold(l)
		} else {
			p.queue(of)
		}
	}
}

// sated reports whether a starved reader is to be woken because its listener has room again; it does so once for each.
func (p *pool) sated(l *line) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !l.starved || p.closed || !l.roomy() || l.lanes > maxLanes-maxRunningEach {
		return false
	}
	l.starved = false
	return true
}

// close lets no further job begin, and returns those that have not begun. It waits until the tries under way or ctx
// have ended.
func (p *pool) close(ctx context.Context) (left []func()) {
	stop := context.AfterFunc(ctx, p.look)
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, l := range p.lines {
		left = append(left, l.ready...)
		l.users -= len(l.ready)
		l.ready = nil
	}
	for p.running > 0 && ctx.Err() == nil {
		p.changed.Wait()
	}
	return left
}

// look makes waiters check again.
func (p *pool) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed.Broadcast()
}

// wait waits until nothing is under way, and returns the number of tries begun.
func (p *pool) wait(ctx context.Context) uint64 {
	stop := context.AfterFunc(ctx, p.look)
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.running > 0 && ctx.Err() == nil {
		p.changed.Wait()
	}
	return p.begun
}

// inFlight returns how many tries are under way.
func (p *pool) inFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// enter begins a try that was not submitted, if there is room for it. Otherwise it returns the pause before the next
// request, which grows with the number of refusals; a pause of 0 means that the try may be submitted.
func (p *pool) enter(l *line) (after time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.admits(l) {
		l.refused = 0
		p.add(l)
		return 0, true
	}
	if l.running+len(l.ready) < l.window() {
		return 0, false
	}
	l.refused++
	switch {
	case l.pace == 0:
		return time.Second, false // by then the pace is known
	case l.quick():
		return (time.Duration(l.refused) + maxRunningEach) * quickPace / maxRunningEach, false
	default:
		return time.Second + time.Duration(l.refused)*time.Second/maxRunningEach, false
	}
}

// exit ends a try begun by enter.
func (p *pool) exit(l *line) {
	p.mu.Lock()
	l.users++ // end undoes it
	p.mu.Unlock()
	p.end(l)
}

// awaitRoom reports whether a listener has much room. For a quick endpoint it waits up to a second for that, for a slow
// one not at all.
func (p *pool) awaitRoom(ctx context.Context, l *line) bool {
	const moment = time.Second
	waiting, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	stop := context.AfterFunc(waiting, p.look)
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && !l.roomy() && l.quick() && waiting.Err() == nil {
		p.changed.Wait()
	}
	return !p.closed && l.roomy()
}
