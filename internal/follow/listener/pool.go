package listener

import (
	"context"
	"sync"
	"time"

	"j17"
)

// What is under way at once. A listener whose endpoint is slow fills its own room and nobody else's, and so does a
// tenant with many of them: where more than half of the room of all is taken, a listener that has a try under way gets
// no further one, nor does a tenant that has maxRunningCrowded of them.
const (
	// maxRunning is the number of tries under way, of one tenant maxRunningTenant, of one listener maxRunningEach.
	maxRunning        = 1024
	maxRunningTenant  = maxRunning / 4
	maxRunningCrowded = maxRunning / 16
	maxRunningEach    = 16
	// maxWindow is the number of deliveries of a listener that have been made ready or are under way, wideWindow that
	// of one whose endpoint answers within quickPace on average: many of these share a commit.
	maxWindow  = 48
	wideWindow = 256
	quickPace  = 50 * time.Millisecond
	// maxLanes is the number of aggregates of which a listener may have deliveries that are not over, those that wait
	// for their next try included: beyond it no further events are read for it.
	maxLanes = 1000
)

// at names a listener of an environment.
type at struct {
	tenant j17.Tenant
	name   string
}

// pool is what is under way in this process.
type pool struct {
	mu      sync.Mutex
	changed sync.Cond
	running int
	lines   map[at]*line
	tenants map[j17.Tenant]*share
	// waiting are the tenants with jobs that found no room, in the order of their turns.
	waiting []*share
	// begun counts the tries that were begun.
	begun uint64
	// closed reports that no job is begun any longer.
	closed bool
}

// share is what is under way of one tenant.
type share struct {
	// lines counts those of its listeners: the share is forgotten when there are none.
	lines   int
	running int
	// held are the lines with jobs that found no room, in the order of their turns; queued reports that the tenant
	// waits for its own.
	held   []*line
	queued bool
}

// line is what is under way of one listener.
type line struct {
	at at
	of *share
	// users counts who holds the line: it is forgotten when nobody does.
	users   int
	running int
	ready   []func()
	// refused counts the tries that found no room since the last one that did.
	refused int
	held    bool
	// starved reports that somebody was refused for want of room, and is to be woken when there is some.
	starved bool
	// lanes is how many lanes the listener has, as far as this process knows; -1 until they were counted.
	lanes int
	// pace is how long tries take on average; 0 while that is not known.
	pace time.Duration
	// decide is held exclusively by code that makes lanes while it looks at the present ones, and shared by code that
	// ends them: then neither makes the other's decision void over and over.
	decide sync.RWMutex
}

func newPool() *pool {
	p := &pool{lines: map[at]*line{}, tenants: map[j17.Tenant]*share{}}
	p.changed.L = &p.mu
	return p
}

// use returns the line of a listener, which the caller gives back with leave.
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

// roomy reports whether so little is ready or under way that it is worth the while to make more ready.
func (l *line) roomy() bool { return l.running+len(l.ready) <= max(l.window()/4, maxRunningEach) }

// took notes how long a try has taken.
func (p *pool) took(l *line, d time.Duration) {
	const weight = 8 // of what is known
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.pace == 0 {
		l.pace = d
	}
	l.pace = max((weight*l.pace+d)/(weight+1), 1)
}

// starve notes that a reader is to be woken when a listener has more room.
func (p *pool) starve(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.starved = true
}

// count adds to the number of lanes that a listener has.
func (p *pool) count(l *line, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.lanes >= 0 {
		l.lanes = max(l.lanes+n, 0)
	}
}

// submit begins a job of a listener as soon as there is room for it. Jobs of a listener begin in their order. It
// reports false where no job is begun any longer.
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

// begin begins what is ready of a listener and finds room. The caller holds mu.
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

// beginOne begins what is ready first. The caller holds mu.
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

// hold lets a line wait for room, behind those of its tenant that have waited longer. The caller holds mu.
func (p *pool) hold(l *line) {
	if !l.held && len(l.ready) > 0 {
		l.held = true
		l.of.held = append(l.of.held, l)
	}
	p.queue(l.of)
}

// queue lets a tenant wait for its turn, if it has something to begin and may. The caller holds mu.
func (p *pool) queue(of *share) {
	if !of.queued && len(of.held) > 0 && of.running < maxRunningTenant {
		of.queued = true
		p.waiting = append(p.waiting, of)
	}
}

// end gives back the room of a try and begins what it makes room for.
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

// looksAtOnce bounds the tenants that are looked at when a try has ended. Those that find no room have tries under way
// themselves, the end of which lets the next ones be looked at.
const looksAtOnce = 64

// serve begins what has waited longest: the tenants take turns, and the listeners of each. The caller holds mu.
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

// sated reports whether a reader is to be woken because a listener has room again, once for each.
func (p *pool) sated(l *line) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !l.starved || p.closed || !l.roomy() || l.lanes > maxLanes-maxRunningEach {
		return false
	}
	l.starved = false
	return true
}

// close lets no further jobs begin, and returns those that have not. It waits until those under way have ended or ctx
// has.
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

// look lets those who wait look again.
func (p *pool) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed.Broadcast()
}

// wait waits until nothing is under way, and returns how many tries have been begun.
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

// enter begins a try of a listener that is not submitted, if there is room for it. Else it returns after which pause to
// ask again, which is longer the more have asked in vain, and 0 where the try may be submitted.
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
		return time.Second, false // by then it is known
	case l.quick():
		return (time.Duration(l.refused) + maxRunningEach) * quickPace / maxRunningEach, false
	default:
		return time.Second + time.Duration(l.refused)*time.Second/maxRunningEach, false
	}
}

// exit ends what enter has begun.
func (p *pool) exit(l *line) {
	p.mu.Lock()
	l.users++ // end takes it off
	p.mu.Unlock()
	p.end(l)
}

// awaitRoom reports whether a listener has much room. It waits for it for the moment that a quick endpoint takes, and
// for a slow one not at all.
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
