package engine

import (
	"context"
	"time"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/groupcommit"
	"j17/internal/storage/store"
)

// Outcome is the outcome of one of several commands.
type Outcome struct {
	Receipt Receipt
	// Err is the error of Execute.
	Err error
}

// ExecuteInOrder carries out commands of one tenant as if each had been executed after the one before. Those that do
// not depend on each other are stored together, so that many take few syncs. The outcomes are in the order of the
// commands.
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
		r := batch{e: e, d: d, began: e.clock.Now(), touched: map[j17.Key]bool{}, last: work.Counted(0)}
		n := 0
		for from+n < len(commands) && r.add(ctx, commands[from+n]) {
			n++
		}
		n = r.store(ctx, outcomes[from:from+n])
		r.last.Release()
		from += n
		if n == 0 || from < len(commands) && r.stopped {
			// This command cannot be stored with others: it was refused, has to wait for locks, or was overtaken.
			outcomes[from].Receipt, outcomes[from].Err = e.Execute(ctx, commands[from])
			from++
		}
	}
	return outcomes
}

// batch has commands that are stored together.
type batch struct {
	e          *Engine
	d          *deployed
	began      time.Time
	executions []*execution
	plans      []*plan
	units      []store.Append
	size       int
	// touched are the streams that the commands write.
	touched map[j17.Key]bool
	// last is the budget of the last command. If it holds memory, no command follows it in the batch, so that none
	// waits for memory held by another one of the batch.
	last *work.Budget
	// stopped reports that the next command has to be executed by itself.
	stopped bool
}

// batchTime is how long commands are planned before the planned ones are stored. If code makes each take long, a caller
// whose time ends before all are planned still makes progress.
const batchTime = time.Second

// add plans a command and reports whether it joins the batch.
func (r *batch) add(ctx context.Context, c *Command) bool {
	// Store the batch before it takes too much memory or time.
	if len(r.units) == groupcommit.MaxUnits || r.size >= groupcommit.MaxBytes || r.last.Holds() {
		return false
	}
	if len(r.units) > 0 && r.e.clock.Now().Sub(r.began) >= batchTime {
		return false
	}

	// Decide the command. One that is refused, was carried out before, has a condition on entity tags, or may have to
	// wait for locks is executed by itself once the batch is stored.
	r.stopped = true
	x := &execution{e: r.e, d: r.d, c: c, b: work.New(ctx, work.Command)}
	r.last = x.b
	first, err := x.admit(ctx)
	if err != nil || first != nil || len(c.IfMatch) > 0 {
		return false
	}
	p, err := x.plan(ctx)
	if err != nil {
		return false
	}
	if _, contended := p.locks(r.d.env.commits); contended {
		return false
	}

	// If the batch is about to change the streams that it was decided on, the next batch begins with it.
	for key := range p.looked() {
		if r.touched[key] {
			r.stopped = false
			return false
		}
	}
	if p.unit.Validate() != nil {
		return false
	}

	// It joins the batch.
	r.stopped = false
	for i := range p.unit.Events {
		r.touched[p.unit.Events[i].Key] = true
	}
	unit := p.unit
	unit.Fences = r.d.fence(unit.Fences)
	if n := len(r.units); n > 0 {
		unit.After = []int{n - 1} // in this order, or not at all
	}
	r.executions, r.plans, r.units = append(r.executions, x), append(r.plans, p), append(r.units, unit)
	r.size += groupcommit.UnitBytes(&unit)
	return true
}

// store stores the batch and returns how many of its commands are done. The command after them, if there is one, then
// has to be executed by itself.
func (r *batch) store(ctx context.Context, outcomes []Outcome) (done int) {
	if len(r.units) == 0 {
		return 0
	}
	if !r.d.Current() {
		r.stopped = true
		return 0
	}
	results, err := r.d.env.commit(ctx, r.units)
	if err != nil {
		err = store.UserError(groupcommit.ErrorOfEach(err, len(r.units)))
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
		outcomes[i].Receipt, outcomes[i].Err = r.executions[i].done(ctx, r.plans[i], &results[i])
	}
	return len(results)
}
