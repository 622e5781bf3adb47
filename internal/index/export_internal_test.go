package index

// Hold sets how many ids a question holds in memory.
func (v *View) Hold(ids int) { v.held = ids }
