package engine

import (
	"context"
	"time"

	"j17"
	"j17/internal/base/work"
	"j17/internal/storage/store"
)

// Outcome is what became of one of several commands.
type Outcome struct {
	Receipt Receipt
	// Err is that of Execute.
	Err error
}

// ExecuteInOrder carries out commands of one tenant as if each had been executed after the one before. Those that do not depend on
// each other are stored together, so that many take few syncs. The outcomes stand in the order of the commands.
func (e *Engine) ExecuteInOrder(ctx context.Context, t j17.Tenant, commands []*Command) []Outcome {
	outcomes := make([]Outcome, len(commands))
	for from := 0; from < len(commands); {
		d, err := e.deployed(t)
		if err != nil {
			for i := from; i < len(commands); i++ {
				outcomes[i].Err = err
			}
			return outcomes
		}
		r := row{Engine: e, d: d, began: e.clock.Now(), touched: map[j17.Key]bool{}, last: work.Counted(0)}
		n := 0
		for from+n < len(commands) && r.add(ctx, commands[from+n]) {
			n++
		}
		n = r.store(ctx, outcomes[from:from+n])
		r.last.Release()
		from += n
		if n == 0 || from < len(commands) && r.stopped {
			// This one cannot go with others: it was refused, has to wait for its turn, or was overtaken.
			outcomes[from].Receipt, outcomes[from].Err = e.Execute(ctx, commands[from])
			from++
		}
	}
	return outcomes
}

// row is commands that are stored together.
type row struct {
	*Engine
	d        *deployed
	began    time.Time
	commands []*Command
	plans    []*plan
	units    []store.Append
	size     int
	// touched are the streams that the commands write.
	touched map[j17.Key]bool
	// last is the budget of the last command. Where it holds memory, nobody comes behind it, so that none of a row waits for memory that
	// others of the row hold.
	last *work.Budget
	// stopped tells that the next command has to be executed by itself.
	stopped bool
}

// rowTime is how long commands are planned before those that are planned are stored. Where code makes each take long, a caller whose time
// is over before all are planned gets somewhere.
const rowTime = time.Second

// add plans a command and reports whether it goes with those before it.
func (r *row) add(ctx context.Context, c *Command) bool {
	// A row is stored before it takes too much room or time.
	if len(r.units) == flightTickets || r.size >= flightBytes || r.last.Holds() {
		return false
	}
	if len(r.units) > 0 && r.clock.Now().Sub(r.began) >= rowTime {
		return false
	}

	// The command is decided. What is refused, was done before, has a condition on entity tags, or may have to wait for others' turns is
	// executed by itself when the row is stored.
	r.stopped = true
	b := work.New(ctx, work.Command)
	r.last = b
	a, first, err := r.admit(ctx, r.d, c, b)
	if err != nil || first != nil || len(c.IfMatch) > 0 {
		return false
	}
	p, err := r.plan(ctx, r.d, c, a, b, nil)
	if err != nil {
		return false
	}
	if _, crowded := p.claims(&r.d.env.turns); crowded {
		return false
	}

	// Where the row is about to change what it was decided on, the next row begins with it.
	for key := range p.looked() {
		if r.touched[key] {
			r.stopped = false
			return false
		}
	}
	if p.unit.Validate() != nil {
		return false
	}

	// It goes with those before it.
	r.stopped = false
	for i := range p.unit.Events {
		r.touched[p.unit.Events[i].Key] = true
	}
	unit := p.unit
	unit.Fences = r.d.fence(unit.Fences)
	if n := len(r.units); n > 0 {
		unit.After = []int{n - 1} // in this order, or not at all
	}
	r.commands, r.plans, r.units = append(r.commands, c), append(r.plans, p), append(r.units, unit)
	r.size += unitBytes(&unit)
	return true
}

// store stores the row and returns how many of its commands are done. The one behind them, if there is one, is then to be executed
// by itself.
func (r *row) store(ctx context.Context, outcomes []Outcome) (done int) {
	if len(r.units) == 0 {
		return 0
	}
	if r.d.env.current.Load() != r.d {
		r.stopped = true
		return 0
	}
	results, err := r.commit(ctx, r.d.env, r.units)
	if err != nil {
		err = StorageError(ofEach(err, len(r.units)))
		for i := range outcomes {
			outcomes[i].Err = err
		}
		return len(outcomes)
	}
	for i := range results {
		if results[i].Outcome != store.Committed && results[i].Outcome != store.Duplicate {
			r.stopped = true
			return i
		}
		r.d.env.observe(results[i].Timestamp)
		outcomes[i].Receipt, outcomes[i].Err = r.done(ctx, r.d, r.commands[i], r.plans[i], &results[i])
	}
	return len(results)
}
