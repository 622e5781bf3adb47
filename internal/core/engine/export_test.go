package engine

// BoundConditions says how much work the conditions of a command may take.
func (e *Engine) BoundConditions(units int64) { e.workOfConditions = units }
